"""The atomic step: checks a commit against the accepted state and, if they hold, accepts it.

Nothing here waits, so nothing can come between the checks and the acceptance.
"""

from __future__ import annotations

from noosphere.consistency import (
    Cut,
    Reason,
    Refusal,
    Remembered,
    epoch_of,
    next_revision,
    to_hex,
)

from ...ports.store import (
    CollectionStamps,
    Commit,
    Failure,
    FailureKind,
    KeyCheck,
    Mutation,
    StampMode,
)
from ..keys import above
from .codec import Birth, Cell, CommitItem, Request, shared_never
from .namespace import Namespace, Overlay, Pending, request_key


def judge(
    namespace: Namespace, commit: Commit, epoch: int, now_ms: int, awake_ms: int
) -> Remembered | tuple[Failure, ...]:
    """Runs the checks in the port's order; remembered requests age in time awake.

    Returns:
        The remembered call if this is a replay, else the failures; none if the commit may be accepted.
    """
    state = namespace.overlay or namespace
    if state.deleted:
        return (Failure(FailureKind.DELETED, namespace.ref.name, state.head),)
    if commit.epoch != epoch:
        return (Failure(FailureKind.EPOCH, "", epoch),)
    body = namespace.body
    request = commit.request
    if request is not None and body is not None:
        found = body.requests.find(request.ref, awake_ms)
        if found is not None:
            return found
    for lock, token in commit.fences:
        highest = namespace.fence(lock, True)
        if token < highest:
            return (Failure(FailureKind.FENCE, lock, highest),)
    if request is not None and body is not None:
        try:
            body.requests.check_room(request.ref, awake_ms)
        except Refusal as refusal:
            if refusal.reason is not Reason.LIMIT_EXCEEDED:
                raise
            return (Failure(FailureKind.REQUEST_ROOM, request.ref.client or request.ref.uuid, len(body.requests)),)
    if commit.config_version < state.config_version:
        return (Failure(FailureKind.CONFIG, "", state.config_version),)
    if commit.not_after_ms is not None and now_ms >= commit.not_after_ms:
        return (Failure(FailureKind.NOT_AFTER, "", now_ms),)
    failures = []
    for check in commit.checks:
        if isinstance(check, KeyCheck):
            cell = namespace.cell(check.key, True)
            stored, live = (0, False) if cell is None else (cell.revision, cell.live_until_ms > now_ms)
            if stored != check.revision or live != check.live:
                failures.append(Failure(FailureKind.KEY, check.key, stored))
        else:
            stamps = namespace.stamps(check.collection, True)
            stamp = stamps.members if check.mode is StampMode.MEMBERS else stamps.changed
            if stamp != check.stamp:
                failures.append(Failure(FailureKind.COLLECTION, check.collection, stamp))
    return tuple(failures)


def accept(namespace: Namespace, commit: Commit, epoch: int, now_ms: int, awake_ms: int, size: int) -> Pending:
    """Makes a commit that passed :func:`judge` part of the accepted state."""
    state = namespace.overlay or namespace
    revision = next_revision(state.head, epoch) if commit.mutations else state.head
    floor_context = state.floor_context
    cells = []
    for index, mutation in enumerate(commit.mutations):
        cells.append(_cell(mutation, revision, index))
        if mutation.raise_floor_context > floor_context:
            floor_context = mutation.raise_floor_context
    ref = namespace.ref
    request = None
    if commit.request is not None:
        call = Remembered(revision, commit.request.fingerprint, commit.request.reply, awake_ms)
        request = Request.of(commit.request.ref, call)
    first_of_epoch = bool(cells) and (not state.exists or epoch_of(state.head) < epoch)
    item = CommitItem(
        ref.storage_id,
        revision,
        now_ms,
        tuple(cells),
        commit.config_version if cells else state.config_version,
        floor_context,
        None if state.exists else Birth(*_birth(namespace)),
        Cut(epoch, state.head) if first_of_epoch else None,
        request,
        tuple((fence.lock, fence.token) for fence in commit.fences) if cells else (),
    )
    pending = Pending(namespace, item, size)
    _cover(namespace, item, pending)
    return pending


def _birth(namespace: Namespace) -> tuple[str, int, int]:
    return namespace.ref.name, namespace.ref.generation, namespace.ref.origin


def _cell(mutation: Mutation, revision: int, index: int) -> Cell:
    key = mutation.key
    if mutation.rev_slot:
        key = f"{key}{to_hex(revision)}-{index:04x}"
    return Cell(
        key,
        revision,
        mutation.data,
        shared_never(mutation.live_until_ms),
        shared_never(mutation.due_ms),
        mutation.members,
        mutation.event,
    )


def _cover(namespace: Namespace, item: CommitItem, pending: Pending) -> None:
    overlay = namespace.overlay
    if overlay is None:
        overlay = namespace.overlay = Overlay(namespace, pending)
    overlay.last = pending
    overlay.exists = True
    overlay.head = revision = item.revision
    overlay.config_version = item.config_version
    overlay.floor_context = item.floor_context
    if item.cut is not None:
        overlay.cuts = (*overlay.cuts, item.cut)
    for cell in item.cells:
        overlay.cells[cell.key] = cell
        if cell.event:
            _stamp(namespace, overlay, cell, revision)
    for lock, token in item.fences:
        overlay.fences[lock] = token
    if item.request is not None and namespace.body is not None:
        overlay.requests.add(request_key(item.request.ref))
        namespace.body.requests.remember(item.request.ref, item.request.call)


def _stamp(namespace: Namespace, overlay: Overlay, cell: Cell, revision: int) -> None:
    for collection in above(cell.key):
        members = revision if cell.members else namespace.stamps(collection, True).members
        overlay.stamps[collection] = CollectionStamps(revision, members)
