"""The log as readers see it."""

from __future__ import annotations

from collections.abc import Callable

from noosphere.consistency import ChangeKind, LogRangeInfo, Reason, Refusal

from ..ports.store import LoggedBatch
from .codec import decode_events, decode_record
from .types import BatchView, ChangeView, RecordView


def view_batch(batch: LoggedBatch, wanted: Callable[[str], bool]) -> BatchView:
    """Returns one commit's changes to the keys that are wanted, in the order of the commit."""
    changes: list[ChangeView] = []
    for key, data, events in batch.changes:
        if not wanted(key):
            continue
        record = None
        if data is not None:
            record = RecordView(key, decode_record(data, batch.revision), batch.time_ms, batch.revision)
        decoded = decode_events(events)
        for position, event in enumerate(decoded):
            # A put over an expired record is two events of one commit; the record is that after the last.
            superseded = position + 1 < len(decoded) and event.kind is ChangeKind.EXPIRE
            changes.append(ChangeView(key, event, None if superseded else record))
    return BatchView(batch.revision, batch.time_ms, tuple(changes))


def compacted(namespace: str, requested: int, floor: int) -> Refusal:
    """Returns the refusal of a position that the log no longer reaches."""
    return Refusal(
        Reason.COMPACTED,
        f"the log of {namespace!r} begins after revision {floor}; {requested} is no longer in it",
        LogRangeInfo(requested, floor),
    )
