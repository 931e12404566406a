"""What a write does: the table of put, delete and merge, and what expiry and reaping do.

Every function is pure. It gets the record as stored, the operation and the circumstances, and returns
a :class:`Decision` for one commit, or raises :class:`Refusal`. Revision 0 in the result stands for
the commit that will carry it out.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from . import merge as merging
from .clock import VersionClock
from .context import CausalContext
from .errors import ConflictInfo, Dot, Reason, Refusal, invalid, too_large
from .limits import MERGED_REPLY_BYTES_MAX, SIBLINGS_BYTES_MAX, SIBLINGS_MAX
from .merge import MergeType
from .policy import ConflictPolicy
from .record import Encoding, Record, Scalar, Sibling
from .revision import NEVER_MS


class ChangeKind(IntEnum):
    """What a change did to a key, as watchers see it."""

    PUT = 1
    DELETE = 2
    EXPIRE = 3
    MERGE = 4
    CLAIM = 5
    RENEW = 6
    RELEASE = 7
    COMPLETE = 8


class Precondition(NamedTuple):
    """What must hold for a put or delete; all that is given must hold."""

    expected_version: int | None = None
    context: CausalContext | None = None
    blind: bool = False

    def check(self, field: str = "precondition") -> None:
        """Checks bounds and contradictions.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        if self.blind and (self.expected_version is not None or self.context is not None):
            raise invalid(f"{field}.blind", "a blind write cannot have an expected version or a context")
        if self.context is not None:
            self.context.check(f"{field}.context")


UNCONDITIONAL = Precondition()
_NOTHING_SEEN = CausalContext()


class Put(NamedTuple):
    """A value to write. At most one of ``ttl_ms`` and ``expires_at_ms`` is given."""

    data: bytes
    encoding: Encoding = Encoding.JSON
    attributes: tuple[tuple[str, Scalar], ...] = ()
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    precondition: Precondition = UNCONDITIONAL


class Circumstances(NamedTuple):
    """What a decision depends on besides record and operation.

    Attributes:
        now_ms: store time at which the record was read.
        actor: the writer, as ``agent#incarnation``.
        policy: the conflict policy for the key.
        private: whether the namespace is the writer's own, where the last writer wins.
        floor_context: contexts below it cannot judge an absent key.
        item_bytes_max: limit for a value.
    """

    now_ms: int
    actor: str
    policy: ConflictPolicy
    private: bool
    floor_context: int
    item_bytes_max: int


class Event(NamedTuple):
    """One entry of a commit for watchers."""

    kind: ChangeKind
    actor: str
    overwritten: tuple[Dot, ...] = ()


class Decision(NamedTuple):
    """One key's part of a commit.

    Attributes:
        record: the new record, or None to remove it (reaping only).
        members: whether the key came to life or ceased to live.
        events: what watchers see, in order; empty for reaping.
        overwritten: values replaced unseen.
        concurrent_delete: an unseen delete was undone by this value (SIBLINGS).
        base: the context that was sent, for the acknowledgement.
        sole: whether the writer now knows everything that is live.
        live: whether the commit's dot is a live value all of which the writer knows: neither a delete
            nor a merge whose result it is not shown.
        merged: a merge's result as readers see it, if it is small enough for the reply.
        trimmed: entries ever dropped from a log.
        raise_floor_context: contexts below this can no longer judge the key (reaping only).
        noop: nothing has to change.
        conflict_anew: siblings that the record is still queued for have ended, so if there are several values now,
            this commit has made a conflict of its own.
    """

    record: Record | None
    members: bool = False
    events: tuple[Event, ...] = ()
    overwritten: tuple[Dot, ...] = ()
    concurrent_delete: bool = False
    base: CausalContext = _NOTHING_SEEN
    sole: bool = True
    live: bool = True
    merged: bytes | None = None
    trimmed: int = 0
    raise_floor_context: int = 0
    noop: bool = False
    conflict_anew: bool = False

    def ack(self, revision: int) -> tuple[int | None, CausalContext]:
        """Returns version and context for the acknowledgement of the commit at ``revision``.

        Without sole knowledge there is no version: returning one would let the writer replace
        siblings that nobody read.
        """
        return acknowledge(revision, self.sole, self.live, self.base)


def acknowledge(revision: int, sole: bool, live: bool, base: CausalContext) -> tuple[int | None, CausalContext]:
    """Returns version and context after a write: see :meth:`Decision.ack`."""
    if sole:
        return (revision if live else 0), CausalContext(revision)
    # Whatever `base` covered is gone, so its extra dots are dead and need not be kept. A dot that stands
    # for a merge of what others wrote is not covered by having written it.
    return None, CausalContext(base.prefix, (revision,) if live else ())


