"""Many callers of one server at one key, on a store whose reads do not see commits that are still under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.api import Agent, counter, data
from tests.support.engine import LocalServer, local_server
from tests.support.statuses import Refused

from noosphere.consistency import Reason
from noosphere.server.storage.embedded import EmbeddedStore

CALLERS = 100
"""More than a write has attempts."""


class Distant:
    """Has every call of a store take a while, in which others make theirs, as those of one elsewhere do."""

    def __init__(self, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(EmbeddedStore, "remote", True)
        self.commits = 0
        store = server.engine.store
        for name in ("read", "commit"):
            setattr(store, name, self._slow(name, getattr(store, name)))

    def _slow(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*args: Any, **kwargs: Any) -> Any:
            self.commits += name == "commit"
            for _ in range(20):
                await asyncio.sleep(0)
            return await method(*args, **kwargs)

        return called


async def test_operations_of_many_callers_apply_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with local_server(tmp_path) as server:
        agent = Agent(server.api, await server.api.open_agent("a"))
        await agent.merge("shared/s", counter("k", 0))
        distant = Distant(server, monkeypatch)
        await asyncio.gather(*(agent.merge("shared/s", counter("k")) for _ in range(CALLERS)))
        assert data(await agent.get("shared/s", "k")) == str(CALLERS).encode()
        # All the first attempts, of which one was made; from then on none in vain.
        assert distant.commits < 2 * CALLERS


async def test_of_callers_that_have_seen_the_same_one_writes_and_the_others_hardly_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_server(tmp_path) as server:
        agent = Agent(server.api, await server.api.open_agent("a"))
        seen = (await agent.put("shared/s", "k", 0, expected=0)).version
        distant = Distant(server, monkeypatch)
        rounds = 5
        for _ in range(rounds):
            seen = await _one_of_many(agent, seen)
        # In the first round nobody knew of the others.
        assert distant.commits < CALLERS + 2 * rounds


async def _one_of_many(agent: Agent, seen: int) -> int:
    """Has all callers replace one version; returns the version after it."""

    async def write(number: int) -> int:
        try:
            return (await agent.put("shared/s", "k", number, expected=seen)).version
        except Refused as error:
            if error.reason != Reason.VERSION_MISMATCH.value:
                raise
            return 0

    written = [version for version in await asyncio.gather(*map(write, range(CALLERS))) if version]
    assert len(written) == 1
    return written[0]
