"""Version vectors that know who wrote, bounded however many agents there are.

Entries are ``{actor: revision of its newest write here}``. Because revisions are unique within a
namespace, the oldest entry can be folded into ``base`` without losing the order: a clock that
includes revision r from anybody includes every earlier write to the record (the server decides each
write against the record's whole state, as in server-side dotted version vectors, PODC 2012).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .limits import CLOCK_ENTRIES_MAX


class Order(Enum):
    """How two clocks relate."""

    EQUAL = "equal"
    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"


class VersionClock(NamedTuple):
    """A version vector with folded history.

    Attributes:
        entries: ``(actor, revision)`` by ascending revision, at most 16, one per actor. Revision 0
            stands for the commit that is being written.
        base: every write up to this revision is included.
    """

    entries: tuple[tuple[str, int], ...] = ()
    base: int = 0

    def written_by(self, actor: str) -> VersionClock:
        """Returns the clock after a write by ``actor`` in the present commit (revision 0)."""
        rest = tuple(entry for entry in self.entries if entry[0] != actor)
        base = self.base
        if len(rest) >= CLOCK_ENTRIES_MAX:
            base = max(base, rest[0][1])
            rest = rest[1:]
        return VersionClock((*rest, (actor, 0)), base)

    def at(self, revision: int) -> VersionClock:
        """Returns the clock with the placeholder 0 replaced by the commit's ``revision``."""
        if self.entries and self.entries[-1][1] == 0:
            return VersionClock((*self.entries[:-1], (self.entries[-1][0], revision)), self.base)
        return self

    def includes(self, actor: str, revision: int) -> bool:
        """Tells whether this clock includes ``actor``'s write at ``revision``."""
        return revision <= self.base or any(a == actor and revision <= r for a, r in self.entries)

    def compare(self, other: VersionClock) -> Order:
        """Returns how this clock relates to ``other``."""
        below = self._within(other)
        above = other._within(self)
        if below and above:
            return Order.EQUAL
        if below:
            return Order.BEFORE
        return Order.AFTER if above else Order.CONCURRENT

    def unseen_by(self, other: VersionClock) -> tuple[tuple[str, int], ...]:
        """Returns the entries here that ``other`` does not include: whose writes it has not seen."""
        return tuple(entry for entry in self.entries if not other.includes(*entry))

    def _within(self, other: VersionClock) -> bool:
        # Folded entries have no names any more. A record's base never sinks, so a clock of the same
        # history that is newer has a base at least as high.
        return self.base <= other.base and all(other.includes(*entry) for entry in self.entries)
