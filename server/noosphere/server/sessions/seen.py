"""What was seen in a session up to some place, and so how far what was made of it can be trusted.

What a user said is trusted half, what the session's owner set for it too. Everything else came from outside: results
of tools, in whatever role, system messages of others, and what contexts carried that is trusted less. What an assistant
says is made of all that was seen before it, so one result of a tool is enough to make everything after it worth
nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple, Protocol

from noosphere.consistency import to_hex

from ..memory.codec import decode_record
from .codec import decode_message
from .keys import MESSAGES, TOOLS, KeyRange
from .paths import Path
from .scribe import Scan, Scribe
from .summary_record import Place
from .toolcall import ToolCall, decode_tool_call
from .types import Message, Role

TRUST_USER = 0.5
TRUST_OUTSIDE = 0.0

RESULTS_BEFORE = 16
"""So many calls before a user's message are looked at: is it the result of one?"""

RESULT_CHARS_MIN = 16
"""Shorter results, such as "done", are what a user says, too."""

_PAGE = 256
_STEP_RECORDS = 64
_REMEMBERED_MAX = 1_024
_AUTHORS_MAX = 64


class ShownContext(NamedTuple):
    """A context that was made of a session, as far as it matters for what was said after it.

    Attributes:
        revision: the head at which the session was read for it.
        trust: the lowest trust of the facts and of the evidence in it; 1 if there were none.
        recalled: whether facts were among them.
    """

    revision: int
    trust: float
    recalled: bool


class ShownContexts(Protocol):
    """Knows the contexts that were made of a session."""

    async def shown(self, session_id: str) -> tuple[ShownContext, ...]:
        """Returns those that are remembered, at most some hundred; they explain, and a crash may lose the newest."""
        ...


class _Scanned(NamedTuple):
    """What the messages up to a place told.

    Attributes:
        of: what it is true of: the path without its open end.
        reached: everything up to here was looked at.
        user: the first thing that a user said; None if nobody has.
        outside: the first thing that came from outside; None if nothing did.
        authors: the agents that have said anything, as far as there is room.
    """

    of: tuple[object, ...]
    reached: Place
    user: Place | None = None
    outside: Place | None = None
    authors: frozenset[str] = frozenset()


