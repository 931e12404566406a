"""The test kit for code without an event loop: the same server, time and faults, and the sync client.

::

    with noosphere.testing.sync.server() as srv, srv.client("planner-0") as client:
        srv.faults.conflict_next("shared/launch", "plan", {"steps": ["theirs"]})
        revise_plan(client)
        srv.advance(60)

Everything runs on the one background thread of the sync clients; the names are those of ``noosphere.testing``.
Of the test's own threads it knows the calls that they wait for, not what they do in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from noosphere import testing as aio
from noosphere.client import Key as AsyncKey
from noosphere.client.sync import Client, Key, connect
from noosphere.client.sync._block import Block
from noosphere.client.sync._portal import Portal
from noosphere.client.sync._process import borrow, give_back

from ._faults import RIVAL, UnmetFaults

__all__ = ["Faults", "Server", "UnmetFaults", "server"]

P = ParamSpec("P")
R = TypeVar("R")


class Faults:
    """See ``noosphere.testing.Faults``."""

    def __init__(self, portal: Portal, inner: aio.Faults) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def unmet(self) -> tuple[str, ...]:
        """What was asked for and has not happened yet, in words."""
        return self._portal.run(_now, lambda: self._inner.unmet)

    def conflict_next(self, namespace: str, key: str, value: Any, *, agent: str = RIVAL) -> None:
        """Has another agent replace a key just before the next write of it."""
        self._portal.run(_now, self._inner.conflict_next, namespace, key, value, agent=agent)

    def before_write(self, namespace: str, key: str, act: Callable[[Key[Any]], object], *, agent: str = RIVAL) -> None:
        """Has another agent do something just before the next write of a key; ``act`` runs in a thread."""

        async def in_a_thread(theirs: AsyncKey[Any]) -> None:
            await asyncio.to_thread(act, Key(self._portal, theirs))

        self._portal.run(_now, self._inner.before_write, namespace, key, in_a_thread, agent=agent)

    def drop_reply(self, n: int = 1, *, method: str | None = None, agent: str | None = None) -> None:
        """Loses the replies to the next calls; the server executes them."""
        self._portal.run(_now, self._inner.drop_reply, n, method=method, agent=agent)

    def delay(self, seconds: float, n: int = 1, *, method: str | None = None, agent: str | None = None) -> None:
        """Holds the next calls back until time was moved on: by another thread, for the caller waits."""
        self._portal.run(_now, self._inner.delay, seconds, n, method=method, agent=agent)

    def fail_over(self, lose: int = 0) -> None:
        """Breaks every connection and begins a new epoch, without the last ``lose`` commits."""
        self._portal.run(self._inner.fail_over, lose)

    @contextmanager
    def suspended(self, agent: str) -> Iterator[None]:
        """Stops the clock of an agent inside the block."""
        suspension = self._inner.suspended(agent)
        self._portal.run(_now, suspension.__enter__)
        try:
            yield
        finally:
            self._portal.run(_now, suspension.__exit__, None, None, None)


class Server:
    """See ``noosphere.testing.Server``.

    Attributes:
        faults: what is to go wrong.
    """

    def __init__(self, portal: Portal, inner: aio.Server) -> None:
        self._portal = portal
        self._inner = inner
        self.faults = Faults(portal, inner.faults)

    @property
    def address(self) -> str:
        """Where it listens, as ``host:port``; stays the same over restarts."""
        return self._inner.address

    @property
    def now(self) -> datetime:
        """Store time, in UTC."""
        return self._portal.run(_now, lambda: self._inner.now)

    @property
    def epoch(self) -> int:
        """The store's present epoch."""
        return self._portal.run(_now, lambda: self._inner.epoch)

    def client(
        self, agent: str | None = None, *, takeover: bool = False, timeout: float = 5.0
    ) -> AbstractContextManager[Client]:
        """Connects as an agent: ``noosphere.client.sync.connect`` with the server's address."""
        return connect(self.address, agent=agent, takeover=takeover, timeout=timeout)

    def advance(self, seconds: float) -> None:
        """Moves time on, from event to event."""
        self._portal.run(self._inner.advance, seconds)

    def settle(self) -> None:
        """Returns once every call is answered, or waits for time to move."""
        self._portal.run(self._inner.settle)

    def restart(self) -> None:
        """Stops in good order and starts again on the same folder and port."""
        self._portal.run(self._inner.restart)


@contextmanager
def server(*, allow_unmet_faults: bool = False) -> Iterator[Server]:
    """Runs a server of the test's own for the length of the block; see ``noosphere.testing.server``."""
    portal = borrow()
    try:
        block = Block(portal, aio.server(allow_unmet_faults=allow_unmet_faults))
        inner = block.enter()
        try:
            yield Server(portal, inner)
        except BaseException as error:
            block.leave(error)
            raise
        else:
            block.leave(None)
    finally:
        give_back(portal)


async def _now(step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs a short step on the loop, where alone the kit's state may be touched."""
    return step(*args, **kwargs)
