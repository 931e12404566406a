"""What is to be forgotten: where its sources lie, in which sessions it may stand besides, and what is a copy of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from noosphere.consistency import Refusal, exhausted

from ..ports.sources import REDACTED, SESSION
from ..ports.store import StoredEntry
from .children import child_key
from .keys import CHILDREN, MESSAGES, KeyRange, check_session_id, is_ephemeral
from .paths import read_path, read_session
from .references import Reference, SourceKind
from .scribe import Scan, Scribe
from .seen import Seen
from .types import Message, Role
from .witness import Witness, message_of, tool_call_of

FAMILY_MAX = 1_000
"""Most sessions that forgetting reaches over forks; a call that would reach more is refused."""

_SCAN_STEP = 256


class _Said(NamedTuple):
    """By what the copy of a message is known in another session, where it has another key."""

    role: Role
    author: str
    time_ms: int
    parts: object

    @classmethod
    def of(cls, message: Message) -> _Said:
        return cls(message.role, message.author, message.time_ms, message.parts)


@dataclass(frozen=True)
class Forgetting:
    """What is to be forgotten.

    Attributes:
        sessions: where anything of it may stand: the sessions of the sources, and those forked from or into them.
        gone: sessions that are no more.
        messages: keys of the messages that are sources, by session.
        calls: keys of the tool calls whose results are sources, by session.
        texts: what the sources say.
    """

    sessions: tuple[str, ...]
    gone: tuple[str, ...] = ()
    messages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    _said: frozenset[_Said] = frozenset()
    _called: frozenset[str] = frozenset()

    def is_source(self, session_id: str, key: str) -> bool:
        """Tells whether a record is a source itself, which goes last."""
        return key in self.messages.get(session_id, ()) or key in self.calls.get(session_id, ())

    def is_copy(self, session_id: str, entry: StoredEntry) -> bool:
        """Tells whether a message is a fork's copy of a source, or shows a result that is one."""
        if not entry.key.startswith(MESSAGES) or self.is_source(session_id, entry.key):
            return False
        message = message_of(entry)
        if message.role is Role.TOOL and message.tool_call_id in self._called and message.text != REDACTED:
            return True
        return _Said.of(message) in self._said


async def plan(scribe: Scribe, references: Sequence[str]) -> Forgetting:
    """Finds out what is to be forgotten.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    witness = Witness(scribe, Seen(scribe))
    sessions: dict[str, None] = {}
    gone: dict[str, None] = {}
    messages: dict[str, list[str]] = {}
    calls: dict[str, list[str]] = {}
    texts: list[str] = []
    said: set[_Said] = set()
    called: set[str] = set()
    for text in dict.fromkeys(references):
        session_id, reference = _named(text)
        if not session_id or is_ephemeral(session_id):
            continue
        path = await read_path(scribe, session_id)
        if path is None:
            gone[session_id] = None
            continue
        sessions[session_id] = None
        located = None if reference is None else await witness.locate(path, reference)
        if reference is None or located is None:
            continue
        holder, entry = located
        sessions[holder] = None
        if reference.kind is SourceKind.TOOL:
            call = tool_call_of(entry)
            source = await witness.result(holder, call)
            calls.setdefault(holder, []).append(entry.key)
            called.add(call.call_id)
            texts += [source.text] if source is not None else []
        else:
            message = message_of(entry)
            messages.setdefault(holder, []).append(entry.key)
            if message.text != REDACTED and not message.retracted:
                texts.append(message.text)
                said.add(_Said.of(message))
    return Forgetting(
        await family(scribe, tuple(sessions)),
        tuple(gone),
        messages,
        calls,
        tuple(texts),
        frozenset(said),
        frozenset(called),
    )


def _named(text: str) -> tuple[str, Reference | None]:
    """Returns the session that a reference names, empty for none, and the reference itself if it names an entry."""
    if text.startswith(SESSION):
        session_id = text[len(SESSION) :]
        try:
            check_session_id(session_id)
        except Refusal:
            return "", None
        return session_id, None
    reference = Reference.parse(text)
    return ("", None) if reference is None else (reference.session_id, reference)


async def family(scribe: Scribe, sessions: Sequence[str]) -> tuple[str, ...]:
    """Returns sessions with all that they were forked from and that were forked from them, over any number of forks.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    found = dict.fromkeys(sessions)
    left = list(sessions)
    while left:
        session_id = left.pop()
        look = await read_session(scribe, session_id)
        if look is None:
            found.pop(session_id, None)
            continue
        kin = [look.session.parent] if look.session.parent else []
        kin += await _children(scribe, session_id)
        for one in kin:
            if one not in found and not is_ephemeral(one):
                found[one] = None
                left.append(one)
        if len(found) > FAMILY_MAX:
            raise exhausted("references", len(found), FAMILY_MAX, "too many sessions are forks of one another")
    return tuple(found)


async def _children(scribe: Scribe, session_id: str) -> list[str]:
    ref = await scribe.living(session_id)
    found: list[str] = []
    cursor, more = None, True
    while more:
        page = await scribe.scan(ref, Scan(CHILDREN, _SCAN_STEP, keys=KeyRange(cursor, None)))
        more = page.more
        for entry in page.entries:
            cursor = entry.key
            child = entry.key.removeprefix(child_key(""))
            look = await read_session(scribe, child)
            found += [child] if look is not None and look.session.parent == session_id else []
    return found
