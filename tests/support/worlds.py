"""What the behaviour suite runs in: the same tests against handlers in this process and against the real binary."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Protocol

import pytest
from tests.support.api import Agent, Api
from tests.support.engine import LocalServer
from tests.support.etcd import needs_etcd
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.transport import Transport

_POLL_MS_MAX = 5_000

DIRECT = pytest.mark.parametrize(
    "world",
    [
        "in process",
        pytest.param("two replicas", marks=pytest.mark.campaign),
        "over a socket",
        pytest.param("over a fleet", marks=[needs_redis, needs_etcd]),
    ],
    indirect=True,
)
"""For services whose calls no stream of batches carries: the other two worlds would do the same as the socket."""


class World(Protocol):
    """A server and ways to let its time pass.

    Attributes:
        kept: its engine, and what is safe there.
    """

    kept: tuple[str, str]

    @property
    def api(self) -> Api:
        """Calls it."""
        ...

    async def elapse(self, by_ms: int) -> None:
        """Returns once at least so much store time has passed."""
        ...

    def space(self, name: str = "plan") -> str:
        """Returns the name of a shared namespace that no other test uses."""
        ...

    async def agent(self, name: str = "a") -> Agent:
        """Opens an agent whose name no other test uses."""
        ...


class _Names:
    def __init__(self) -> None:
        self._run = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)

    def space(self, name: str = "plan") -> str:
        return f"shared/{self._run}/{name}-{next(self._numbers)}"

    def agent_id(self, name: str) -> str:
        return f"{name}-{self._run}-{next(self._numbers)}"


class LocalWorld(_Names):
    """Handlers in this process; time passes when the test says so."""

    kept = "embedded", "os"

    def __init__(self, server: LocalServer) -> None:
        super().__init__()
        self.server = server

    @property
    def api(self) -> Api:
        """Calls the handlers."""
        return self.server.api

    async def elapse(self, by_ms: int) -> None:
        """Moves the clock."""
        await self.server.elapse(by_ms)

    async def agent(self, name: str = "a") -> Agent:
        """Opens an agent."""
        return await self.api.agent(self.agent_id(name))


class SocketWorld(_Names):
    """A real server process behind a socket, or several; time passes by itself."""

    def __init__(
        self, server: ServerProcess, transport: Transport, kept: tuple[str, str] = ("embedded", "fsync")
    ) -> None:
        super().__init__()
        self.kept = kept
        self.server = server
        self._api = Api(transport)

    @property
    def api(self) -> Api:
        """Calls the process."""
        return self._api

    async def elapse(self, by_ms: int) -> None:
        """Waits until the server's own clock has gone so far."""
        assert by_ms <= _POLL_MS_MAX, "too long to wait for in real time; test this in process"
        end_ms = await self._now_ms() + by_ms
        while (left_ms := end_ms - await self._now_ms()) > 0:  # noqa: ASYNC110 # no event tells another's clock
            await asyncio.sleep(left_ms / 1000)

    async def agent(self, name: str = "a") -> Agent:
        """Opens an agent."""
        return await self.api.agent(self.agent_id(name))

    async def _now_ms(self) -> int:
        return (await self.api.info()).store_time.ToMilliseconds()
