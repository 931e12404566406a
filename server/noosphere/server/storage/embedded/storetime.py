"""Store time: may pause, never goes back, not even when the wall clock does and the server restarts."""

from __future__ import annotations

from ...ports.runtime import Clock

PERSIST_MS = 2_000
"""Store time that somebody has seen is on disk at most about this much later."""

MARGIN_MS = 2 * PERSIST_MS
"""What an unclean restart adds to the last persisted time, for what was seen but not persisted."""


class StoreTime:
    """``max(last stored, wall clock at the start)`` plus the monotonic time since.

    Between two processes there is no monotonic time: how far the wall clock went on, nobody can tell from a clock
    that was set. What must not end because of that is counted in time awake.

    Attributes:
        persisted_ms: the newest time on disk.
        asleep_ms: how far store time went on while no process had the store open, over all starts.
    """

    def __init__(self, clock: Clock, stored_ms: int, clean: bool, asleep_ms: int = 0) -> None:
        earliest_ms = stored_ms if clean or not stored_ms else stored_ms + MARGIN_MS
        self._monotonic_ms = clock.monotonic_ms
        start_ms = max(earliest_ms, clock.wall_ms())
        self._offset_ms = start_ms - clock.monotonic_ms()
        self.asleep_ms = asleep_ms + (start_ms - earliest_ms if stored_ms else 0)
        self._seen_ms = 0
        self.persisted_ms = stored_ms

    def now_ms(self) -> int:
        """Returns store time."""
        self._seen_ms = now_ms = self._offset_ms + self._monotonic_ms()
        return now_ms

    def awake_ms(self, now_ms: int) -> int:
        """Returns a store time of this process as time awake, which never goes back either.

        The ages of remembered requests are counted in it: a caller who retries over a restart waits for seconds,
        whatever became of the wall clock meanwhile.
        """
        return now_ms - self.asleep_ms

    def persisted(self, now_ms: int) -> None:
        """Notes that ``now_ms`` is on disk."""
        if now_ms > self.persisted_ms:
            self.persisted_ms = now_ms

    @property
    def overdue(self) -> bool:
        """Whether a time was seen that a restart now would not know of."""
        return self._seen_ms - self.persisted_ms >= PERSIST_MS
