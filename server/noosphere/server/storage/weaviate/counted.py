"""What was counted a moment ago, for whoever asks for the same again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ...ports.runtime import Clock

KEPT_MAX = 64
KEPT_MS_MAX = 1_000
"""So long at most, because another server may write without this one's hearing of it."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Counted(Generic[K, V]):
    """A few values, for a moment.

    Args:
        clock: the source of time.

    Attributes:
        changes: how often everything was forgotten: what was counted across such a moment is not kept.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self.changes = 0

    def put(self, key: K, value: V, changes: int) -> None:
        """Keeps a value, if nothing has changed since :attr:`changes` was so."""
        if changes != self.changes:
            return
        self._kept[key] = (self._clock.monotonic_ms() + KEPT_MS_MAX, value)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Returns a value that was kept less than a second ago, or None."""
        found = self._kept.get(key)
        return None if found is None or found[0] <= self._clock.monotonic_ms() else found[1]

    def forget(self) -> None:
        """Keeps nothing."""
        self._kept.clear()
        self.changes += 1
