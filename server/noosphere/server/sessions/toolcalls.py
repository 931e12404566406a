"""Calls of tools: starting them, looking at them, reviewing parked results. Finishing them is in ``finishing``."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from noosphere.consistency import (
    ReadSet,
    StaleEntry,
    StampMode,
    check_key,
    exhausted,
    invalid,
    too_large,
)
from noosphere.consistency.limits import TTL_MS_MAX

from ..memory.codec import decode_record
from ..memory.reads import PAGE_BYTES_MAX, check_page_size
from ..memory.types import Call
from .basis import basis_changes, basis_of, open_goals
from .codec import decode_index, decode_turns, encode_index
from .draft import Draft, Look
from .keys import (
    CALL_IDS,
    PENDING,
    TOOLS,
    TURNS,
    KeyRange,
    check_entry_id,
    id_key,
    slot,
    slot_index,
    slot_revision,
)
from .saving import Moved, prepared
from .scribe import Intent, Scan, Scribe, Written, recorded
from .tickets import Ticket
from .toolcall import (
    BasisChange,
    LatePolicy,
    ToolCall,
    ToolCallStatus,
    decode_tool_call,
    encode_tool_call,
    tool_call_at,
    tool_call_attributes,
)
from .types import CheckpointCause

ARGUMENTS_BYTES_MAX = 16 * 1024
BASED_ON_MAX = 32
PENDING_MAX = 1_000
"""Most calls of one session that are pending; several that start at one moment may pass it together."""

_STEP_RECORDS = 64
_SCAN_STEP = 128
_SCANNED_MAX = 10_000
"""Most calls that one page looks through for matches; the page may then be empty, with a next token."""

_PLACE = struct.Struct(">QHB")


class AroundCall(Protocol):
    """Hears of calls that change the world, before they begin and after they have ended."""

    async def around_call(self, call: Call, session_id: str, cause: CheckpointCause) -> None:
        """Does its part, in commits of its own; may be told of the same call several times.

        Raises:
            Refusal: why it cannot. Before a call, the call is then not started; after one, it has ended nevertheless.
        """
        ...


class NewToolCall(NamedTuple):
    """A call as its caller describes it.

    Attributes:
        call_id: unique in the session; empty asks for one.
        name: the tool's name.
        arguments: as JSON text.
        based_on: what it is based on; empty for the open goals.
        late_policy: what happens to a late result.
        deadline_ms: how long it may take; None for ever.
        side_effects: whether the tool changes the world.
        retry: whether to start a known, unfinished call again.
    """

    call_id: str
    name: str
    arguments: str = ""
    based_on: tuple[str, ...] = ()
    late_policy: LatePolicy = LatePolicy.APPLY_FLAGGED
    deadline_ms: int | None = None
    side_effects: bool = False
    retry: bool = False

    def check(self) -> None:
        """Checks the form.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        if self.call_id:
            check_entry_id(self.call_id, "call_id")
        check_entry_id(self.name, "name")
        if (size := len(self.arguments.encode())) > ARGUMENTS_BYTES_MAX:
            raise too_large("arguments", size, ARGUMENTS_BYTES_MAX)
        if len(self.based_on) > BASED_ON_MAX:
            raise too_large("based_on", len(self.based_on), BASED_ON_MAX, "entries")
        for index, key in enumerate(self.based_on):
            check_key(key, f"based_on[{index}]")
            if key in self.based_on[:index]:
                raise invalid(f"based_on[{index}]", f"{key!r} is named twice")
        if self.deadline_ms is not None and not 0 < self.deadline_ms <= TTL_MS_MAX:
            raise invalid("deadline", f"{self.deadline_ms} ms is not between 1 and {TTL_MS_MAX} ms")
        if self.retry and not self.call_id:
            raise invalid("retry", "needs the call_id of the call to start again")


class ToolCallReply(NamedTuple):
    """A call as it is after a call of the API.

    Attributes:
        tool_call: the call.
        head: its namespace's newest visible revision.
        started: whether the call of the API started it, or an attempt at it.
        changes: what of its basis has changed by now, while it is pending or parked.
        read_set: the caller's read set.
        stale: what was stale and was overruled.
    """

    tool_call: ToolCall
    head: int
    started: bool = False
    changes: tuple[BasisChange, ...] = ()
    read_set: ReadSet | None = None
    stale: tuple[StaleEntry, ...] = ()


