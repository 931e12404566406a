"""Replicas whose network is parted from etcd, from Redis or from both: who cannot be sure serves nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.netns import Link, network_namespace
from tests.support.process import NOOSPHERE, ServerProcess
from tests.support.proxy import proxied
from tests.support.redis import needs_redis

from noosphere.client import AckedWritesLost, Client, RetryPolicy, Unavailable, connect
from noosphere.consistency import Reason

pytestmark = [needs_redis, needs_etcd, pytest.mark.timeout(300)]

SPACE = "shared/s"
ONCE = RetryPolicy(attempts_max=1)
"""So that the replica's own word is heard."""
SECONDS_MAX = 120.0
"""A bound against hanging, far above any lease."""


class Apart:
    """A fleet of one replica as ever, and one in a network of its own.

    Attributes:
        fleet: the engines, and both replicas.
        here: the address of the one that is never parted.
        there: the address of the one that is.
        etcd: the cable from that one to etcd.
        redis: its cable to both Redis.
    """

    def __init__(self, fleet: Fleet, here: str, there: str, etcd: Link, redis: Link) -> None:
        self.fleet = fleet
        self.here = here
        self.there = there
        self.etcd = etcd
        self.redis = redis


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    with network_namespace() as inside, contextlib.ExitStack() as stack:
        etcd, redis = inside.link(), inside.link()
        fleet = stack.enter_context(Fleet(tmp_path / "fleet", servers=1))
        assert fleet.replica is not None
        doors = [
            stack.enter_context(proxied(f"127.0.0.1:{server.port}", f"{redis.here}:0"))
            for server in (fleet.primary, fleet.replica)
        ]
        door = stack.enter_context(proxied(fleet.etcd.endpoint, f"{etcd.here}:0"))
        config = tmp_path / "apart.toml"
        urls = ",".join(f"redis://{proxy.address}" for proxy in doors)
        config.write_text(f'redis_urls = "{urls}"\netcd_endpoints = "{door.address}"\n')
        server = ServerProcess(
            tmp_path / "no-data", ("--config", str(config), *OPTIONS), (*inside.command, str(NOOSPHERE))
        )
        fleet.servers.append(server)
        server.start()
        # Its clients are never parted from it: they come in by the back door.
        back = stack.enter_context(proxied(server.address, enter=inside.enter))
        yield Apart(fleet, fleet.servers[0].address, back.address, etcd, redis)


async def refused(client: Client) -> None:
    """Returns once a read and a write are refused because an engine cannot be reached."""
    space = client.namespace(SPACE)
    async with asyncio.timeout(SECONDS_MAX):
        for call in (lambda: space.get("k"), lambda: space.key("k").increment(1)):
            while True:
                try:
                    await call()
                except Unavailable as error:
                    if error.reason == Reason.ENGINE_UNAVAILABLE:
                        break


async def served(client: Client) -> None:
    """Returns once a write and a read are served again."""
    space = client.namespace(SPACE)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with contextlib.suppress(Unavailable):
                await space.key("k").increment(1)
                assert await space.get("k", int) is not None
                return


async def put(client: Client, key: str) -> None:
    """Writes a key; a slow engine may be taken for one that cannot be reached."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with contextlib.suppress(Unavailable):
                await client.namespace(SPACE).put(key, 1, blind=True)
                return


@pytest.mark.parametrize("cut", [("etcd",), ("redis",), ("etcd", "redis")], ids="+".join)
async def test_a_replica_that_is_parted_serves_nobody_until_it_is_back(apart: Apart, cut: tuple[str, ...]) -> None:
    async with (
        connect(apart.here, agent="here", timeout=60) as here,
        connect(apart.there, agent="there", timeout=60, retry=ONCE) as there,
    ):
        await served(here)
        await served(there)
        for name in cut:
            getattr(apart, name).cut()
        await refused(there)
        # Whoever is not parted is not concerned.
        for _ in range(20):
            await here.namespace(SPACE).key("n").increment(1)
        for name in cut:
            getattr(apart, name).heal()
        await served(there)
        record = await there.namespace(SPACE).get("n", int)
        assert record is not None
        assert record.value == 20


async def test_a_replica_that_was_parted_while_redis_failed_over_tells_of_the_loss(apart: Apart) -> None:
    async with (
        connect(apart.here, agent="here", timeout=60) as here,
        connect(apart.there, agent="there", timeout=60, retry=ONCE) as there,
    ):
        await put(there, "kept")
        apart.fleet.cut_replica_off()
        await put(there, "lost")
        apart.etcd.cut()
        apart.redis.cut()
        apart.fleet.fail_over(lose=True)
        await here.namespace(SPACE).put("after", 1)
        await refused(there)
        apart.redis.heal()
        apart.etcd.heal()
        await served(there)
        with pytest.raises(AckedWritesLost) as caught:
            await there.namespace(SPACE).get("kept", consistency="causal")
        assert [write.key for write in caught.value.own_writes] == ["lost"]
        found = await there.namespace(SPACE).get_many(["kept", "lost", "after"])
        assert [record.exists for record in found] == [True, False, True]