class Settled(NamedTuple):
    """A record with what had expired turned into tombstones that keep their dots."""

    siblings: tuple[Sibling, ...]
    live: tuple[Sibling, ...]
    expired: bool
    """Whether a value's expiry has not been committed yet."""


def settle_expiry(record: Record | None, now_ms: int) -> Settled:
    """Returns ``record`` as of ``now_ms``: an expired value is a tombstone from that moment on."""
    if record is None:
        return Settled((), (), False)
    expired = False
    siblings = []
    for sibling in record.siblings:
        if sibling.data is not None and sibling.expires_at_ms <= now_ms:
            expired = True
            sibling = sibling._replace(data=None, expires_at_ms=NEVER_MS)
        siblings.append(sibling)
    return Settled(tuple(siblings), tuple(s for s in siblings if s.data is not None), expired)


def decide_put(record: Record | None, key: str, put: Put, at: Circumstances) -> Decision:
    """Decides a put.

    Raises:
        Refusal: INVALID_FIELD (an expiry in the past), VERSION_MISMATCH, PRECONDITION_REQUIRED,
            MERGE_TYPE_MISMATCH, VALUE_TOO_LARGE (of a typed record), CONTEXT_TOO_OLD, CONFLICT, SIBLING_LIMIT.
    """
    expires_at_ms = _expiry(put, at.now_ms)
    settled = settle_expiry(record, at.now_ms)
    when = put.precondition
    version = record.stored if record is not None and settled.live else 0
    _check_version(key, version, when, settled)
    data = put.data
    merge_type = record.merge_type if record is not None and settled.live else MergeType.NONE
    if merge_type is not MergeType.NONE:
        if when.expected_version is None:
            raise Refusal(
                Reason.PRECONDITION_REQUIRED,
                f"{key!r} is a {merge_type.name} record: a plain put on it needs expected_version",
                ConflictInfo(key, version, _infos(settled.live)),
            )
        if put.encoding is not Encoding.JSON:
            raise Refusal(Reason.MERGE_TYPE_MISMATCH, f"{key!r} is a {merge_type.name} record: its value is JSON")
        data = merging.state_from_value(merge_type, data)
        # Numbers may be longer in the form that readers see than in the one that was sent.
        if (size := len(merging.render(merge_type, data))) > at.item_bytes_max:
            raise too_large("value", size, at.item_bytes_max)
    verdict = _judge(record, settled, key, version, when, at)
    survivors, overwritten = verdict.survivors, verdict.overwritten
    _check_siblings(key, version, survivors, len(data), at)
    mine = Sibling(0, at.actor, at.now_ms, data, put.encoding, expires_at_ms)
    new = _rewritten(record, settled, (*survivors, mine), at, put.attributes, merge_type)
    return Decision(
        new,
        members=not settled.live,
        events=(*_expiry_event(settled), Event(ChangeKind.PUT, at.actor, overwritten)),
        overwritten=overwritten,
        concurrent_delete=verdict.undone_delete,
        base=when.context or _NOTHING_SEEN,
        sole=not survivors,
        conflict_anew=len(settled.live) < 2,
    )


def decide_delete(record: Record | None, key: str, when: Precondition, at: Circumstances) -> Decision:
    """Decides a delete.

    Raises:
        Refusal: VERSION_MISMATCH, PRECONDITION_REQUIRED, CONTEXT_TOO_OLD, CONFLICT.
    """
    settled = settle_expiry(record, at.now_ms)
    version = record.stored if record is not None and settled.live else 0
    _check_version(key, version, when, settled)
    if not settled.live:
        return Decision(record, base=when.context or _NOTHING_SEEN, live=False, noop=True)
    assert record is not None
    verdict = _judge(record, settled, key, version, when, at)
    survivors = tuple(s for s in verdict.survivors if s.data is not None)
    if survivors:
        # Observed-remove: what the deleter had not seen lives on.
        left = survivors
        new = _rewritten(record, settled, left, at, record.attributes, record.merge_type)
        members = False
    else:
        left = (Sibling(0, at.actor, at.now_ms, None),)
        new = _rewritten(record, settled, left, at, (), MergeType.NONE)
        members = True
    return Decision(
        new,
        members=members,
        events=(*_expiry_event(settled), Event(ChangeKind.DELETE, at.actor, verdict.overwritten)),
        overwritten=verdict.overwritten,
        base=when.context or _NOTHING_SEEN,
        sole=not survivors,
        live=False,
    )


class KeepDot(NamedTuple):
    """Resolves a conflict in favour of the sibling written at ``dot``."""

    dot: int


class DeleteAll(NamedTuple):
    """Resolves a conflict by deleting the key."""


