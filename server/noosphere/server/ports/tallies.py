"""What a working store counts: all that it holds, and what it has taken away."""

from __future__ import annotations

from typing import NamedTuple


class StoreTotals(NamedTuple):
    """How much the store holds and has done since it was opened."""

    namespace_count: int
    loaded_count: int
    record_count: int
    record_bytes: int
    commit_count: int
    sync_count: int
    journal_bytes: int


class Dropped(NamedTuple):
    """A dropped namespace: the head that its tombstone keeps, and how many records went."""

    head: int
    record_count: int


class Erased(NamedTuple):
    """What an erasure took away beside what was stored.

    Attributes:
        floor: the log's floor, which is the head at the erasure.
        log_count: logged batches that went.
        request_count: remembered calls whose fingerprint and reply went.
    """

    floor: int
    log_count: int
    request_count: int
