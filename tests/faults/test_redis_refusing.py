"""A Redis that takes no writes, or stands still: nothing is half done, and it is used again."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.build import commit, head, put, write
from tests.faults.conftest import opened
from tests.support.redis import RedisProcess, needs_redis

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, engine, wire

pytestmark = needs_redis

A, B = (NamespaceRef(f"shared/{name}") for name in "ab")


async def test_a_redis_that_stands_still_is_noticed_and_used_again(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REPLY_SECONDS_MAX", 0.2)
    monkeypatch.setattr(engine, "CALL_SECONDS_MAX", 0.5)
    first = await write(store, put("a"), namespace=A)
    primary.pause()
    results = await asyncio.gather(
        commit(store, put("a", b"once"), namespace=A), store.read(A, ("a",)), return_exceptions=True
    )
    assert [getattr(result, "reason", None) for result in results] == [Reason.ENGINE_UNAVAILABLE] * 2
    primary.resume()
    monkeypatch.undo()
    assert await head(store, A) == first + 1, "what was on its way was executed when it went on, and once"
    assert len(await coordinator.epochs()) == 2, "nothing was lost, so no epoch begins"


async def test_a_redis_that_is_full_takes_no_part_of_a_commit(store: RedisStore, primary: RedisProcess) -> None:
    before = await write(store, put("a"), namespace=A)
    primary.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Refusal) as refused:
        await commit(store, put("a", b"new"), put("b"), namespace=A)
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    assert await head(store, A) == before
    await store.compact(A, before)
    primary.ask("CONFIG", "SET", "maxmemory", 0)
    assert await write(store, put("b"), namespace=A) == before + 1


async def test_a_redis_that_misses_replicas_writes_nothing_and_is_used_again(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    before = await write(store, put("a"), namespace=A)
    primary.ask("CONFIG", "SET", "min-replicas-to-write", 2)
    with pytest.raises(Refusal) as refused:
        await commit(store, put("b"), namespace=A)
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    primary.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await head(store, A) == before
    assert await write(store, put("b"), namespace=A) == before + 1
    assert len(await coordinator.epochs()) == 2, "it was the same Redis all the time"


async def test_a_redis_that_refuses_writes_is_read_on(store: RedisStore, primary: RedisProcess) -> None:
    head_before = await write(store, put("a", b"there"), namespace=A)
    primary.ask("CONFIG", "SET", "min-replicas-to-write", 2)
    for _ in range(3):
        # What is refused to one does not break off what others read.
        refused = asyncio.create_task(commit(store, put("b"), namespace=A))
        for _ in range(20):
            read = await store.read(A, ("a",))
            assert (read.view.head, read.entries[0] is not None) == (head_before, True)
            assert [entry.key for entry in (await store.scan(A, "", limit=5)).entries] == ["a"]
            await store.changes(A, 0, 5)
            assert (await store.stats(A)).record_count == 1
            assert [found.ref for found in await store.namespaces("", "", 5)] == [A]
            assert not (await store.read(B, ("a",))).view.exists
        with pytest.raises(Refusal) as caught:
            await refused
        assert caught.value.reason is Reason.ENGINE_UNAVAILABLE
    primary.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await write(store, put("b"), namespace=A) == head_before + 1


async def test_what_nobody_has_used_in_the_epoch_is_not_read_while_writes_are_refused(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    await write(store, put("a"), namespace=A)
    await write(store, put("a"), namespace=B)
    await store.close()
    primary.restart()
    again = await opened(coordinator, primary)
    try:
        await again.read(A, ("a",))
        primary.ask("CONFIG", "SET", "min-replicas-to-write", 2)
        assert (await again.read(A, ("a",))).entries[0] is not None
        with pytest.raises(Refusal) as refused:
            await again.read(B, ("a",))
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        primary.ask("CONFIG", "SET", "min-replicas-to-write", 0)
        assert (await again.read(B, ("a",))).entries[0] is not None
    finally:
        await again.close()


async def test_a_primary_that_became_a_replica_while_it_refused_writes_is_not_read(
    store: RedisStore, primary: RedisProcess
) -> None:
    await write(store, put("a"), namespace=A)
    primary.ask("CONFIG", "SET", "min-replicas-to-write", 2)
    assert (await store.read(A, ("a",))).entries[0] is not None
    primary.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(Refusal) as refused:
        await store.read(A, ("a",))
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
