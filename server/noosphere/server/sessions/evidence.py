"""What facts rest on, found by reference: messages and results of tools, as they arrived, with what they are worth.

A reference means the message or call that an id means on the present branch, else the newest one that ever had it. A
message that a fork reads in the session it was forked from has the reference that it has there, so that it is one
source. Of ephemeral sessions nothing is found: nothing that is made of them may outlive them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noosphere.consistency import Refusal, invalid, to_hex, too_large

from ..ports.sources import SOURCES_MAX, Source
from .evidence_pages import EvidencePages, Position
from .keys import MESSAGES, TOOLS, check_session_id, is_ephemeral
from .paths import Path, read_path
from .references import Reference, SourceKind
from .scribe import Scribe, not_found
from .seen import TRUST_OUTSIDE, TRUST_USER, Seen, ShownContexts
from .summary_record import Place
from .witness import Witness, message_of, place_key, tool_call_of

FOUND_CHARS_MAX = 64 * 1024 * 1024
"""Of the texts of one call; a result of a tool may have 8 Mi."""


class Basis(NamedTuple):
    """What something rests on: references to what was found of it, and what it is worth, 0 to 0.5."""

    references: tuple[str, ...]
    trust: float


class Evidence:
    """Finds and reads what facts rest on; the reading half of ``ports.sources``.

    Args:
        scribe: reads the records of sessions.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._seen = Seen(scribe)
        self._witness = Witness(scribe, self._seen)
        self._pages = EvidencePages(scribe, self._witness)

    def heed(self, contexts: ShownContexts) -> None:
        """Has what contexts showed count as seen; they are made of facts, so they come after what facts rest on."""
        self._seen.contexts = contexts

    async def find(self, agent: str, references: Sequence[str]) -> tuple[Source | None, ...]:
        """Returns sources in the order asked for; None for one that is not there.

        What a caller may see is asked by whoever knows the caller.

        Args:
            agent: who asks; empty for the server itself.
            references: at most 256, of 64 Mi characters of text together.

        Raises:
            Refusal: VALUE_TOO_LARGE, ENGINE_UNAVAILABLE.
        """
        if len(references) > SOURCES_MAX:
            raise too_large("references", len(references), SOURCES_MAX, "entries")
        paths: dict[str, Path | None] = {}
        found: list[Source | None] = []
        chars = 0
        for reference in map(Reference.parse, references):
            if reference is None or is_ephemeral(reference.session_id):
                found.append(None)
                continue
            session_id = reference.session_id
            if session_id not in paths:
                paths[session_id] = await read_path(self._scribe, session_id)
            path = paths[session_id]
            source = None if path is None else await self._find(path, reference)
            found.append(source)
            chars += 0 if source is None else len(source.text)
            if chars > FOUND_CHARS_MAX:
                raise too_large("references", chars, FOUND_CHARS_MAX, "characters of text, name fewer at once")
        return tuple(found)

    async def context_trust(self, agent: str, session_id: str) -> float:
        """Returns the lowest trust of what an agent has seen in a session; 0 if it has taken no part in it.

        Args:
            agent: who asks; empty for the server itself, which judges by the session alone.
            session_id: which session; 0 for one that is not there.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        try:
            check_session_id(session_id)
        except Refusal:
            return TRUST_OUTSIDE
        path = None if is_ephemeral(session_id) else await read_path(self._scribe, session_id)
        if path is None:
            return TRUST_OUTSIDE
        if not agent:
            return await self._seen.trust_at(path, None)
        # Whoever has seen nothing here has what it says from elsewhere.
        return await self._seen.trust_of_writer(path, Place(len(path.parts), ""), agent)

    async def page(self, agent: str, session_id: str, after: str, limit: int) -> tuple[Source, ...]:
        """Reads a session's messages and results of tools in order, those it has from sessions it was forked from too.

        A result stands where its call was started; one that came later than that page is on a later one. The message
        that shows a result is no source of its own, and an ephemeral session has none.

        Args:
            agent: who asks; empty for the server itself.
            session_id: which session.
            after: the position of the last source of the page before; empty for the first page.
            limit: 1 to 256 sources; a page also ends at 4 Mi characters.

        Raises:
            Refusal: SESSION_NOT_FOUND, INVALID_FIELD, ENGINE_UNAVAILABLE.
        """
        check_session_id(session_id)
        position = Position.parse(after)
        if not 1 <= limit <= SOURCES_MAX:
            raise invalid("limit", f"{limit} is not between 1 and {SOURCES_MAX}")
        path = await read_path(self._scribe, session_id)
        if path is None:
            raise not_found(session_id)
        return () if path.info.ephemeral else await self._pages.page(path, position, limit)

    async def basis_of(self, session_id: str, *, writer: str, revision: int, named: Sequence[str]) -> Basis:
        """Returns what something that an agent wrote into a session rests on, and what it is worth.

        Without evidence that is found, it is worth what its writer had seen by then.

        Args:
            session_id: the session.
            writer: the agent; empty for the server itself.
            revision: at which it was written; 0 for now.
            named: its evidence: keys of messages and tool calls of the session, or references.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        references = [await self._reference(session_id, name) for name in named[:SOURCES_MAX]]
        found = await self.find("", [reference for reference in references if reference])
        sources = [source for source in found if source is not None]
        told = tuple(dict.fromkeys(source.reference for source in sources))
        if sources and len(sources) == len(named):
            return Basis(told, min(TRUST_USER, *(source.trust for source in sources)))
        path = await read_path(self._scribe, session_id)
        if path is None or path.info.ephemeral:
            return Basis(told, TRUST_OUTSIDE)
        key = MESSAGES + to_hex(revision + 1) if revision else ""
        place = path.place_of(key, session_id) if key else Place(len(path.parts), "")
        if place is None:
            path = path.with_all_branches()
            place = Place(len(path.parts) - 1, key)
        trust = await self._seen.trust_of_writer(path, place, writer or path.info.owner)
        return Basis(told, min((trust, *(source.trust for source in sources))))

    async def _reference(self, session_id: str, name: str) -> str:
        """Returns the reference that evidence has, named as a key or as one; empty for what is no source."""
        if name.startswith(MESSAGES):
            return str(Reference(SourceKind.MESSAGE, session_id, name[len(MESSAGES) :]))
        if name.startswith(TOOLS):
            call = await self._witness.call_at(session_id, name)
            return "" if call is None else str(Reference(SourceKind.TOOL, session_id, call.call_id))
        return "" if Reference.parse(name) is None else name

    async def _find(self, path: Path, reference: Reference) -> Source | None:
        located = await self._witness.locate(path, reference)
        if located is None:
            return None
        session_id, entry = located
        if reference.kind is SourceKind.TOOL:
            return await self._witness.result(session_id, tool_call_of(entry))
        key = place_key(entry.key)
        place = path.place_of(key, session_id)
        if place is None:
            path = path.with_all_branches()
            place = Place(len(path.parts) - 1, key)
        return await self._witness.message(path, place, message_of(entry))
