"""Store time: may pause, never goes back, not even when the wall clock does and the server restarts."""

from __future__ import annotations

from ...ports.runtime import Clock

PERSIST_MS = 2_000
"""Store time that somebody has seen is on disk at most about this much later."""

MARGIN_MS = 2 * PERSIST_MS
"""What an unclean restart adds to the last persisted time, for what was seen but not persisted."""


class StoreTime:
    """``max(last stored, wall clock at the start)`` plus the monotonic time since.

    Attributes:
        persisted_ms: the newest time on disk.
    """

    def __init__(self, clock: Clock, stored_ms: int, clean: bool) -> None:
        earliest_ms = stored_ms if clean or not stored_ms else stored_ms + MARGIN_MS
        self._monotonic_ms = clock.monotonic_ms
        self._offset_ms = max(earliest_ms, clock.wall_ms()) - clock.monotonic_ms()
        self._seen_ms = 0
        self.persisted_ms = stored_ms

    def now_ms(self) -> int:
        """Returns store time."""
        self._seen_ms = now_ms = self._offset_ms + self._monotonic_ms()
        return now_ms

    def persisted(self, now_ms: int) -> None:
        """Notes that ``now_ms`` is on disk."""
        if now_ms > self.persisted_ms:
            self.persisted_ms = now_ms

    @property
    def overdue(self) -> bool:
        """Whether a time was seen that a restart now would not know of."""
        return self._seen_ms - self.persisted_ms >= PERSIST_MS
