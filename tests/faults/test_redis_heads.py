"""Who follows a namespace on Redis is told what moved, over failovers and broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.contract.build import head, put, write
from tests.faults.conftest import opened
from tests.support.redis import RedisProcess, needs_redis
from tests.support.redis_pair import cut_off, fail_over

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import HeadMoved, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore

pytestmark = needs_redis

A, B, C = (NamespaceRef(f"shared/{name}") for name in "abc")


async def heard(feed: AsyncIterator[HeadMoved], moved: dict[NamespaceRef, int]) -> None:
    """Returns when the last that is told of each namespace is this."""
    told: dict[bytes, int] = {}
    async with asyncio.timeout(60):
        while any(told.get(ref.storage_id) != revision for ref, revision in moved.items()):
            told.update([await anext(feed)])


async def test_heads_go_on_after_a_failover_and_tell_what_moved_meanwhile(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    revision = await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    feed = store.heads()
    for ref in (A, B):
        await store.follow(ref)
    lost = await write(store, put("a"), namespace=A)
    assert (await anext(feed)).head == lost
    fail_over(primary, replica)
    late = await opened(coordinator, replica)
    try:
        moved = await write(late, put("a"), namespace=A)
    finally:
        await late.close()
    assert moved > revision
    await heard(feed, {A: moved})
    later = await write(store, put("b"), namespace=B)
    await heard(feed, {B: later})


async def test_what_is_followed_is_told_again_when_its_connection_was_gone(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    await write(store, put("a"), namespace=C)
    other = await opened(coordinator, primary)
    feed = store.heads()
    try:
        for ref in (A, B):
            await store.follow(ref)
        for _ in range(3):
            assert primary.ask("CLIENT", "KILL", "TYPE", "pubsub") == 1, "one connection carries all of them"
            # While nobody listens, or just again.
            await heard(feed, {ref: await write(other, put("a"), namespace=ref) for ref in (A, B)})
        store.unfollow(B)
        await write(other, put("b"), namespace=B)
        await heard(feed, {A: await write(other, put("b"), namespace=A)})
        assert primary.ask("PUBSUB", "SHARDCHANNELS") == [f"noosphere:{{{A.storage_id.hex()}}}:heads:0".encode()]
    finally:
        await other.close()


async def test_following_fails_where_nobody_can_tell_and_holds_nothing(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess
) -> None:
    feed = store.heads()
    await store.follow(B)
    cut_off(primary, replica)
    primary.kill()
    # A listens nowhere yet; B does again as soon as somebody is there.
    with pytest.raises(Refusal) as refused:
        await store.follow(A)
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    with pytest.raises(ValueError, match="not followed"):
        store.unfollow(A)
    replica.promote()
    await head(store, B)
    await store.follow(A)
    await heard(feed, {ref: await write(store, put("a"), namespace=ref) for ref in (A, B)})
