"""What is settled before a write is decided: who calls, what it presents, and what a failed commit means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from noosphere.consistency import (
    NamespacePolicy,
    Precondition,
    Put,
    Reason,
    Refusal,
    Remembered,
    admit,
    check_item_size,
    check_key,
    check_replay,
    exhausted,
    invalid,
    too_large,
)
from noosphere.consistency import merge as merging
from noosphere.consistency.limits import (
    FENCES_MAX,
    LOCK_NAME_BYTES_MAX,
    REQUESTS_PER_CLIENT_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_PARTS_MAX,
    UUID_REQUESTS_MAX,
)

from ..ports.grants import Verb
from ..ports.store import Commit, CommitResult, Failed, FailureKind, Fence, NamespaceRef, ReadResult, Replayed
from ..security import Unsettled
from .access import is_private_to
from .core import Core, located, state_of
from .types import AppendOp, Call, Compare, DeleteOp, Operation, PutOp, ResolveOp, WriteOp

INCARNATION_LOCK = "\0incarnation"
"""The fence that keeps an agent's ended incarnations out of its private namespace; no user's lock has this name."""


def require_writer(call: Call) -> None:
    """Checks that a mutating call says who calls, and its fences.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if call.incarnation is None:
        raise invalid("call.actor", "is required in a mutating call; OpenAgent returns it")
    if len(call.fences) > FENCES_MAX:
        raise too_large("call.fences", len(call.fences), FENCES_MAX, "entries")
    for fence in call.fences:
        if not fence.lock or fence.lock.startswith("\0"):
            raise invalid("call.fences.lock", f"{fence.lock!r} is not a lock's name")
        if (size := len(fence.lock.encode())) > LOCK_NAME_BYTES_MAX:
            raise too_large("call.fences.lock", size, LOCK_NAME_BYTES_MAX)


def fences_of(call: Call, namespace: str) -> tuple[Fence, ...]:
    """Returns the fences under which a write is made, in a private namespace the incarnation's too."""
    if call.incarnation is not None and is_private_to(call, namespace):
        return (*call.fences, Fence(INCARNATION_LOCK, call.incarnation.number))
    return call.fences


def check_op(op: WriteOp) -> None:
    """Checks the form of one operation.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    check_key(op.key)
    if isinstance(op, PutOp):
        op.put.precondition.check()
    elif isinstance(op, DeleteOp):
        op.precondition.check()
    elif isinstance(op, ResolveOp):
        op.seen.check()
    elif isinstance(op.op, merging.SetUpdate) and op.op.context is not None:
        op.op.context.check("merge.set_update.context")


def check_transaction(compares: tuple[Compare, ...], ops: tuple[Operation, ...]) -> None:
    """Checks a transaction's size and that no key is written twice.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    parts = len(compares) + len(ops)
    if not ops:
        raise invalid("operations", "must not be empty")
    if parts > TRANSACTION_PARTS_MAX:
        raise too_large("operations", parts, TRANSACTION_PARTS_MAX, "compares and operations")
    size = sum(op.size if isinstance(op, AppendOp) else len(op.key.encode()) + op_bytes(op) for op in ops)
    if size > TRANSACTION_BYTES_MAX:
        raise too_large("operations", size, TRANSACTION_BYTES_MAX)
    seen: set[str] = set()
    for index, op in enumerate(ops):
        if isinstance(op, AppendOp):
            continue
        if op.key in seen:
            raise invalid(f"operations[{index}].key", f"{op.key!r} is written twice; one operation per key")
        seen.add(op.key)
    for compare in compares:
        check_key(compare.key, "compares.key")


def verbs_of(ops: Iterable[Operation]) -> frozenset[Verb]:
    """Returns what the caller of a write must be permitted to do."""
    return frozenset(map(_verb_of, ops))


def _verb_of(op: Operation) -> Verb:
    match op:
        case DeleteOp():
            return Verb.DELETE
        case ResolveOp():
            return Verb.RESOLVE
        case _:
            return Verb.WRITE


def op_bytes(op: WriteOp) -> int:
    """Returns the bytes of an operation's values."""
    if isinstance(op, PutOp):
        return len(op.put.data)
    if isinstance(op, DeleteOp):
        return 0
    if isinstance(op, ResolveOp):
        return len(op.resolution.data) if isinstance(op.resolution, Put) else 0
    match op.op:
        case merging.SetUpdate(add, remove):
            return sum(len(text.encode()) for text in (*add, *remove))
        case merging.MapUpdate(fields, remove):
            return sum(len(n.encode()) + len(t.encode()) for n, t in fields.items()) + sum(len(n) for n in remove)
        case merging.LogAppend(entries):
            return sum(len(text.encode()) for text in entries)
        case merging.Extreme(value):
            return len(value.encode())
        case merging.CounterAdd():
            return 8


def presented(ops: Iterable[WriteOp], compares: Iterable[Compare]) -> Iterator[int]:
    """Yields every revision that a write presents."""
    for compare in compares:
        yield compare.expected_version
    for op in ops:
        if isinstance(op, PutOp):
            yield from _of_precondition(op.put.precondition)
        elif isinstance(op, DeleteOp):
            yield from _of_precondition(op.precondition)
        elif isinstance(op, ResolveOp):
            yield from op.seen.revisions
        elif isinstance(op.op, merging.SetUpdate) and op.op.context is not None:
            yield from op.op.context.revisions


