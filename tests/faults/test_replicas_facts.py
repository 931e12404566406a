"""Candidates proposed at many replicas: each waits once, whatever is killed, and what a failover loses is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.lab import until
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis

from noosphere.client import AckedWritesLost, Candidate, Client, EntryNotFound, connect

pytestmark = [needs_redis, needs_etcd, pytest.mark.campaign]

USER = "user/42"
ROUNDS = 30
A_ROUND = 5
SECONDS_MAX = 240.0


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Fleet]:
    """Three replicas on a Redis that answers when it has synced."""
    with Fleet(tmp_path / "fleet", redis={"appendfsync": "always"}) as made:
        yield made


async def waiting(client: Client) -> int:
    """Returns how many candidates wait, or are with a worker."""
    found = await client.facts.upkeep(USER, timeout=60)
    return found.waiting + found.leased


def claims(name: str, number: int) -> list[Candidate]:
    return [Candidate(f"{name} has seen the number {number}-{at}", owner=USER) for at in range(A_ROUND)]


async def test_candidates_of_three_replicas_wait_once_whatever_is_killed(lasting: Fleet) -> None:
    fleet = lasting
    acknowledged: list[str] = []
    names = "abc"

    async def propose(address: str, name: str) -> None:
        async with connect(address, agent=name, timeout=120) as client:
            for number in range(ROUNDS):
                acknowledged.extend(await client.facts.propose(*claims(name, number)))

    async def reached(share: float) -> None:
        await until(lambda: len(acknowledged) >= share * len(names) * ROUNDS * A_ROUND)

    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        for address, name in zip(fleet.addresses, names, strict=True):
            group.create_task(propose(address, name))
        await reached(0.2)
        fleet.servers[1].kill()
        await asyncio.to_thread(fleet.servers[1].restart)
        await reached(0.5)
        await asyncio.to_thread(fleet.primary.restart)
        await reached(0.75)
        fleet.servers[2].kill()
        await asyncio.to_thread(fleet.servers[2].restart)
    assert len(set(acknowledged)) == len(acknowledged) == len(names) * ROUNDS * A_ROUND
    for address in fleet.addresses:
        async with connect(address, agent="reader", takeover=True, timeout=60) as reader:
            assert await waiting(reader) == len(acknowledged), "each waits, and waits once"
            for candidate_id in acknowledged[::25]:
                state = await reader.facts.candidate(candidate_id)
                assert state.decision.status == "queued"
                assert [why.reason for why in state.decision.reasons] == ["no_store"]


async def test_what_a_failover_has_lost_is_told_to_whoever_proposed_it_and_may_come_again(lasting: Fleet) -> None:
    fleet = lasting
    async with asyncio.timeout(SECONDS_MAX):
        async with (
            connect(fleet.addresses[0], agent="a", timeout=60) as a,
            connect(fleet.addresses[1], agent="b", timeout=60) as b,
            connect(fleet.addresses[2], agent="c", timeout=60) as c,
        ):
            kept = [*await a.facts.propose(*claims("a", 0)), *await b.facts.propose(*claims("b", 0))]
            fleet.cut_replica_off()
            lost = [*await a.facts.propose(*claims("a", 1)), *await b.facts.propose(*claims("b", 1))]
            assert await waiting(c) == len(kept) + len(lost)
            fleet.fail_over(lose=True)
            # Both presented what they had been told; each hears of it, once.
            with pytest.raises(AckedWritesLost) as caught:
                await a.facts.candidate(lost[0])
            assert caught.value.namespace == f"facts/{USER}"
            with pytest.raises(AckedWritesLost):
                await b.facts.propose(*claims("b", 2))
            assert await waiting(c) == len(kept), "nothing of it was done"
            with pytest.raises(EntryNotFound):
                await c.facts.candidate(lost[0])
            for candidate_id in kept:
                assert (await c.facts.candidate(candidate_id)).decision.status == "queued"
            again = [*await a.facts.propose(*claims("a", 1)), *await b.facts.propose(*claims("b", 1))]
            assert await waiting(c) == len(kept) + len(again)
