"""How an old version of a record becomes the present one again: a pure rule."""

from __future__ import annotations

from noosphere.consistency import ChangeKind, Circumstances, Decision, Event, Record, Sibling, VersionClock


def decide_put_back(record: Record | None, then: Record, at: Circumstances) -> Decision | None:
    """Decides to write what a record held once.

    It becomes a new version by the caller, so whoever has read what is there now notices. Type, attributes, claim and
    several values at once come back as they were; of several values all but the newest keep their dots, since one
    commit has only one. A value whose time has come meanwhile does not come back.

    Args:
        record: what is stored now, a tombstone too; None if nothing is.
        then: what was stored once.
        at: store time, writer and the like.

    Returns:
        The decision, one without effect if the present values are the same; None if nothing of ``then`` is left to
        come back.
    """
    live = then.live(at.now_ms)
    if not live:
        return None
    was_live = record is not None and bool(record.live(at.now_ms))
    if record is not None and was_live and _same(record, then, at.now_ms):
        return Decision(record, noop=True)
    *older, newest = live
    mine = Sibling(0, at.actor, at.now_ms, newest.data, newest.encoding, newest.expires_at_ms)
    clock = VersionClock(base=at.floor_context) if record is None else record.clock
    back = Record(
        stored=0,
        siblings=(*older, mine),
        clock=clock.written_by(at.actor),
        created_ms=then.created_ms,
        change_count=(0 if record is None else record.change_count) + 1,
        attributes=then.attributes,
        merge_type=then.merge_type,
        claim=then.claim,
        queued=None if record is None else record.queued,
    )
    expired = record is not None and any(s.data is not None and s.expires_at_ms <= at.now_ms for s in record.siblings)
    events = (Event(ChangeKind.EXPIRE, ""),) if expired else ()
    return Decision(back, members=not was_live, events=(*events, Event(ChangeKind.PUT, at.actor)))


def _same(record: Record, then: Record, now_ms: int) -> bool:
    """Tells whether a reader sees the same in two versions, who wrote it and when apart."""
    return (
        [_seen(sibling) for sibling in record.live(now_ms)] == [_seen(sibling) for sibling in then.live(now_ms)]
        and record.attributes == then.attributes
        and record.merge_type is then.merge_type
        and record.claim == then.claim
    )


def _seen(sibling: Sibling) -> tuple[object, ...]:
    return sibling.data, sibling.encoding, sibling.expires_at_ms