def _of_precondition(when: Precondition) -> Iterator[int]:
    if when.expected_version is not None:
        yield when.expected_version
    if when.context is not None:
        yield from when.context.revisions


def admit_write(
    core: Core,
    call: Call,
    namespace: str,
    read: ReadResult,
    meaning: bytes,
    fences: tuple[Fence, ...],
    revisions: Iterable[int],
    limits: Iterable[Callable[[], Refusal | None]],
    verbs: Iterable[Verb] = (Verb.WRITE,),
) -> Remembered | None:
    """Runs the checks that come before any record is looked at; see ``noosphere.consistency.order``.

    Args:
        core: the ports.
        call: who calls.
        namespace: where.
        read: what was read for the write.
        meaning: the fingerprint of the request.
        fences: the fences of the write.
        revisions: what the call presents.
        limits: the checks that come last.
        verbs: what the caller must be permitted to do.

    Returns:
        The remembered call if this is a replay.

    Raises:
        Refusal: the first check that failed.
    """
    highest = dict(read.fences)
    stale = next((f.lock for f in fences if f.token < highest.get(f.lock, 0)), None)
    current = core.renew(call) and stale != INCARNATION_LOCK
    remembered = read.remembered
    if not current and call.request is not None and not call.request.uuid:
        # Dropped with its incarnation, even where a restart has brought it back.
        remembered = None
    return admit(
        state_of(namespace, read.view),
        permitted=all(core.access.may(call, namespace, verb) for verb in verbs),
        remembered=remembered,
        fingerprint=meaning,
        presented=revisions,
        incarnation_current=current,
        stale_fence=None if stale == INCARNATION_LOCK else stale,
        limits=limits,
    )


def size_limits(ops: Iterable[WriteOp], policy: NamespacePolicy) -> Iterator[Callable[[], Refusal | None]]:
    """Yields the checks of the values' sizes."""
    for op in ops:
        put = op.put if isinstance(op, PutOp) else op.resolution if isinstance(op, ResolveOp) else None
        if isinstance(put, Put):
            yield lambda put=put: check_item_size(put, policy.item_bytes_max)  # type: ignore[misc] # bound per step


async def contended(core: Core, ref: NamespaceRef, message: str) -> NoReturn:
    """Raises the refusal of a call that somebody else was always faster than."""
    await core.store.settle(ref)
    head = (await core.store.read(ref, ())).view.head
    await refuse(core, ref, Refusal(Reason.CONTENTION, message), head)


async def refuse(core: Core, ref: NamespaceRef, refusal: Refusal, head: int) -> NoReturn:
    """Raises a refusal once everything that it depends on is synced, and counts it."""
    if isinstance(refusal, Unsettled):
        # Nothing is refused yet.
        raise located(refusal, ref.name, head)
    await core.store.settle(ref)
    core.note_refusal(ref.name, refusal)
    raise located(refusal, ref.name, head)


async def carry_out(core: Core, ref: NamespaceRef, commit: Commit, head: int) -> CommitResult:
    """Commits; a refusal by the store itself gets the place where it happened.

    Raises:
        Refusal: ENGINE_UNAVAILABLE, or REQUEST_ID_REUSED for a late copy of an answered call, another call under the
            same id that was faster, or a call whose answer was erased.
    """
    try:
        result = await core.store.commit(ref, commit)
        if isinstance(result, Replayed) and commit.request is not None:
            check_replay(result.remembered, commit.request.fingerprint)
        return result
    except Refusal as refusal:
        core.note_refusal(ref.name, refusal)
        raise located(refusal, ref.name, head) from None


async def after_failure(core: Core, ref: NamespaceRef, failed: Failed, call: Call) -> NamespaceRef:
    """Prepares the next attempt after a commit that was not made; returns the generation to use.

    Raises:
        Refusal: what no further attempt can mend.
    """
    for failure in failed.failures:
        match failure.kind:
            case FailureKind.DELETED:
                # Looked up anew by the next attempt, which finds the tombstone and says so.
                return await core.relocate(ref) or ref
            case FailureKind.CONFIG:
                await core.coordinator.refresh()
            case FailureKind.FENCE if failure.name == INCARNATION_LOCK:
                raise Refusal(Reason.STALE_INCARNATION, f"{call.actor} was followed by a later incarnation")
            case FailureKind.FENCE:
                raise Refusal(Reason.STALE_FENCE, f"lock {failure.name!r}: a later holder has already written")
            case FailureKind.REQUEST_ROOM if call.request is not None and call.request.uuid:
                raise exhausted("request_id.uuid", failure.actual, UUID_REQUESTS_MAX, "too many requests in 2 minutes")
            case FailureKind.REQUEST_ROOM:
                what = "too many unanswered requests"
                raise exhausted("request_id.sequence", failure.actual, REQUESTS_PER_CLIENT_MAX, what)
            case _:
                continue
    return ref
