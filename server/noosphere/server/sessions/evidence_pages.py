"""Pages of what a session holds that facts may be extracted from, in order and each once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from noosphere.consistency import invalid

from ..ports.sources import Source
from ..ports.store import NamespaceRef, StoredEntry
from .keys import MESSAGES, TOOLS, KeyRange, is_slot
from .paths import Path
from .references import Reference, SourceKind
from .scribe import Scan, Scribe
from .seen import as_tool_key, has_result
from .summary_record import Place
from .toolcall import ToolCall, ToolCallStatus
from .types import Message, Role
from .witness import Witness, message_of, tool_call_of

CHARS_MAX = 4 * 1024 * 1024
"""A page ends after so many characters of text; it has one source at least."""

WAITING_MAX = 64
"""Most tool calls without a result that a position remembers, so that what they bring later is not passed over."""

_SCAN_STEP = 128
_COUNTED = frozenset({ToolCallStatus.DONE, ToolCallStatus.FAILED})
_UNDECIDED = frozenset({ToolCallStatus.PENDING, ToolCallStatus.PARKED})


class Position(NamedTuple):
    """After which place of a session a page begins.

    Attributes:
        session: the session; empty for the beginning.
        slot: the end of the key of the record there.
        waiting: the same of tool calls before it that have had no result yet.
    """

    session: str = ""
    slot: str = ""
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.session}/{self.slot}/{','.join(self.waiting)}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Reads a position; empty is the beginning.

        Raises:
            Refusal: INVALID_FIELD.
        """
        if not text:
            return cls()
        session, _, rest = text.partition("/")
        place, _, waiting = rest.partition("/")
        slots = tuple(waiting.split(",")) if waiting else ()
        if not all(map(is_slot, (place, *slots))) or len(slots) > WAITING_MAX:
            raise invalid("after", f"{text[:64]!r} is not the position of a source")
        return cls(session, place, slots)


class EvidencePages:
    """Reads pages.

    Args:
        scribe: reads the records of sessions.
        witness: makes sources of them.
    """

    def __init__(self, scribe: Scribe, witness: Witness) -> None:
        self._scribe = scribe
        self._witness = witness

    async def page(self, path: Path, position: Position, limit: int) -> tuple[Source, ...]:
        """Returns up to ``limit`` sources after a position, as many as there is room for."""
        found: list[Source] = []
        chars = 0
        async with aclosing(self._sources(path, position)) as sources:
            async for source in sources:
                found.append(source)
                chars += len(source.text)
                if len(found) == limit or chars >= CHARS_MAX:
                    break
        return tuple(found)

    async def _sources(self, path: Path, position: Position) -> AsyncGenerator[Source, None]:
        waiting = position.waiting
        for slot in position.waiting:
            call = await self._witness.call_at(path.session_id, TOOLS + slot)
            if call is not None and call.status in _UNDECIDED:
                continue
            waiting = tuple(one for one in waiting if one != slot)
            source = None if call is None else await self._result(path.session_id, call)
            if source is not None:
                yield source._replace(position=str(position._replace(waiting=waiting)))
        for index, after in _left(path, position):
            session = path.session_at(index)
            async for entry in self._entries(path, index, after):
                slot = entry.key.rpartition("/")[2]
                if entry.key.startswith(TOOLS):
                    call = tool_call_of(entry)
                    if call.status in _UNDECIDED and session == path.session_id:
                        waiting = (*waiting, slot)[-WAITING_MAX:]
                    source = await self._result(session, call)
                else:
                    source = await self._said(path, Place(index, entry.key), message_of(entry))
                if source is not None:
                    yield source._replace(position=str(Position(session, slot, waiting)))

    async def _entries(self, path: Path, index: int, after: str) -> AsyncGenerator[StoredEntry, None]:
        """Yields a stretch's messages and tool calls in the order in which they were said and started."""
        stretch = path.parts[index]
        ref = await self._scribe.living(path.session_at(index))
        first = max(after, stretch.after)
        calls = self._range(ref, TOOLS, KeyRange(as_tool_key(first) or None, as_tool_key(stretch.before) or None))
        call = await anext(calls, None)
        async for entry in self._range(ref, MESSAGES, KeyRange(first or None, stretch.before or None)):
            while call is not None and call.key[len(TOOLS) :] < entry.key[len(MESSAGES) :]:
                yield call
                call = await anext(calls, None)
            yield entry
        while call is not None:
            yield call
            call = await anext(calls, None)

    async def _range(self, ref: NamespaceRef, collection: str, keys: KeyRange) -> AsyncGenerator[StoredEntry, None]:
        more = True
        while more:
            page = await self._scribe.scan(ref, Scan(collection, _SCAN_STEP, keys=keys))
            more = page.more
            for entry in page.entries:
                yield entry
            if page.entries:
                keys = KeyRange(page.entries[-1].key, keys.before)

    async def _result(self, session: str, call: ToolCall) -> Source | None:
        """Returns a result that counts: one that was rejected, or waits for a review, does not."""
        return await self._witness.result(session, call) if call.status in _COUNTED else None

    async def _said(self, path: Path, place: Place, message: Message) -> Source | None:
        """Returns a message as a source of its own, None if it is none."""
        if not message.text:
            return None
        if message.role is Role.TOOL:
            # It only shows, and perhaps not all of, what the call's own record tells.
            session = path.session_at(place.stretch)
            found = await self._witness.entry(session, Reference(SourceKind.TOOL, session, message.tool_call_id))
            if found is not None and has_result(tool_call_of(found)):
                return None
        return await self._witness.message(path, place, message)


def _left(path: Path, position: Position) -> list[tuple[int, str]]:
    """Returns the stretches that a page has to look at, each with the key after which it does.

    A restore may have left the branch on which the position was taken. What is told is then what this one has after it.
    """
    sessions = list(dict.fromkeys(map(path.session_at, range(len(path.parts)))))
    start = sessions.index(position.session) if position.session in sessions else 0
    return [
        (index, MESSAGES + position.slot if path.session_at(index) == position.session else "")
        for index in range(len(path.parts))
        if sessions.index(path.session_at(index)) >= start
    ]
