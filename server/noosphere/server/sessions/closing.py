"""Closing sessions: from then on nothing can be written, and then items and pending calls are dealt with.

The first commit closes the session and says what is to become of its items; what does not fit in it follows in
further ones, which anybody may carry on: the same call again, or upkeep after a crash. At no time has an item left
without its candidate. An ephemeral session is dropped instead, with everything in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from noosphere.consistency import REVISION_MAX, ReadSet, Reason, Refusal, StaleEntry, StampMode

from ..memory.admission import require_writer
from ..memory.cache_drops import CacheDrops
from ..memory.codec import decode_record, forget_decoded
from ..memory.types import Call
from ..ports.store import Dropped
from .children import check_childless
from .codec import decode_turns, encode
from .draft import Draft, Look
from .keys import INFO, PENDING, TOOLS, TURNS, is_ephemeral, namespace_of, version_key
from .outbox import archive
from .saving import NEWEST, Ground, has_changed, prepared, save, stand, survey
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe, Written, not_found
from .sessions import SessionBook
from .types import (
    CheckpointCause,
    CheckpointPolicy,
    Closing,
    ItemDisposition,
    Session,
    SessionInfo,
    SessionStatus,
    Turns,
)

CLOSED = "session_closed"
"""The reason of candidates that closing made."""

_ITEMS_A_STEP = 128
_BYTES_A_STEP = 192 * 1024
"""An item that is archived is written three times at most: its candidate, its tombstone, a copy for a checkpoint."""

NEVER_COPIED = REVISION_MAX
_STEPS_MAX = 1_000
_PENDING_SHOWN_MAX = 1_024


class PendingCalls(Protocol):
    """Ends the tool calls that are pending in a session that was closed."""

    async def fail_pending(self, session_id: str) -> int:
        """Fails every pending call, in as many commits as it takes; returns how many.

        Raises:
            Refusal: SESSION_NOT_FOUND, CONTENTION.
        """
        ...


class CloseReply(NamedTuple):
    """A closed session and what its closing did."""

    session: Session
    closing: Closing
    head: int
    read_set: ReadSet | None = None
    stale: tuple[StaleEntry, ...] = ()


class Closer:
    """Closes sessions.

    Args:
        scribe: reads and writes their records.
        book: reads the session as it is then.
        pending_calls: ends calls; None if there are no tool calls.
        forget: each is told the id of an ephemeral session that was dropped, to forget what it holds of it.
        cache_drops: has other processes hold nothing of it either; None if there are none.
    """

    def __init__(
        self,
        scribe: Scribe,
        book: SessionBook,
        pending_calls: PendingCalls | None = None,
        forget: Sequence[Callable[[str], None]] = (),
        cache_drops: CacheDrops | None = None,
    ) -> None:
        self._scribe = scribe
        self._book = book
        self._pending_calls = pending_calls
        self._forget = forget
        self._cache_drops = cache_drops

    async def close(
        self, call: Call, session_id: str, *, items: ItemDisposition, refuse_pending: bool, background: bool = False
    ) -> CloseReply:
        """Closes a session; closing it again carries on what was begun, as it was begun.

        Args:
            call: who closes it.
            session_id: which.
            items: what becomes of its items.
            refuse_pending: whether to refuse if tool calls are pending; otherwise they fail.
            background: whether the server closes it by itself.

        Raises:
            Refusal: SESSION_NOT_FOUND, CALLS_PENDING, CONTENTION, CHILDREN_OPEN (an ephemeral one with forks), or a
                reason that concerns the caller.
        """
        if is_ephemeral(session_id):
            return await self._drop(call, session_id, refuse_pending=refuse_pending, background=background)
        written = await prepared(
            session_id, lambda: self._begin(call, session_id, items, refuse_pending, background=background)
        )
        closing = await self.carry_on(session_id)
        reply = await self._book.get(Call(), session_id)
        return CloseReply(reply.session, closing, reply.head, written.read_set, written.stale)

    async def carry_on(self, session_id: str) -> Closing:
        """Carries out what is left to be done of a closing that was begun.

        Raises:
            Refusal: SESSION_NOT_FOUND, CONTENTION.
        """
        info = (await self._scribe.peek(session_id)).info
        if info is not None and info.closing is not None and not info.closing.done and self._pending_calls is not None:
            failed = await self._pending_calls.fail_pending(session_id)
            if failed:
                await self._step(session_id, failed)
        for _ in range(_STEPS_MAX):
            closing = await self._step(session_id)
            if closing.done:
                return closing
        raise Refusal(Reason.CONTENTION, f"session {session_id!r} could not be closed in {_STEPS_MAX} commits")

    async def _begin(
        self, call: Call, session_id: str, items: ItemDisposition, refuse_pending: bool, *, background: bool
    ) -> Written[None]:
        ground = await survey(self._scribe, session_id)

        def decide(look: Look, draft: Draft) -> None:
            if look.session.status is SessionStatus.CLOSED:
                return
            if refuse_pending:
                check_none_pending(look)
            copied_up_to = _save(look, draft, ground) if items is not ItemDisposition.DROP else NEVER_COPIED
            turns = decode_turns(look.record(TURNS))
            if turns.open:
                draft.put(TURNS, encode(Turns(turns.turn)))
            info = msgspec.structs.replace(
                look.session, status=SessionStatus.CLOSED, closed_ms=look.now_ms, closing=Closing(items)
            )
            if not look.scans[2].entries:
                info = _take(look, draft, info, copied_up_to)
            draft.put(INFO, encode(info))

        intent = Intent(
            "close",
            (items.value, refuse_pending),
            keys=ground.keys,
            glances=ground.glances,
            scans=(*NEWEST, *_CALLS),
            need=Need.ANY,
            items=True,
            background=background,
        )
        return await self._scribe.write(call, session_id, intent, decide)

    async def _step(self, session_id: str, failed_calls: int = 0) -> Closing:
        """Deals with some more items; returns how far the closing has come."""

        def decide(look: Look, draft: Draft) -> Closing:
            info = look.session
            closing = info.closing
            assert closing is not None, "only what is closed is carried on"
            if closing.done:
                return closing
            counted = msgspec.structs.replace(closing, failed_calls=closing.failed_calls + failed_calls)
            after = _take(look, draft, msgspec.structs.replace(info, closing=counted))
            draft.put(INFO, encode(after))
            assert after.closing is not None
            return after.closing

        intent = Intent("carry_on_closing", glances=(TURNS,), need=Need.ANY, items=True, background=True)
        written = await self._scribe.write(BACKGROUND, session_id, intent, decide)
        assert written.value is not None, "without a request id nothing is replayed"
        return written.value

    async def _drop(self, call: Call, session_id: str, *, refuse_pending: bool, background: bool) -> CloseReply:
        """Drops an ephemeral session. Afterwards even the process holds nothing of it, and soon no other."""
        core = self._scribe.core
        if not background:
            require_writer(call)
            core.admit_reader(call, namespace_of(session_id))
        ref = await self._scribe.living(session_id)
        while True:
            look = await self._scribe.peek(session_id, (TURNS,))
            if look.view.deleted:
                break
            if look.info is None:
                raise not_found(session_id)
            if refuse_pending:
                pending = await self._scribe.scan(ref, Scan(PENDING, _PENDING_SHOWN_MAX), accepted=True)
                check_none_pending(look._replace(scans=(pending,)))
            await check_childless(self._scribe, ref, look)
            if isinstance(await core.store.drop(ref, look.view.head), Dropped):
                break
        forget_decoded()
        for forget in self._forget:
            forget(session_id)
        if self._cache_drops is not None:
            await self._cache_drops.tell()
        info = SessionInfo("", 0, status=SessionStatus.CLOSED, ephemeral=True)
        closing = Closing(ItemDisposition.DROP, done=True)
        return CloseReply(Session(session_id, info, "", {}, Turns(), ""), closing, look.view.head)


_CALLS = (
    Scan(PENDING, _PENDING_SHOWN_MAX),
    # A call that begins meanwhile appears here, in a collection whose changes are noticed.
    Scan(TOOLS, 1, guard=StampMode.MEMBERS),
)


def check_none_pending(look: Look) -> None:
    """Checks that no tool call is pending; the ranges that were read must hold them.

    Raises:
        Refusal: CALLS_PENDING.
    """
    pending = [entry.key for scan in look.scans for entry in scan.entries if entry.key.startswith(PENDING)]
    if pending:
        first = pending[0][len(PENDING) :]
        raise Refusal(
            Reason.CALLS_PENDING,
            f"{len(pending)} tool calls of session {look.session_id!r} have not finished, e.g. {first!r}",
        )


def _save(look: Look, draft: Draft, ground: Ground) -> int:
    """Makes the last checkpoint, if the policy allows; returns the revision above which it has no copies yet."""
    standing = stand(look, ground)
    manual = look.session.settings.checkpoint_policy is CheckpointPolicy.MANUAL
    if manual or not has_changed(ground, standing, look.session.branch):
        return NEVER_COPIED
    save(look, draft, ground, standing, CheckpointCause.CLOSE)
    return ground.savepoints.at


def _take(look: Look, draft: Draft, info: SessionInfo, copied_up_to: int = NEVER_COPIED) -> SessionInfo:
    """Deals with as many items as one commit holds; returns what is to be remembered of that.

    Versions above ``copied_up_to`` belong to a checkpoint that this very commit makes, of which those who keep copies
    know nothing yet.
    """
    closing = info.closing
    assert closing is not None
    archived, dropped = closing.archived, closing.dropped
    left = list(look.items) if closing.items is not ItemDisposition.KEEP else []
    turn = decode_turns(look.record(TURNS)).turn
    size = 0
    for count, entry in enumerate(left):
        size += len(entry.data)
        if count and (count >= _ITEMS_A_STEP or size > _BYTES_A_STEP):
            break
        if entry.revision > copied_up_to:
            draft.keep(version_key(entry.key, entry.revision), entry.data)
        if closing.items is ItemDisposition.ARCHIVE:
            record = decode_record(entry.data, entry.revision)
            archive(draft, entry.key, record, look.now_ms, reason=CLOSED, turn=turn)
            archived += 1
        else:
            draft.remove(entry.key)
            dropped += 1
    done = archived + dropped - closing.archived - closing.dropped == len(left)
    return msgspec.structs.replace(
        info, closing=msgspec.structs.replace(closing, archived=archived, dropped=dropped, done=done)
    )
