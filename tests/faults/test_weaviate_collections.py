"""Replicas over etcd whose Weaviate lost its disk, or that name different collections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import Cli
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.health import NOT_SERVING, SERVING, health, until_service
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.waiting import PAUSE_SECONDS
from tests.support.weaviate import needs_weaviate

from noosphere.client import Candidate, Client, DeadlineExceeded, Unavailable, connect

pytestmark = [needs_redis, needs_etcd, needs_weaviate, pytest.mark.campaign]

FACTS = "noosphere.v1.FactService"
OWNER = "shared/harbour"
SECONDS_MAX = 120.0
AWAY = (Unavailable, DeadlineExceeded)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(
        tmp_path / "fleet", servers=2, options=(*OPTIONS, "--weaviate-call-ms-max", "1000"), weaviate=True
    ) as made:
        yield made


def config_of(server: ServerProcess) -> str:
    """Returns the path of a server's configuration."""
    return str(server.options[server.options.index("--config") + 1])


async def remember(client: Client, text: str) -> str:
    """Proposes what an operator says; returns the candidate's id."""
    (one,) = await client.facts.propose(Candidate(text, OWNER, said_by="internal"))
    return one


async def written(client: Client, candidate: str) -> None:
    """Returns once a candidate is a fact."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            status = (await client.facts.candidate(candidate)).decision.status
            if status != "queued":
                break
            await asyncio.sleep(PAUSE_SECONDS)
    assert status == "written"


async def found(client: Client, query: str) -> list[str]:
    return [hit.text for hit in await client.facts.search(query, owner=OWNER, timeout=SECONDS_MAX)]


@pytest.mark.timeout(600)
async def test_both_replicas_refuse_facts_of_a_weaviate_that_lost_its_disk_until_it_is_adopted(fleet: Fleet) -> None:
    assert fleet.weaviate is not None
    one, two = fleet.addresses
    async with connect(one, agent="cli/one", timeout=60) as first, connect(two, agent="cli/two", timeout=60) as second:
        await written(second, await remember(first, "The lighthouse is green"))
        fleet.weaviate.kill()
        for address in (one, two):
            await until_service(address, NOT_SERVING, FACTS)
        fleet.weaviate.forget()
        fleet.weaviate.start()
        for client in (first, second):
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    with pytest.raises(AWAY) as refused:
                        await client.facts.search("lighthouse", owner=OWNER, timeout=5)
                    if "is gone" in str(refused.value):
                        break
        waits = await remember(second, "The quay is long")
        await first.private.put("k", 1)
        given = ("facts", "adopt", "--config", config_of(fleet.servers[0]), "--json")
        done = await asyncio.to_thread(Cli().run, *given)
        assert (done.json["collection_before"], done.json["held_facts"]) == ("NoosphereFacts", True)
        # Neither is restarted.
        for address in (one, two):
            await until_service(address, SERVING, FACTS)
        await written(first, waits)
        for client in (first, second):
            assert await found(client, "quay") == ["The quay is long"]
            assert await found(client, "lighthouse") == []


@pytest.mark.timeout(600)
async def test_a_replica_that_names_another_collection_serves_no_facts_and_harms_nobodys(fleet: Fleet) -> None:
    assert fleet.weaviate is not None
    async with connect(fleet.addresses[0], agent="cli/one", timeout=60) as first:
        await written(first, await remember(first, "The lighthouse is green"))
        other = fleet.add(weaviate=fleet.weaviate.config + 'weaviate_collection = "Elsewhere"\n')
        await until_service(other.address, NOT_SERVING, FACTS)
        assert await health(other.address) == SERVING
        async with connect(other.address, agent="cli/other", timeout=60) as client:
            await client.private.put("k", 1)
            with pytest.raises(AWAY, match="NoosphereFacts"):
                await client.facts.search("lighthouse", owner=OWNER, timeout=5)
            # What is said there the others decide.
            await written(first, await remember(client, "The quay is long"))
        assert await found(first, "quay") == ["The quay is long"]
        assert await found(first, "lighthouse") == ["The lighthouse is green"]