class ToolCallPage(NamedTuple):
    """One page of a list; ``position`` is where the next page begins, None at the end."""

    tool_calls: tuple[ToolCall, ...]
    position: str | None
    head: int
    read_set: ReadSet | None


class _Place(NamedTuple):
    """Where a call is: at a key if it was known, else at this number in the commit's mutations."""

    key: str
    number: int
    started: bool

    def at(self, revision: int) -> str:
        return self.key or TOOLS + slot(revision, self.number)

    def pack(self) -> bytes:
        revision, number = (slot_revision(self.key), slot_index(self.key)) if self.key else (0, self.number)
        return _PLACE.pack(revision, number, self.started)

    @classmethod
    def unpack(cls, data: bytes) -> _Place:
        revision, number, started = _PLACE.unpack(data)
        return cls(TOOLS + slot(revision, number) if revision else "", number, bool(started))


class ToolCalls:
    """Starts, reads and lists calls.

    Args:
        scribe: reads and writes their records.
        issue_id: makes an id for a call without one, the same for a retry of the same request.
        around: hears of calls with side effects.
    """

    def __init__(self, scribe: Scribe, issue_id: Callable[[Call], str], around: AroundCall) -> None:
        self._scribe = scribe
        self._issue_id = issue_id
        self._around = around

    async def start(self, call: Call, session_id: str, new: NewToolCall) -> ToolCallReply:
        """Records a call as pending, or a further attempt at one. A known call is returned as it is.

        Known is a call with the same id, name and arguments. Providers of models use an id again for another call; that
        is a new one, and from then on the one that is meant by the id.

        Args:
            call: who starts it.
            session_id: where.
            new: the call.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, CONTENTION, or
                a reason that concerns the caller.
        """
        new.check()
        named = new if new.call_id else new._replace(call_id=self._issue_id(call))
        known = await self._known(session_id, named.call_id)
        if _is_new(known, named):
            effects = named.side_effects
        else:
            effects = known is not None and known.side_effects and known.pending and named.retry
        if effects:
            await self._around.around_call(call, session_id, CheckpointCause.BEFORE_CALL)
        written = await prepared(session_id, lambda: self._start(call, session_id, named))
        place = _Place.unpack(written.reply) if written.value is None else written.value
        key = place.at(written.revision)
        look = await self._scribe.read(Call(call.incarnation), session_id, (key,))
        return ToolCallReply(
            tool_call_at(look, key), look.view.head, place.started, (), written.read_set, written.stale
        )

    async def get(self, call: Call, ticket: Ticket) -> ToolCallReply:
        """Reads a call, and what of its basis has changed by now.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND, or a reason that concerns the caller.
        """
        keys: tuple[str, ...] = (ticket.key,)
        while True:
            look = await self._scribe.read(call, ticket.session_id, keys)
            found = tool_call_at(look, ticket.key)
            basis = found.based_on if found.status in (ToolCallStatus.PENDING, ToolCallStatus.PARKED) else ()
            if all(key in look.entries for key, _ in basis):
                changes = basis_changes(look, basis)
                read_set = recorded(call, look, (ticket.key,))
                return ToolCallReply(found, look.view.head, changes=changes, read_set=read_set)
            # Read together with its basis, at one head.
            keys = (ticket.key, *(key for key, _ in basis))

    async def list(
        self,
        call: Call,
        session_id: str,
        *,
        page_size: int,
        position: str | None,
        reverse: bool,
        status: ToolCallStatus | None,
    ) -> ToolCallPage:
        """Reads one page of calls in the order in which they were started.

        Raises:
            Refusal: SESSION_NOT_FOUND, INVALID_FIELD, or a reason that concerns the caller.
        """
        size = check_page_size(page_size)
        found: list[ToolCall] = []
        cursor = position
        taken = scanned = 0
        read_set: ReadSet | None = None
        more = True
        while more:
            keys = KeyRange(None, cursor) if reverse else KeyRange(cursor, None)
            look = await self._scribe.read(call, session_id, (), (Scan(TOOLS, max(size, _SCAN_STEP), reverse, keys),))
            page = look.scans[0]
            if read_set is None:
                read_set = recorded(call, look, (), ((TOOLS, StampMode.CHANGED, page.stamps.changed),))
            more = page.more
            for entry in page.entries:
                cursor = entry.key
                scanned += 1
                if scanned % _STEP_RECORDS == 0:
                    await asyncio.sleep(0)
                tool_call = decode_tool_call(entry.key, decode_record(entry.data, entry.revision))
                if status is not None and tool_call.status is not status:
                    continue
                found.append(tool_call)
                taken += len(entry.data)
                if len(found) >= size or taken >= PAGE_BYTES_MAX:
                    return ToolCallPage(tuple(found), cursor, look.view.head, read_set)
            if more and scanned >= _SCANNED_MAX:
                return ToolCallPage(tuple(found), cursor, look.view.head, read_set)
        return ToolCallPage(tuple(found), None, look.view.head, read_set)

    async def _known(self, session_id: str, call_id: str) -> ToolCall | None:
        """Returns the call with an id, None if there is none."""
        name = id_key(CALL_IDS, call_id)
        look = await self._scribe.peek(session_id, (name,))
        entry = look.entries[name]
        if entry is None:
            return None
        key = TOOLS + slot(entry.revision, decode_index(entry.data))
        return tool_call_at(await self._scribe.peek(session_id, (key,)), key)

    async def _start(self, call: Call, session_id: str, new: NewToolCall) -> Written[_Place]:
        known = await self._known(session_id, new.call_id)
        based_on: Sequence[str] = new.based_on or tuple(await open_goals(self._scribe, session_id))
        author = call.agent_id
        name = id_key(CALL_IDS, new.call_id)

        def decide(look: Look, draft: Draft) -> _Place:
            entry = look.entries[name]
            place = None if entry is None else TOOLS + slot(entry.revision, decode_index(entry.data))
            if place != (None if known is None else known.key):
                raise Moved
            attempt = ToolCall(
                new.call_id,
                new.name,
                new.arguments,
                author=author,
                turn=decode_turns(look.record(TURNS)).newest_of(author),
                started_ms=look.now_ms,
                side_effects=new.side_effects,
                late_policy=new.late_policy,
                deadline_ms=look.now_ms + new.deadline_ms if new.deadline_ms else 0,
                based_on=basis_of(look, based_on),
            )
            before = None if known is None else tool_call_at(look, known.key)
            if before is not None and not _is_new(before, new):
                return _again(draft, attempt, before, retry=new.retry)
            _check_room(look)
            index = draft.append(
                TOOLS, encode_tool_call(attempt), tool_call_attributes(attempt), entry_id=(CALL_IDS, new.call_id)
            )
            # Never written again, so that its revision tells the order in which calls were started.
            draft.keep(PENDING + new.call_id, encode_index(index))
            started = _Place("", index, started=True)
            draft.reply = started.pack()
            return started

        intent = Intent(
            "start_tool_call",
            new,
            keys=(name,) if known is None else (name, known.key),
            glances=(TURNS, *based_on),
            scans=(Scan(PENDING, PENDING_MAX),),
        )
        return await self._scribe.write(call, session_id, intent, decide)


def _is_new(known: ToolCall | None, new: NewToolCall) -> bool:
    """Tells whether this is another call than the one that is known by its id.

    Raises:
        Refusal: INVALID_FIELD, if that one is still pending.
    """
    if known is None:
        return True
    if (known.name, known.arguments) == (new.name, new.arguments):
        return False
    if known.pending:
        raise invalid(
            "call_id", f"{new.call_id!r} belongs to a pending call of {known.name!r} with another name or arguments"
        )
    return True


def _again(draft: Draft, attempt: ToolCall, before: ToolCall, *, retry: bool) -> _Place:
    """Starts a known call again, if it is pending and that is asked for."""
    if not retry or not before.pending:
        return _Place(before.key, 0, started=False)
    after = msgspec.structs.replace(attempt, side_effects=before.side_effects, attempt=before.attempt + 1)
    draft.put(before.key, encode_tool_call(after), tool_call_attributes(after))
    place = _Place(before.key, 0, started=True)
    draft.reply = place.pack()
    return place


def _check_room(look: Look) -> None:
    """Checks that a session has room for one more pending call.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    held = len(look.scans[0].entries) + 1
    if held > PENDING_MAX:
        raise exhausted("tool_calls", held, PENDING_MAX, "too many pending tool calls in the session")
