"""How often a call asks the store, each time of which is a round trip where the store is far away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.api import Agent, counter
from tests.support.engine import LocalServer, local_server

SPACE = "shared/s"
METHODS = ("read", "scan", "commit", "changes", "stats", "due")


class Asked:
    """Notes what a server's store is asked."""

    def __init__(self, server: LocalServer) -> None:
        self.calls: list[str] = []
        store = server.engine.store
        for name in METHODS:
            setattr(store, name, self._noting(name, getattr(store, name)))

    def _noting(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return await method(*args, **kwargs)

        return called


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path) as started:
        yield started


async def test_a_write_of_one_key_asks_twice_also_where_it_makes_it(server: LocalServer) -> None:
    agent = Agent(server.api, await server.api.open_agent("a"))
    await agent.put(SPACE, "known", 1, expected=0)
    asked = Asked(server)
    made = await agent.put(SPACE, "k", 1, expected=0)
    await agent.put(SPACE, "k", 2, expected=made.version)
    await agent.merge(SPACE, counter("n"))
    await agent.merge(SPACE, counter("n"))
    await agent.delete(SPACE, "k", blind=True)
    assert asked.calls == ["read", "commit"] * 5


async def test_a_read_of_one_key_asks_once(server: LocalServer) -> None:
    agent = Agent(server.api, await server.api.open_agent("a"))
    await agent.put(SPACE, "k", 1, expected=0)
    asked = Asked(server)
    await agent.get(SPACE, "k")
    await agent.get(SPACE, "nothing")
    assert asked.calls == ["read"] * 2
