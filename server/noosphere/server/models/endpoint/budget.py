"""How often a model may be called, and for how many tokens, within an hour; and the books of what it was."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ...ports.metrics import ModelMetrics
from ...ports.models import ModelError
from ...ports.runtime import Clock

HOUR_MS = 3_600_000


@dataclass(slots=True)
class Spent:
    """One call in the books; ``tokens`` is an upper estimate until the endpoint has told."""

    at_ms: int
    tokens: int
    past: bool = False


class CallBudget:
    """A sliding hour of calls and tokens. A call that failed counts too: its endpoint may charge for it."""

    def __init__(
        self, clock: Clock, *, calls_max: int, tokens_max: int, purpose: str = "", metrics: ModelMetrics | None = None
    ) -> None:
        """Makes a full budget.

        Args:
            clock: tells when an hour is over.
            calls_max: calls within an hour, at least 1.
            tokens_max: tokens within an hour, in and out, at least 1.
            purpose: what the model is for, as metrics call it.
            metrics: hears of every call.
        """
        self._clock = clock
        self._calls_max = calls_max
        self._tokens_max = tokens_max
        self._purpose = purpose
        self._metrics = metrics
        self._spent: deque[Spent] = deque()
        self._used = 0

    @contextlib.contextmanager
    def call(self, tokens: int) -> Iterator[Spent]:
        """Enters a call around what makes it, and tells how it ended.

        Args:
            tokens: the most that it may use.

        Raises:
            ModelError: the budget does not allow it.
        """
        try:
            entry = self.spend(tokens)
        except ModelError:
            self._tell("over_budget", 0)
            raise
        outcome = "failed"
        try:
            yield entry
            outcome = "answered"
        finally:
            self._tell(outcome, entry.tokens)

    def spend(self, tokens: int) -> Spent:
        """Enters a call, before it is made.

        Args:
            tokens: the most that it may use.

        Returns:
            The entry, which :meth:`settle` corrects.

        Raises:
            ModelError: the budget does not allow it.
        """
        now_ms = self._clock.monotonic_ms()
        while self._spent and self._spent[0].at_ms <= now_ms - HOUR_MS:
            past = self._spent.popleft()
            past.past = True
            self._used -= past.tokens
        if len(self._spent) >= self._calls_max:
            raise ModelError(f"budget is spent: {len(self._spent)} calls within an hour, the limit", passing=True)
        if self._used + tokens > self._tokens_max:
            raise ModelError(
                f"budget is spent: {self._used} tokens within an hour and {tokens} more, "
                f"the limit is {self._tokens_max}",
                passing=True,
            )
        entry = Spent(now_ms, tokens)
        self._spent.append(entry)
        self._used += tokens
        return entry

    def settle(self, entry: Spent, tokens: int) -> None:
        """Corrects an entry by what an endpoint says was used, to twice the estimate at most: it may say anything."""
        if tokens <= 0:
            return
        said = min(tokens, 2 * entry.tokens)
        if not entry.past:
            self._used += said - entry.tokens
        entry.tokens = said

    def _tell(self, outcome: str, tokens: int) -> None:
        if self._metrics is not None:
            self._metrics.called(self._purpose, outcome, tokens)
