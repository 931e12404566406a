"""Two replicas decide about the same thousand claims while one and Weaviate are killed: each is a fact, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.effort import effort
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis
from tests.support.weaviate import needs_weaviate

from noosphere.client import Candidate, Client, connect

pytestmark = [needs_redis, needs_etcd, needs_weaviate, pytest.mark.campaign]

FACTS = effort(600, 2_000)
OWNERS = tuple(f"user/u{at}" for at in range(4))
BATCH = 50
SECONDS_MAX = 3_600.0
PAUSE_SECONDS = 0.5


def claims() -> list[list[Candidate]]:
    """Returns batches of claims, each of one owner."""
    made = [
        [
            Candidate(f"Crate c{at:x}q has the seal s{at * 7919:x}z", owner, said_by="internal")
            for at in range(first, FACTS, len(OWNERS))
        ]
        for first, owner in enumerate(OWNERS)
    ]
    return [of[start : start + BATCH] for of in made for start in range(0, len(of), BATCH)]


async def all_decided(client: Client) -> None:
    """Waits until no candidate waits or is with a worker."""
    while True:
        queues = [await client.facts.upkeep(owner, timeout=SECONDS_MAX) for owner in OWNERS]
        if not any(queue.waiting + queue.leased for queue in queues):
            return
        await asyncio.sleep(PAUSE_SECONDS)


@pytest.mark.timeout(SECONDS_MAX)
async def test_each_claim_of_two_replicas_is_one_fact_whatever_is_killed(tmp_path: Path) -> None:
    batches = claims()
    acknowledged: list[str] = []
    more = asyncio.Condition()

    async def propose(addresses: list[str], name: str) -> None:
        # Everything is proposed at both replicas, which decide about the same at once.
        async with connect(",".join(addresses), agent=name, in_order=True, timeout=SECONDS_MAX) as client:
            for batch in batches:
                ids = await client.facts.propose(*batch)
                async with more:
                    acknowledged.extend(ids)
                    more.notify_all()

    async def reached(share: float) -> None:
        async with more:
            await more.wait_for(lambda: len(acknowledged) >= share * 2 * FACTS)

    with Fleet(tmp_path / "fleet", servers=2, weaviate=True) as fleet:
        assert fleet.weaviate is not None
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            group.create_task(propose(fleet.addresses, "cli/a"))
            group.create_task(propose(fleet.addresses[::-1], "cli/b"))
            await reached(0.3)
            fleet.servers[0].kill()
            await reached(0.5)
            await asyncio.to_thread(fleet.servers[0].restart)
            await reached(0.7)
            await asyncio.to_thread(fleet.weaviate.restart)
        assert len(set(acknowledged)) == 2 * FACTS
        async with asyncio.timeout(SECONDS_MAX), connect(fleet.address, agent="cli/c", timeout=SECONDS_MAX) as client:
            await all_decided(client)
            for owner in OWNERS:
                known = Counter([fact.text async for fact in client.facts.list(owner)])
                assert known == Counter(one.text for batch in batches for one in batch if one.owner == owner)
            for batch in batches[:: max(1, len(batches) // 20)]:
                hits = await client.facts.search(batch[0].text, owner=batch[0].owner)
                assert [hit.text for hit in hits][:1] == [batch[0].text], "its words are on Weaviate"
