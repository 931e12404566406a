"""When an engine that does not answer is asked again."""

from __future__ import annotations

from ...ports.runtime import Clock

FAILURES_MAX = 3
"""So many calls in a row that nobody has answered, and the engine is left alone for a while."""

PAUSE_MS_MIN = 250
PAUSE_MS_MAX = 10_000


class Breaker:
    """Opens after several failures in a row; then lets one call at a time through, after a pause that grows.

    Args:
        clock: the source of time.

    Attributes:
        losses: how many calls nobody has answered, ever.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until_ms = 0
        self._probing = False
        self.losses = 0

    @property
    def open(self) -> bool:
        """Whether the last calls have failed and none has succeeded since."""
        return self._failures >= FAILURES_MAX

    def wait_ms(self) -> int:
        """Returns for how long nothing may be asked; 0 if a call may begin, which must tell of its end."""
        if not self.open:
            return 0
        left_ms = self._open_until_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            return left_ms
        return PAUSE_MS_MIN if self._probing else 0

    def began(self) -> bool:
        """Takes note that a call begins; returns whether it is the first one after a pause."""
        probes = self.open
        self._probing = self._probing or probes
        return probes

    def succeeded(self) -> None:
        """Takes note that a call was answered, be it by a refusal."""
        self._failures = 0
        self._probing = False

    def failed(self) -> None:
        """Takes note that a call was not answered."""
        self._failures += 1
        self.losses += 1
        self._probing = False
        if self.open:
            pause_ms = PAUSE_MS_MIN << min(self._failures - FAILURES_MAX, 10)
            self._open_until_ms = self._clock.monotonic_ms() + min(pause_ms, PAUSE_MS_MAX)

    def given_up(self) -> None:
        """Takes note that nobody waits for a call any more: it says nothing of the engine."""
        self._probing = False
