"""Writes that are decided on what the process wrote last, without reading: fewer round trips, and the same outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_round_trips import SPACE, Asked
from tests.support.api import Agent, data
from tests.support.engine import LocalServer, local_server
from tests.support.statuses import refusal

from noosphere.consistency import Reason
from noosphere.server.memory import guesses
from noosphere.server.storage.embedded import EmbeddedStore
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalServer]:
    """A server whose store passes for one that is far away."""
    monkeypatch.setattr(EmbeddedStore, "remote", True)
    async with local_server(tmp_path) as started:
        yield started


@pytest.fixture
async def agent(server: LocalServer) -> Agent:
    return Agent(server.api, await server.api.open_agent("a"))


Elsewhere = Callable[[Awaitable[Any]], Awaitable[Any]]


@pytest.fixture
def elsewhere(server: LocalServer) -> Elsewhere:
    """Does what another replica would: this one does not learn of it."""

    async def done(call: Awaitable[Any]) -> Any:
        known = server.engine.memory.writes._guesses
        entries, views = known._entries.copy(), known._views.copy()
        result = await call
        known._entries, known._views = entries, views
        return result

    return done


async def test_what_was_just_written_is_replaced_in_one_step(server: LocalServer, agent: Agent) -> None:
    version = (await agent.put(SPACE, "k", 0, expected=0)).version
    asked = Asked(server)
    for number in range(1, 5):
        version = (await agent.put(SPACE, "k", number, expected=version)).version
    await agent.delete(SPACE, "k", expected=version)
    assert asked.calls == ["commit"] * 5
    assert (await agent.get(SPACE, "k")).version == 0


async def test_a_store_that_is_near_is_read(tmp_path: Path) -> None:
    async with local_server(tmp_path) as near:
        agent = Agent(near.api, await near.api.open_agent("a"))
        version = (await agent.put(SPACE, "k", 0, expected=0)).version
        asked = Asked(near)
        await agent.put(SPACE, "k", 1, expected=version)
        assert asked.calls == ["read", "commit"]


async def test_who_was_overtaken_elsewhere_is_refused_with_what_is_there_now(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    theirs = await elsewhere(agent.put(SPACE, "k", 2, expected=mine.version))
    with refusal(Reason.VERSION_MISMATCH) as refused:
        await agent.put(SPACE, "k", 3, expected=mine.version)
    assert refused.conflict().version == theirs.version
    assert refused.head == theirs.revision
    assert data(await agent.get(SPACE, "k")) == b"2"


async def test_another_version_than_the_last_is_read_for(
    server: LocalServer, agent: Agent, elsewhere: Elsewhere
) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    theirs = await elsewhere(agent.put(SPACE, "k", 2, expected=mine.version))
    asked = Asked(server)
    await agent.put(SPACE, "k", 3, expected=theirs.version)
    assert asked.calls == ["read", "commit"]


async def test_what_was_deleted_elsewhere_does_not_come_back(agent: Agent, elsewhere: Elsewhere) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    await elsewhere(agent.delete(SPACE, "k", expected=mine.version))
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(SPACE, "k", 2, expected=mine.version)


async def test_a_namespace_that_was_deleted_elsewhere_stays_deleted(
    server: LocalServer, agent: Agent, elsewhere: Elsewhere
) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    store, directory = server.engine.store, server.engine.memory.core.directory
    await elsewhere(store.drop(await directory.resolve(SPACE), None))
    with refusal(Reason.NAMESPACE_DELETED):
        await agent.put(SPACE, "k", 2, expected=mine.version)


async def test_what_has_expired_is_not_replaced(server: LocalServer, agent: Agent) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0, ttl_ms=1_000)
    server.clock.advance(2_000)
    with refusal(Reason.VERSION_MISMATCH) as refused:
        await agent.put(SPACE, "k", 2, expected=mine.version)
    assert refused.conflict().version == 0


async def test_a_repeated_call_is_answered_as_it_was(agent: Agent) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    call = agent.call(sequence=1)
    first = await agent.put(SPACE, "k", 2, expected=mine.version, call=call)
    again = await agent.put(SPACE, "k", 2, expected=mine.version, call=call)
    assert (again.replayed, again.version) == (True, first.version)
    with refusal(Reason.REQUEST_ID_REUSED):
        await agent.put(SPACE, "k", 3, expected=first.version, call=call)


async def test_who_was_followed_by_a_later_incarnation_writes_nothing(server: LocalServer, agent: Agent) -> None:
    mine = await agent.put("agents/a", "k", 1, expected=0)
    await server.api.open_agent("a", takeover=True)
    with refusal(Reason.STALE_INCARNATION):
        await agent.put("agents/a", "k", 2, expected=mine.version)


async def test_a_fence_that_somebody_has_passed_elsewhere_holds(agent: Agent, elsewhere: Elsewhere) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    await elsewhere(agent.put(SPACE, "other", 1, expected=0, call=agent.call(fences={"lock": 8})))
    with refusal(Reason.STALE_FENCE):
        await agent.put(SPACE, "k", 2, expected=mine.version, call=agent.call(fences={"lock": 7}))


async def test_a_value_that_is_too_large_is_refused(agent: Agent) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(SPACE, "k", "x" * 2_000, expected=mine.version)


async def test_a_new_policy_counts_for_what_was_written_before(server: LocalServer, agent: Agent) -> None:
    mine = await agent.put(SPACE, "k", 1, expected=0)
    await server.api.set_policy(types.NamePattern(prefix=SPACE), types.NamespacePolicy(item_bytes_max=64))
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(SPACE, "k", "x" * 65, expected=mine.version)


async def test_what_is_kept_has_limits(server: LocalServer, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "ENTRIES_MAX", 2)
    monkeypatch.setattr(guesses, "SPACES_MAX", 1)
    monkeypatch.setattr(guesses, "ENTRY_BYTES_MAX", 200)
    first = await agent.put(SPACE, "a", 1, expected=0)
    for key in "bc":
        await agent.put(SPACE, key, 1, expected=0)
    large = await agent.put(SPACE, "c", "x" * 200, blind=True)
    await agent.put("shared/other", "k", 1, expected=0)
    asked = Asked(server)
    await agent.put(SPACE, "a", 2, expected=first.version)
    await agent.put(SPACE, "c", 2, expected=large.version)
    assert asked.calls == ["read", "commit"] * 2