Resolution = Put | KeepDot | DeleteAll


def decide_resolve(
    record: Record | None, key: str, resolution: Resolution, seen: CausalContext, at: Circumstances
) -> Decision:
    """Puts one value, or none, in the place of all siblings that the resolver has seen.

    Raises:
        Refusal: NO_CONFLICT (fewer than two live values), CONFLICT (a sibling that was not seen),
            INVALID_FIELD (no sibling has the dot to keep).
    """
    settled = settle_expiry(record, at.now_ms)
    if record is None or len(settled.live) < 2:
        raise Refusal(Reason.NO_CONFLICT, f"{key!r} has {len(settled.live)} live values: nothing is to be resolved")
    # Both must hold, so anything unseen is a conflict under every policy.
    when = Precondition(record.stored, seen)
    match resolution:
        case KeepDot(dot):
            kept = next((s for s in settled.live if s.dot == dot), None)
            if kept is None or kept.data is None:
                raise invalid("resolution.keep_dot", f"{dot} is not a live value of {key!r}")
            put = Put(kept.data, kept.encoding, record.attributes, expires_at_ms=kept.expires_at_ms, precondition=when)
            return decide_put(record, key, put, at)
        case DeleteAll():
            return decide_delete(record, key, when, at)
        case _:
            put = resolution._replace(attributes=resolution.attributes or record.attributes, precondition=when)
            return decide_put(record, key, put, at)


def decide_merge(record: Record | None, key: str, op: merging.MergeOp, at: Circumstances) -> Decision:
    """Decides a merge operation; it never conflicts.

    Raises:
        Refusal: MERGE_TYPE_MISMATCH, VALUE_TOO_LARGE, INVALID_FIELD.
    """
    settled = settle_expiry(record, at.now_ms)
    merge_type = merging.type_of(op)
    state: bytes | None = None
    expires_at_ms = NEVER_MS
    attributes: tuple[tuple[str, Scalar], ...] = ()
    if settled.live:
        assert record is not None
        if record.merge_type is not merge_type:
            held = "plain value" if record.merge_type is MergeType.NONE else f"{record.merge_type.name} record"
            raise Refusal(Reason.MERGE_TYPE_MISMATCH, f"{key!r} holds a {held}, not a {merge_type.name} record")
        state, expires_at_ms = settled.live[0].data, settled.live[0].expires_at_ms
        attributes = record.attributes
    merged = merging.apply(op, state, at.item_bytes_max)
    mine = Sibling(0, at.actor, at.now_ms, merged.state, Encoding.JSON, expires_at_ms)
    shown = len(merged.rendered) <= MERGED_REPLY_BYTES_MAX
    # Without having read the result, the writer must not replace it: that would lose what others merged.
    known = shown or not settled.live
    return Decision(
        _rewritten(record, settled, (mine,), at, attributes, merge_type),
        members=not settled.live,
        events=(*_expiry_event(settled), Event(ChangeKind.MERGE, at.actor)),
        base=(op.context if isinstance(op, merging.SetUpdate) else None) or _NOTHING_SEEN,
        sole=known,
        live=known,
        merged=merged.rendered if shown else None,
        trimmed=merged.trimmed,
    )


def decide_expiry(record: Record, now_ms: int) -> Decision | None:
    """Decides what the sweeper does: None if nothing has expired.

    The tombstone keeps the value's dot, so a context that covered the value still covers it.
    """
    settled = settle_expiry(record, now_ms)
    if not settled.expired:
        return None
    live = bool(settled.live)
    new = record._replace(
        stored=0,
        siblings=settled.siblings,
        change_count=record.change_count + 1,
        deleted_ms=0 if live else now_ms,
        claim=record.claim if live else None,
        attributes=record.attributes if live else (),
        merge_type=record.merge_type if live else MergeType.NONE,
    )
    return Decision(new, members=not live, events=_expiry_event(settled), live=live)


def decide_reap(record: Record, now_ms: int, retention_ms: int) -> Decision | None:
    """Decides whether a tombstone goes for good: None if it must stay.

    The floor rises to the highest reaped dot: whoever read the key before that can no longer tell
    whether it missed a delete.
    """
    if any(s.data is not None for s in record.siblings) or record.deleted_ms + retention_ms > now_ms:
        return None
    return Decision(None, live=False, raise_floor_context=max(s.dot for s in record.siblings))


class _Verdict(NamedTuple):
    survivors: tuple[Sibling, ...] = ()
    overwritten: tuple[Dot, ...] = ()
    undone_delete: bool = False


