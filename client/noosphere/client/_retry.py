"""When to try a call again, and for how long to wait: pure, with time and chance injected.

One deadline covers a call and all its retries. gRPC's own retries are switched off, so this is the
only place that repeats anything, and it repeats with the same request id.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a call is repeated.

    Attributes:
        first_delay: upper bound of the wait before the first retry, in seconds.
        delay_max: upper bound of any wait, in seconds.
        attempts_max: attempts of one call, the first included.
        attempt_min: shortest time that an attempt gets while the deadline allows, in seconds.
        chance: source of numbers in [0, 1) for jitter.
    """

    first_delay: float = 0.05
    delay_max: float = 1.0
    attempts_max: int = 64
    attempt_min: float = 1.0
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def attempt_timeout(self, remaining: float, wait: float = 0.0) -> float:
        """Returns how long the next attempt may take, in seconds.

        Half of what is left: a lost reply then leaves time to ask again with the same id, whatever
        the deadline is.

        Args:
            remaining: what is left of the call's deadline, in seconds.
            wait: how long the server was asked to wait before it answers, in seconds.
        """
        return min(remaining, max(remaining / 2, wait + self.attempt_min))

    def backoff(self, attempts: int) -> float:
        """Returns the wait after so many failed attempts, in seconds: exponential, jittered, bounded.

        Between half and all of the bound, so that clients cut off together do not return together.
        """
        bound = min(self.delay_max, self.first_delay * float(2 ** min(attempts - 1, 30)))
        return bound * (0.5 + self.chance() / 2)

    def next_delay(self, attempts: int, remaining: float, server_delay: float | None = None) -> float | None:
        """Returns the wait before the next attempt, in seconds, or None to give up.

        Args:
            attempts: attempts made so far, at least 1.
            remaining: what is left of the call's deadline, in seconds.
            server_delay: what the server asked for (``RetryInfo``), which is never undercut.
        """
        if attempts >= self.attempts_max:
            return None
        if server_delay is not None:
            return server_delay if server_delay < remaining else None
        delay = self.backoff(attempts)
        if delay >= remaining:
            # A last attempt rather than none, unless that would be no wait to speak of.
            delay = remaining / 2
        return delay if delay >= self.first_delay / 2 else None
