"""Finishing calls of tools: exactly once, and as the call's policy says if its basis has changed meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from noosphere.consistency import Encoding, ReadSet, Reason, Refusal, StaleEntry, invalid

from ..memory.admission import require_writer
from ..memory.types import Call
from ..ports.models import Tokenizers
from .appending import append, turn_keys
from .arrival import Arrival, Arrivals
from .basis import basis_changes
from .codec import decode_index, decode_message, decode_turns
from .draft import Draft, Look
from .keys import MESSAGES, PENDING, TOOLS, TURNS, KeyRange, slot
from .raw import AT_ONCE_BYTES_MAX, PIECE_BYTES, RawResults, Upload, check_upload, keep_pieces, upload_key
from .saving import Moved, prepared
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe, Written
from .tickets import Ticket
from .toolcall import (
    LatePolicy,
    ToolCall,
    ToolCallStatus,
    check_attempt,
    encode_tool_call,
    tool_call_at,
    tool_call_attributes,
)
from .toolcalls import AroundCall, ToolCallReply
from .types import CheckpointCause, Message, Part, Role, SessionSettings

FAILED_BY_CLOSING = "the session was closed before a result came"

_CALLS_A_STEP = 64
_BYTES_A_STEP = 384 * 1024


class Outcome(NamedTuple):
    """How a tool ended.

    Attributes:
        data: the result, or the last part of one; of a failure why, as text.
        encoding: how to read the result.
        failed: whether it is a failure.
        upload_id: what was uploaded of the result before; empty if nothing was.
        keep: paths of the fields to keep of a JSON result that is too large.
    """

    data: bytes
    encoding: Encoding = Encoding.JSON
    failed: bool = False
    upload_id: str = ""
    keep: tuple[str, ...] = ()


class FinishReply(NamedTuple):
    """A call that was finished.

    Attributes:
        tool_call: the call as it stands now.
        message: the message that was appended, if one was asked for.
        replayed: whether an earlier, remembered execution is reported.
        head: the namespace's newest visible revision.
        read_set: the caller's read set, advanced.
        stale: what was stale and was overruled.
    """

    tool_call: ToolCall
    message: Message | None
    replayed: bool
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class _Ready(NamedTuple):
    """A result that is ready to be written.

    Attributes:
        tool_call: the call as it was when the result was taken in.
        arrival: what enters working memory.
        raw: the name under which the whole result is kept; empty if it need not be.
        upload_id: the upload that the commit makes permanent; empty for none.
        rest: what the commit itself has to write of it.
        pieces: how many pieces lie there already.
    """

    tool_call: ToolCall
    arrival: Arrival
    raw: str = ""
    upload_id: str = ""
    rest: bytes = b""
    pieces: int = 0


class Finisher:
    """Finishes and reviews calls, and fails those that nobody will finish any more.

    Args:
        scribe: reads and writes their records.
        arrivals: takes results in.
        raw: keeps results as they arrived.
        tokenizers: knows the vocabularies.
        around: hears of calls with side effects.
    """

    def __init__(
        self, scribe: Scribe, arrivals: Arrivals, raw: RawResults, tokenizers: Tokenizers, around: AroundCall
    ) -> None:
        self._scribe = scribe
        self._arrivals = arrivals
        self._raw = raw
        self._tokenizers = tokenizers
        self._around = around

    async def finish(
        self, call: Call, ticket: Ticket, outcome: Outcome, *, append_message: bool = False
    ) -> FinishReply:
        """Finishes a pending call exactly once.

        Args:
            call: who brings the result; need not be who started the call.
            ticket: which attempt has ended.
            outcome: how.
            append_message: also append the result, or the failure, to the transcript in the same commit. A parked
                result is appended when its review applies it, a rejected one never.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, ENTRY_NOT_FOUND, TOOL_RESULT_SUPERSEDED, INVALID_FIELD,
                VALUE_TOO_LARGE, CONTENTION, or a reason that concerns the caller.
        """
        require_writer(call)
        self._arrivals.check_keep(outcome.keep)
        if outcome.failed and not outcome.data:
            raise invalid("failure", "must not be empty")
        written = await prepared(
            ticket.session_id, lambda: self._finish(call, ticket, outcome, append_message=append_message)
        )
        message_key = MESSAGES + slot(written.revision, int.from_bytes(written.reply, "big")) if written.reply else ""
        keys = (ticket.key, message_key) if message_key else (ticket.key,)
        reader = Call(call.incarnation)
        found = tool_call_at(await self._scribe.read(reader, ticket.session_id, keys), ticket.key)
        if found.side_effects:
            # Also for a replay: the first execution may have ended in between.
            await self._around.around_call(call, ticket.session_id, CheckpointCause.AFTER_CALL)
        look = await self._scribe.read(reader, ticket.session_id, keys)
        record = look.record(message_key) if message_key else None
        return FinishReply(
            found,
            None if record is None else decode_message(message_key, record),
            written.replayed,
            look.view.head,
            written.read_set,
            written.stale,
        )

    async def review(self, call: Call, ticket: Ticket, *, apply: bool) -> ToolCallReply:
        """Decides about a parked result.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, ENTRY_NOT_FOUND, NOT_PARKED, or a reason that concerns the
                caller.
        """

        def decide(look: Look, draft: Draft) -> None:
            before = tool_call_at(look, ticket.key)
            if before.status is not ToolCallStatus.PARKED:
                raise Refusal(Reason.NOT_PARKED, f"ticket: tool call {before.call_id!r} is {before.status}, not parked")
            status = ToolCallStatus.DONE if apply else ToolCallStatus.REJECTED
            after = msgspec.structs.replace(before, status=status, finished_ms=look.now_ms)
            draft.put(ticket.key, encode_tool_call(after), tool_call_attributes(after))
            if apply and after.append_message:
                _append(look, draft, after, call.agent_id)

        _, glances = turn_keys(())
        intent = Intent("review_tool_call", (ticket.key, apply), keys=(ticket.key,), glances=glances)
        written = await self._scribe.write(call, ticket.session_id, intent, decide)
        look = await self._scribe.read(Call(call.incarnation), ticket.session_id, (ticket.key,))
        found = tool_call_at(look, ticket.key)
        return ToolCallReply(found, look.view.head, read_set=written.read_set, stale=written.stale)

    async def upload(self, call: Call, ticket: Ticket, parts: AsyncIterator[bytes]) -> Upload:
        """Stores a large result, or the beginning of one; see :meth:`RawResults.upload`."""
        return await self._raw.upload(call, ticket, parts)

    async def read_raw(self, call: Call, ticket: Ticket) -> AsyncIterator[bytes]:
        """Yields a result as it arrived, in pieces of at most 48 KiB; nothing while there is none.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND, or a reason that concerns the caller.
        """
        found = tool_call_at(await self._scribe.read(call, ticket.session_id, (ticket.key,)), ticket.key)
        if found.raw:
            async for piece in self._raw.read(ticket.session_id, found.raw):
                yield piece
            return
        data = found.content.encode() if found.raw_bytes else b""
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]

    async def fail_pending(self, session_id: str) -> int:
        """Fails every pending call of a session, in as many commits as it takes; returns how many.

        Raises:
            Refusal: SESSION_NOT_FOUND, CONTENTION.
        """
        info = (await self._scribe.peek(session_id)).info
        vocabulary = (info.settings if info else SessionSettings()).tokenizer
        tokens = self._tokenizers.named(vocabulary).count(FAILED_BY_CLOSING)
        ref = await self._scribe.living(session_id)
        failed = 0
        cursor: str | None = None
        while True:
            page = await self._scribe.scan(
                ref, Scan(PENDING, _CALLS_A_STEP, keys=KeyRange(cursor, None)), accepted=True
            )
            if not page.entries:
                return failed
            calls = {entry.key: TOOLS + slot(entry.revision, decode_index(entry.data)) for entry in page.entries}
            cursor, count = await self._fail(session_id, calls, tokens)
            failed += count

    async def _fail(self, session_id: str, calls: dict[str, str], tokens: int) -> tuple[str, int]:
        """Fails some of the first of the calls; returns the last one dealt with and how many there were."""

        def decide(look: Look, draft: Draft) -> tuple[str, int]:
            size = count = 0
            done = ""
            for pending, key in calls.items():
                entry = look.entries[key]
                size += 0 if entry is None else len(entry.data)
                if done and size > _BYTES_A_STEP:
                    break
                done = pending
                if look.internal(pending) is None:
                    continue
                after = msgspec.structs.replace(
                    tool_call_at(look, key),
                    status=ToolCallStatus.FAILED,
                    finished_ms=look.now_ms,
                    content=FAILED_BY_CLOSING,
                    tokens=tokens,
                )
                draft.put(key, encode_tool_call(after), tool_call_attributes(after))
                draft.forget(pending)
                count += 1
            return done, count

        intent = Intent("fail_pending", keys=(*calls, *calls.values()), need=Need.ANY, background=True)
        written = await self._scribe.write(BACKGROUND, session_id, intent, decide)
        assert written.value is not None, "without a request id nothing is replayed"
        return written.value

    async def _finish(self, call: Call, ticket: Ticket, outcome: Outcome, *, append_message: bool) -> Written[None]:
        ready = await self._prepare(call, ticket, outcome)

        def decide(look: Look, draft: Draft) -> None:
            before = tool_call_at(look, ticket.key)
            check_attempt(before, ticket.attempt)
            if ready is None:
                raise Moved
            if ready.upload_id:
                check_upload(look, ready.upload_id, ticket)
            after = _finished(look, draft, before, ready.arrival, failed=outcome.failed)
            after = msgspec.structs.replace(after, raw=ready.raw, append_message=append_message)
            draft.put(ticket.key, encode_tool_call(after), tool_call_attributes(after))
            draft.forget(PENDING + before.call_id)
            if ready.raw:
                keep_pieces(draft, ready.raw, ready.rest, ready.pieces)
                if ready.upload_id:
                    draft.forget(upload_key(ready.upload_id))
            if append_message and after.status in (ToolCallStatus.DONE, ToolCallStatus.FAILED):
                draft.reply = _append(look, draft, after, call.agent_id).to_bytes(2, "big")

        keys: tuple[str, ...] = (ticket.key,)
        if ready is not None:
            keys += (PENDING + ready.tool_call.call_id, *(key for key, _ in ready.tool_call.based_on))
            keys += (upload_key(ready.upload_id),) if ready.upload_id else ()
        digest = hashlib.blake2b(outcome.data, digest_size=16).digest()
        meaning = (str(ticket), outcome._replace(data=digest), append_message)
        intent = Intent("finish_tool_call", meaning, keys=keys, glances=(TURNS,))
        return await self._scribe.write(call, ticket.session_id, intent, decide)

    async def _prepare(self, call: Call, ticket: Ticket, outcome: Outcome) -> _Ready | None:
        """Takes a result in; None if it cannot be applied as things stand."""
        look = await self._scribe.peek(ticket.session_id, (ticket.key,))
        if look.record(ticket.key) is None:
            return None
        found = tool_call_at(look, ticket.key)
        if not found.pending or found.attempt != ticket.attempt:
            return None
        data, upload_id, pieces = outcome.data, outcome.upload_id, 0
        if upload_id:
            before, pieces = await self._raw.uploaded(ticket, upload_id)
            data = before + data
        arrival = await self._arrivals.take_in(ticket.session_id, found, data, outcome.encoding, outcome.keep)
        if arrival.as_arrived:
            return _Ready(found, arrival, upload_id=upload_id)
        rest = outcome.data
        if len(rest) > AT_ONCE_BYTES_MAX:
            who = Call(call.incarnation, fences=call.fences)
            if upload_id:
                await self._raw.add(who, ticket, upload_id, rest, pieces)
            else:
                upload_id = (await self._raw.upload(who, ticket, _once(rest))).upload_id
            rest = b""
        return _Ready(found, arrival, upload_id or self._raw.new_id(), upload_id, rest, pieces)


def _finished(look: Look, draft: Draft, before: ToolCall, arrival: Arrival, *, failed: bool) -> ToolCall:
    """Returns a pending call with its result, as its policy has it."""
    changes = basis_changes(look, before.based_on)
    overdue = 0 < before.deadline_ms <= look.now_ms
    if before.deadline_ms and not overdue:
        # A commit at the deadline would be decided otherwise.
        draft.not_after_ms = min(draft.not_after_ms, before.deadline_ms)
    late = bool(changes) or overdue
    if before.late_policy is LatePolicy.APPLY:
        changes, overdue = (), False
    status = ToolCallStatus.DONE
    if failed:
        status = ToolCallStatus.FAILED
    elif late and before.late_policy is LatePolicy.PARK:
        status = ToolCallStatus.PARKED
    elif late and before.late_policy is LatePolicy.REJECT:
        status = ToolCallStatus.REJECTED
    return msgspec.structs.replace(
        before,
        status=status,
        finished_ms=look.now_ms,
        changes=changes,
        overdue=overdue,
        content=arrival.content,
        compaction=arrival.compaction,
        tokens=arrival.tokens,
        raw_bytes=arrival.raw_bytes,
    )


def _append(look: Look, draft: Draft, tool_call: ToolCall, author: str) -> int:
    """Appends a call's result to the transcript; returns the index for ``keys.slot``."""
    turn = tool_call.turn if decode_turns(look.record(TURNS)).is_open(tool_call.turn) else 0
    message = Message(
        "",
        Role.TOOL,
        (Part(tool_call.content),) if tool_call.content else (),
        tool_call_id=tool_call.call_id,
        name=tool_call.name,
        turn=turn,
        lateness=tool_call.lateness,
    )
    return append(look, draft, (message,), author, (tool_call.tokens,))[0].number


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
