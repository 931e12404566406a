"""Store time as one process knows it: what Redis last said, and the monotonic time since."""

from __future__ import annotations

from ...ports.runtime import Clock


class StoreTime:
    """Never goes back, and never leaves Redis behind: what somebody was told here goes with every call as a floor.

    Args:
        clock: the source of monotonic time.
        start_ms: store time at this moment.
    """

    def __init__(self, clock: Clock, start_ms: int) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self._told_ms = self._heard_ms = start_ms
        self._heard_at_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        """Returns store time."""
        now_ms = self._heard_ms + self._monotonic_ms() - self._heard_at_ms
        if now_ms > self._told_ms:
            self._told_ms = now_ms
        return self._told_ms

    def heard(self, now_ms: int) -> None:
        """Notes what a reply says; a clock that runs faster than that of Redis is put right so."""
        if now_ms > self._told_ms:
            self._told_ms = now_ms
        self._heard_ms, self._heard_at_ms = self._told_ms, self._monotonic_ms()

    @property
    def told_ms(self) -> int:
        """The latest time that anybody was told."""
        return self._told_ms