class Seen:
    """Judges what was seen in sessions.

    Args:
        scribe: reads their records.

    Attributes:
        contexts: knows what contexts showed; None if nobody does.
    """

    def __init__(self, scribe: Scribe) -> None:
        self.contexts: ShownContexts | None = None
        self._scribe = scribe
        self._scanned: OrderedDict[str, _Scanned] = OrderedDict()

    async def trust_at(self, path: Path, place: Place | None) -> float:
        """Returns the lowest trust of what was seen before a place; None for all that was ever seen.

        0 if no user has said anything: then it is made of nothing that the server knows.
        """
        end = place or Place(len(path.parts), "")
        scanned = await self._scan(path, end)
        if scanned.user is None or scanned.user >= end:
            return TRUST_OUTSIDE
        if scanned.outside is not None and scanned.outside < end:
            return TRUST_OUTSIDE
        if await self._result_before(path, end):
            return TRUST_OUTSIDE
        return min((TRUST_USER, *(c.trust for c in await self.contexts_of(path) if _before(path, c, end))))

    async def trust_of_writer(self, path: Path, place: Place, agent: str) -> float:
        """Returns the lowest trust of what an agent has seen before a place, as far as the session tells.

        0 for one that has taken no part in it: what such an agent writes is made of what it saw elsewhere.
        """
        trust = await self.trust_at(path, place)
        if trust == TRUST_OUTSIDE or agent in path.owners:
            return trust
        return trust if agent in (await self._scan(path, place)).authors else TRUST_OUTSIDE

    async def trust_of(self, path: Path, place: Place, message: Message) -> float:
        """Returns the trust of one message on a branch."""
        if message.role is Role.ASSISTANT:
            return await self.trust_at(path, place)
        if is_outside(path.owners, message) or await self._holds_result(path, place, message):
            return TRUST_OUTSIDE
        return TRUST_USER

    async def recalled_before(self, path: Path, place: Place) -> bool:
        """Tells whether a context before a place showed facts."""
        return any(c.recalled and _before(path, c, place) for c in await self.contexts_of(path))

    async def contexts_of(self, path: Path) -> tuple[ShownContext, ...]:
        """Returns the contexts that were made of a session."""
        return () if self.contexts is None else await self.contexts.shown(path.session_id)

    async def _scan(self, path: Path, end: Place) -> _Scanned:
        """Looks at the messages before a place, from where an earlier look ended."""
        of = (path.generation, path.retracted, path.parts[:-1], path.parts[-1].after)
        known = self._scanned.pop(path.session_id, None)
        if known is None or known.of != of:
            known = _Scanned(of, Place(0, ""))
        # Nothing that comes after the first thing from outside changes anything.
        if known.reached < end and known.outside is None:
            known = await self._scan_on(path, end, known)
        self._scanned[path.session_id] = known
        while len(self._scanned) > _REMEMBERED_MAX:
            self._scanned.popitem(last=False)
        return known

    async def _scan_on(self, path: Path, end: Place, known: _Scanned) -> _Scanned:
        seen = 0
        for index in range(known.reached.stretch, min(end.stretch + 1, len(path.parts))):
            stretch = path.parts[index]
            ref = await self._scribe.living(path.session_at(index))
            after = known.reached.key if index == known.reached.stretch else ""
            before = end.key if index == end.stretch else ""
            keys = KeyRange(after or stretch.after or None, before or stretch.before or None)
            more = True
            while more:
                page = await self._scribe.scan(ref, Scan(MESSAGES, _PAGE, keys=keys))
                more = page.more
                for entry in page.entries:
                    place = Place(index, entry.key)
                    message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                    known = _with(known, path.owners, place, message)
                    if known.outside is not None:
                        return known
                    seen += 1
                    if seen % _STEP_RECORDS == 0:
                        await asyncio.sleep(0)
                if page.entries:
                    keys = KeyRange(page.entries[-1].key, keys.before)
        return known

    async def _result_before(self, path: Path, end: Place) -> bool:
        """Tells whether a tool call that was started before a place has brought anything from outside.

        Whatever was said after the call was started may be made of its result, wherever that was put.
        """
        for index in range(min(end.stretch + 1, len(path.parts))):
            if await self._result_within(path.session_at(index), _calls_of(path, index, end)):
                return True
        return False

    async def _holds_result(self, path: Path, place: Place, message: Message) -> bool:
        """Tells whether a user's message holds a whole result of one of the calls just before it.

        Some APIs of models have results in the user's role, and whoever appends what it sends them does, too.
        """
        said = " ".join(message.text.split())
        if len(said) < RESULT_CHARS_MIN:
            return False
        ref = await self._scribe.living(path.session_at(place.stretch))
        keys = KeyRange(None, as_tool_key(place.key) or None)
        page = await self._scribe.scan(ref, Scan(TOOLS, RESULTS_BEFORE, reverse=True, keys=keys))
        for entry in page.entries:
            call = decode_tool_call(entry.key, decode_record(entry.data, entry.revision))
            if not has_result(call) or call.finished_ms > message.time_ms:
                continue
            result = " ".join(call.content.split())
            if len(result) >= RESULT_CHARS_MIN and result in said:
                return True
        return False

    async def _result_within(self, session_id: str, within: _Calls) -> bool:
        ref = await self._scribe.living(session_id)
        keys, more = within.keys, True
        while more:
            page = await self._scribe.scan(ref, Scan(TOOLS, _PAGE, keys=keys))
            more = page.more
            for entry in page.entries:
                call = decode_tool_call(entry.key, decode_record(entry.data, entry.revision))
                if has_result(call) and call.started_ms <= within.started_ms_max:
                    return True
            await asyncio.sleep(0)
            if page.entries:
                keys = KeyRange(page.entries[-1].key, keys.before)
        return False


class _Calls(NamedTuple):
    keys: KeyRange
    started_ms_max: int


def is_outside(owners: frozenset[str], message: Message) -> bool:
    """Tells whether a message came from outside, rather than from a user or from whoever set the session up."""
    if message.role is Role.SYSTEM:
        return message.author not in owners
    return message.role is not Role.USER


def has_result(call: ToolCall) -> bool:
    """Tells whether a call has brought anything; one that the server has ended has not."""
    return not call.pending and call.raw_bytes > 0


def as_tool_key(key: str) -> str:
    """Returns the bound in a session's tool calls that a bound in its messages is; empty for none."""
    return TOOLS + key[len(MESSAGES) :] if key else ""


def _with(known: _Scanned, owners: frozenset[str], place: Place, message: Message) -> _Scanned:
    authors = known.authors
    if message.author not in authors and len(authors) < _AUTHORS_MAX:
        authors |= {message.author}
    known = known._replace(reached=place, authors=authors)
    if message.role is Role.USER:
        return known._replace(user=place) if known.user is None and not message.retracted else known
    # What was taken back was seen all the same.
    if message.role is not Role.ASSISTANT and is_outside(owners, message):
        return known._replace(outside=place)
    return known


def _before(path: Path, context: ShownContext, end: Place) -> bool:
    """Tells whether what was said at a place may be made of a context."""
    place = path.place_of(MESSAGES + to_hex(context.revision + 1), path.session_id)
    return place is not None and place <= end


def _calls_of(path: Path, index: int, end: Place) -> _Calls:
    """Returns which tool calls belong to a stretch, as far as they come before a place."""
    stretch = path.parts[index]
    before = end.key if index == end.stretch else stretch.before
    started_ms_max = 1 << 62
    if index == path.inherited - 1 and index < end.stretch:
        # A fork's copies begin where this stretch ends; results among them were seen up to where it was forked.
        before = MESSAGES + to_hex(path.forked_at + 1) if path.forked_at else ""
        started_ms_max = path.info.created_ms
    keys = KeyRange(as_tool_key(stretch.after) or None, as_tool_key(before) or None)
    return _Calls(keys, started_ms_max)
