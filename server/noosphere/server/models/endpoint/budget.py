"""How often a model may be called, and for how many tokens, within an hour."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...ports.models import SummariserError
from ...ports.runtime import Clock

HOUR_MS = 3_600_000


@dataclass(slots=True)
class Spent:
    """One call in the books; ``tokens`` is an upper estimate until the endpoint has told."""

    at_ms: int
    tokens: int


class CallBudget:
    """A sliding hour of calls and tokens. A call that failed counts too: its endpoint may charge for it."""

    def __init__(self, clock: Clock, *, calls_max: int, tokens_max: int) -> None:
        """Makes a full budget.

        Args:
            clock: tells when an hour is over.
            calls_max: calls within an hour, at least 1.
            tokens_max: tokens within an hour, in and out, at least 1.
        """
        self._clock = clock
        self._calls_max = calls_max
        self._tokens_max = tokens_max
        self._spent: deque[Spent] = deque()

    def spend(self, tokens: int) -> Spent:
        """Enters a call, before it is made.

        Args:
            tokens: the most that it may use.

        Returns:
            The entry, which :meth:`settle` corrects.

        Raises:
            SummariserError: the budget does not allow it.
        """
        now_ms = self._clock.monotonic_ms()
        while self._spent and self._spent[0].at_ms <= now_ms - HOUR_MS:
            self._spent.popleft()
        if len(self._spent) >= self._calls_max:
            raise SummariserError(f"budget is spent: {len(self._spent)} calls within an hour, the limit")
        used = sum(entry.tokens for entry in self._spent)
        if used + tokens > self._tokens_max:
            raise SummariserError(
                f"budget is spent: {used} tokens within an hour and {tokens} more, the limit is {self._tokens_max}"
            )
        entry = Spent(now_ms, tokens)
        self._spent.append(entry)
        return entry

    @staticmethod
    def settle(entry: Spent, tokens: int) -> None:
        """Corrects an entry by what an endpoint says was used, to twice the estimate at most: it may say anything."""
        if tokens > 0:
            entry.tokens = min(tokens, 2 * entry.tokens)
