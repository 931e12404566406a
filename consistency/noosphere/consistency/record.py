"""A record as it is stored: siblings, clock, attributes and claim. Immutable.

Inside a record that is about to be written, revision 0 means "the revision of the commit that writes
me"; :meth:`Record.at` puts the real one in once it is known.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .clock import VersionClock
from .context import CausalContext
from .errors import Dot
from .merge import MergeType, state_at
from .revision import NEVER_MS

Scalar = str | int | float | bool


class Encoding(IntEnum):
    """How the bytes of a value are to be read."""

    JSON = 1
    BYTES = 2


class Sibling(NamedTuple):
    """A live value, or a tombstone (``data`` is None)."""

    dot: int
    actor: str
    time_ms: int
    data: bytes | None
    encoding: Encoding = Encoding.JSON
    expires_at_ms: int = NEVER_MS

    def live(self, now_ms: int) -> bool:
        """Tells whether this is a value that has not expired at store time ``now_ms``."""
        return self.data is not None and self.expires_at_ms > now_ms

    def info(self, now_ms: int) -> Dot:
        """Returns the dot without its content."""
        return Dot(self.dot, self.actor, self.time_ms, not self.live(now_ms))


class Claim(NamedTuple):
    """Who works on a record. ``fence`` is the revision at which the claim was taken."""

    holder: str
    expires_at_ms: int
    fence: int
    attempts: int
    done: bool = False
    completed_by: str = ""
    result: bytes | None = None
    result_encoding: Encoding = Encoding.JSON

    def active(self, now_ms: int) -> bool:
        """Tells whether somebody holds the record at store time ``now_ms``."""
        return not self.done and bool(self.holder) and self.expires_at_ms > now_ms


class Record(NamedTuple):
    """One key's stored state.

    Attributes:
        stored: the revision of its last change, deletes and expiries included.
        siblings: live values and tombstones, by ascending dot.
        clock: who wrote here.
        created_ms: when the present life of the key began.
        change_count: how many commits changed it; for display only.
        attributes: scalars for filters.
        merge_type: NONE for a plain value.
        claim: set once the record was claimed.
        deleted_ms: store time at which the last live value ended; 0 while one lives.
        queued: revision and index of the entry in the namespace's conflict queue, None if it has none.
    """

    stored: int
    siblings: tuple[Sibling, ...]
    clock: VersionClock
    created_ms: int
    change_count: int
    attributes: tuple[tuple[str, Scalar], ...] = ()
    merge_type: MergeType = MergeType.NONE
    claim: Claim | None = None
    deleted_ms: int = 0
    queued: tuple[int, int] | None = None

    def live(self, now_ms: int) -> tuple[Sibling, ...]:
        """Returns the values that are alive at store time ``now_ms``."""
        return tuple(s for s in self.siblings if s.live(now_ms))

    def version(self, now_ms: int) -> int:
        """Returns the optimistic lock: the stored revision, or 0 without a live value."""
        return self.stored if any(s.live(now_ms) for s in self.siblings) else 0

    @property
    def live_until_ms(self) -> int:
        """When the last live value ends: 0 for a tombstone, ``NEVER_MS`` without an expiry."""
        return max((s.expires_at_ms for s in self.siblings if s.data is not None), default=0)

    @property
    def next_expiry_ms(self) -> int:
        """When the first value ends whose end is not committed yet, ``NEVER_MS`` if none does."""
        return min((s.expires_at_ms for s in self.siblings if s.data is not None), default=NEVER_MS)

    def ends_ms(self, now_ms: int) -> int:
        """Returns when the first of the values ends that are alive at store time ``now_ms``, else ``NEVER_MS``."""
        return min((s.expires_at_ms for s in self.siblings if s.live(now_ms)), default=NEVER_MS)

    def at(self, revision: int) -> Record:
        """Returns the record with revision 0 replaced by that of the commit that wrote it."""
        siblings = tuple(
            Sibling(revision, s.actor, s.time_ms, s.data, s.encoding, s.expires_at_ms) if s.dot == 0 else s
            for s in self.siblings
        )
        if self.merge_type is MergeType.SET:
            siblings = tuple(
                s if s.data is None else s._replace(data=state_at(self.merge_type, s.data, revision)) for s in siblings
            )
        claim = self.claim
        if claim is not None and claim.fence == 0:
            claim = claim._replace(fence=revision)
        return Record(
            revision,
            siblings,
            self.clock.at(revision),
            self.created_ms,
            self.change_count,
            self.attributes,
            self.merge_type,
            claim,
            self.deleted_ms,
            self.queued if self.queued is None else (self.queued[0] or revision, self.queued[1]),
        )


def seen_by_reader(record: Record | None, now_ms: int, head: int) -> CausalContext:
    """Returns the context that a read of ``record`` gives: its version, or ``head`` without a live value."""
    version = record.version(now_ms) if record is not None else 0
    return CausalContext(version or head)