def _check_version(key: str, version: int, when: Precondition, settled: Settled) -> None:
    expected = when.expected_version
    if expected is not None and expected != version:
        unseen = tuple(s for s in settled.siblings if s.dot > expected)
        raise Refusal(
            Reason.VERSION_MISMATCH,
            f"{key!r} has version {version}, not {expected}",
            ConflictInfo(key, version, _infos(unseen)),
        )


def _judge(
    record: Record | None, settled: Settled, key: str, version: int, when: Precondition, at: Circumstances
) -> _Verdict:
    """Applies context, floor and policy to what the writer has not seen."""
    if when.blind:
        return _Verdict(overwritten=_infos(settled.live))
    context = when.context
    if context is None:
        if when.expected_version is not None or not settled.live:
            return _Verdict()
        if at.private:
            return _Verdict(overwritten=_infos(settled.live))
        raise Refusal(
            Reason.PRECONDITION_REQUIRED,
            f"{key!r} has a live value: say what you have seen of it (context or expected_version), or write blind",
            ConflictInfo(key, version, _infos(settled.live)),
        )
    if record is None and context.prefix < at.floor_context:
        raise Refusal(
            Reason.CONTEXT_TOO_OLD,
            f"{key!r} was deleted and reaped after this context was read; read it again",
            ConflictInfo(key, 0),
        )
    unseen = tuple(s for s in settled.siblings if not context.covers(s.dot))
    if not unseen:
        return _Verdict()
    if when.expected_version is not None or at.policy is ConflictPolicy.REJECT:
        raise Refusal(
            Reason.CONFLICT,
            f"{key!r} has changes that the writer has not seen",
            ConflictInfo(key, version, _infos(unseen)),
        )
    if at.policy is ConflictPolicy.LAST_WRITER_WINS:
        return _Verdict(overwritten=_infos(unseen))
    return _Verdict(
        survivors=tuple(s for s in unseen if s.data is not None),
        undone_delete=any(s.data is None for s in unseen),
    )


def _check_siblings(key: str, version: int, survivors: tuple[Sibling, ...], more_bytes: int, at: Circumstances) -> None:
    size = sum(len(s.data or b"") for s in survivors) + more_bytes
    if len(survivors) < SIBLINGS_MAX and (not survivors or size <= SIBLINGS_BYTES_MAX):
        return
    problem = f"{key!r} has {len(survivors)} siblings that the writer has not seen"
    if len(survivors) < SIBLINGS_MAX:
        problem += f", with this value {size} bytes, the limit is {SIBLINGS_BYTES_MAX}"
    else:
        problem += f", the limit is {SIBLINGS_MAX}"
    unseen = tuple(s.info(at.now_ms) for s in reversed(survivors))
    raise Refusal(Reason.SIBLING_LIMIT, problem, ConflictInfo(key, version, unseen))


def _infos(siblings: tuple[Sibling, ...]) -> tuple[Dot, ...]:
    return tuple(Dot(s.dot, s.actor, s.time_ms, s.data is None) for s in reversed(siblings))


def _expiry(put: Put, now_ms: int) -> int:
    if put.ttl_ms is not None:
        return now_ms + put.ttl_ms
    if put.expires_at_ms is not None:
        if put.expires_at_ms <= now_ms:
            raise invalid("put.expire_time", f"{put.expires_at_ms} ms is not after store time {now_ms} ms")
        return put.expires_at_ms
    return NEVER_MS


def _expiry_event(settled: Settled) -> tuple[Event, ...]:
    return (Event(ChangeKind.EXPIRE, ""),) if settled.expired else ()


def _rewritten(
    record: Record | None,
    settled: Settled,
    siblings: tuple[Sibling, ...],
    at: Circumstances,
    attributes: tuple[tuple[str, Scalar], ...],
    merge_type: MergeType,
) -> Record:
    # What was reaped with an earlier life of the key is no longer named, but it lies below the floor.
    clock = (record.clock if record is not None else VersionClock(base=at.floor_context)).written_by(at.actor)
    live = any(s.data is not None for s in siblings)
    alive_before = record is not None and bool(settled.live)
    return Record(
        stored=0,
        siblings=siblings,
        clock=clock,
        created_ms=record.created_ms if record is not None and alive_before else at.now_ms,
        change_count=(record.change_count if record is not None else 0) + 1,
        attributes=attributes,
        merge_type=merge_type,
        # A claim outlives a put by somebody else, but not the life of the key.
        claim=record.claim if record is not None and alive_before and live else None,
        deleted_ms=0 if live else at.now_ms,
        queued=record.queued if record is not None else None,
    )


def check_item_size(put: Put, item_bytes_max: int) -> Refusal | None:
    """Returns the refusal of a value above the namespace's limit, None if it fits."""
    if len(put.data) > item_bytes_max:
        return too_large("value", len(put.data), item_bytes_max)
    return None
