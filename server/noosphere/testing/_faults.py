"""What a test can have go wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from noosphere.client import Client, Conflict, Key
from noosphere.consistency import Refusal, check_key, check_namespace

from ._plan import CHANGING, METHODS, Delay, Interference, LostReply, Plan, Which

RIVAL = "rival"
"""The agent that comes in between, unless another is named."""

_ATTEMPTS_MAX = 8


class UnmetFaults(AssertionError):
    """A test asked for faults that never happened, so it has tested something else."""


class Faults:
    """Faults by appointment: each happens once, when a call comes that it is meant for.

    The server does nothing that a real one would not do: conflicts come from real writes of another client,
    lost replies from calls that were executed, lost writes from a journal without its end.
    """

    def __init__(
        self,
        plan: Plan,
        fail_over: Callable[[int], Awaitable[None]],
        client: Callable[[str], Awaitable[Client]],
        is_client: Callable[[str], bool],
        suspend: Callable[[str, bool], None],
    ) -> None:
        self._plan = plan
        self._fail_over = fail_over
        self._client = client
        self._is_client = is_client
        self._suspend = suspend

    @property
    def unmet(self) -> tuple[str, ...]:
        """What was asked for and has not happened yet, in words."""
        return self._plan.unmet

    def conflict_next(self, namespace: str, key: str, value: Any, *, agent: str = RIVAL) -> None:
        """Has another agent replace a key just before the next write of it.

        The other agent reads the key and replaces what it has read, so whoever has read the key before meets
        a conflict, as the namespace's policy will have it.

        Args:
            namespace: the full name, e.g. ``shared/launch``.
            key: the key.
            value: what the other agent writes: JSON, bytes or a pydantic model.
            agent: who that is, none of the test's own clients.

        Raises:
            ValueError: a name is malformed, nobody but its owner may write there, or the other
                agent is a client of the test itself.
        """

        async def replace(theirs: Key[Any]) -> None:
            for attempt in range(1, _ATTEMPTS_MAX + 1):
                record = await theirs.read()
                try:
                    await record.replace(value)
                except Conflict:
                    if attempt == _ATTEMPTS_MAX:
                        raise
                else:
                    return

        self.before_write(namespace, key, replace, agent=agent)

    def before_write(
        self, namespace: str, key: str, act: Callable[[Key[Any]], Awaitable[object]], *, agent: str = RIVAL
    ) -> None:
        """Has another agent do something just before the next write of a key is looked at.

        Args:
            namespace: the full name.
            key: the key; a write is a put, a delete, a resolution, or part of a transaction or commit.
            act: what the other agent does, given its own handle on the key: ``lambda key: key.delete(blind=True)``.
                It may also move time, or have the server restarted or fail over.
            agent: who that is.

        Raises:
            ValueError: a name is malformed, nobody but its owner may write there, or the other
                agent is a client of the test itself.
        """
        try:
            check_namespace(namespace)
            check_key(key)
        except Refusal as refusal:
            # No write could ever meet it.
            raise ValueError(refusal.message) from None
        if self._is_client(agent):
            raise ValueError(f"agent: {agent!r} is a client of the test itself; name another")
        if namespace.startswith("agents/") and namespace != f"agents/{agent}":
            raise ValueError(f"namespace: nobody but its agent writes to {namespace!r}")

        async def meddle() -> None:
            await act((await self._client(agent)).namespace(namespace).key(key))

        self._plan.add(Interference(namespace, key, agent, meddle))

    def drop_reply(self, n: int = 1, *, method: str | None = None, agent: str | None = None) -> None:
        """Loses the replies to the next calls; the server executes them.

        Args:
            n: how many.
            method: of which method, e.g. ``Put``; None for any that changes something.
            agent: of which agent; None for any.
        """
        self._plan.add(LostReply(_which(n, method, agent)))

    def delay(self, seconds: float, n: int = 1, *, method: str | None = None, agent: str | None = None) -> None:
        """Holds the next calls back until time was moved on, before they are executed.

        Args:
            seconds: how long, by the server's clock.
            n: how many calls; each is held back on its own.
            method: of which method; None for any that changes something.
            agent: of which agent; None for any.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(f"seconds: {seconds!r} is not above 0")
        self._plan.add(Delay(_which(n, method, agent), seconds))

    async def fail_over(self, lose: int = 0) -> None:
        """Breaks every connection and begins a new epoch, as after a crash or a failover.

        Agents, rules and everything up to the loss survive; leases end. Store time never goes back, so it may
        jump ahead by some seconds.

        Args:
            lose: how many of the last commits are gone although their writers were told that they are made.
                What the server did by itself in between goes with them.

        Raises:
            ValueError: fewer were made since the server was started.
        """
        if isinstance(lose, bool) or not isinstance(lose, int) or lose < 0:
            raise ValueError(f"lose: {lose!r} is not a number of commits")
        await self._fail_over(lose)

    @contextmanager
    def suspended(self, agent: str) -> Iterator[None]:
        """Stops the clock of an agent inside the block, as if its process had been stopped.

        While time moves for everybody else it renews nothing and notices nothing. At the end of the block it
        finds how much time has passed.

        Raises:
            ValueError: no client of the agent is connected from this process.
        """
        self._suspend(agent, True)
        try:
            yield
        finally:
            self._suspend(agent, False)


def _which(n: int, method: str | None, agent: str | None) -> Which:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n: {n!r} is not a number of calls")
    if method is not None and method not in METHODS:
        raise ValueError(f"method: {method!r} is not one of {', '.join(sorted(METHODS))}")
    return Which(CHANGING if method is None else frozenset({method}), agent, n)
