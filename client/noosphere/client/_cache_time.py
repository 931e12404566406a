"""The store's clock as seen from a client: never behind it, so that nothing expired looks alive."""

from __future__ import annotations

from collections.abc import Callable

DRIFT = 1.001
"""How much faster than ours the store's clock may run; far more than what synchronised clocks differ by."""


class StoreClock:
    """An upper bound of store time, from one exchange with the server and our own monotonic clock.

    What a server tells of its clock was read after we asked. So the store's clock had not passed it when we
    asked, and has since moved as far as ours. A server that was restarted may have moved its clock on: the
    bound is forgotten with the connection.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._life = 0
        self._asked_at: float | None = None
        self._store_ms = 0

    @property
    def known(self) -> bool:
        """Whether there is a bound."""
        return self._asked_at is not None

    def ask(self) -> tuple[int, float]:
        """Returns what :meth:`told` is to be given with the answer to a question that is asked now."""
        return self._life, self._clock()

    def told(self, asked: tuple[int, float], store_ms: int) -> None:
        """Takes note of store time as a server told it, in milliseconds."""
        life, asked_at = asked
        # An answer from before the connection was lost says nothing of the clock since.
        if life == self._life:
            self._asked_at, self._store_ms = asked_at, store_ms

    def forget(self) -> None:
        """Drops the bound: the store may have moved its clock on."""
        self._asked_at = None
        self._life += 1

    def may_have_passed(self, time_ms: float) -> bool:
        """Tells whether the store's clock may have reached a time, in milliseconds."""
        asked_at = self._asked_at
        return asked_at is None or self._store_ms + (self._clock() - asked_at) * 1000 * DRIFT >= time_ms
