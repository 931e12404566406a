"""Replicas whose facts are on Weaviate, which is killed or stopped: nothing is lost, doubled or revived."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.effort import effort
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.redis import needs_redis
from tests.support.waiting import PAUSE_SECONDS
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.client import Candidate, Client, DeadlineExceeded, Unavailable, connect

pytestmark = [needs_redis, needs_etcd, needs_weaviate, pytest.mark.campaign]

OWNER = "shared/harbour"
CALL_MS_MAX = 1_000
SECONDS_MAX = 300.0
FACTS = effort(1_000, 10_000)
"""How many facts go through two workers, one of which is killed half way."""

OWNERS = 40
A_CALL = 50
TIMEOUT = 8.0
AWAY = (Unavailable, DeadlineExceeded)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two replicas that share one Weaviate."""
    options = (*OPTIONS, "--weaviate-call-ms-max", str(CALL_MS_MAX), "--sweep-seconds", "2")
    with Fleet(tmp_path / "fleet", servers=2, options=options, weaviate=True) as made:
        yield made


@asynccontextmanager
async def operators(fleet: Fleet) -> AsyncIterator[tuple[Client, Client]]:
    """Connects somebody who is trusted without evidence to each replica."""
    async with (
        connect(fleet.addresses[0], agent="cli/one", timeout=60) as one,
        connect(fleet.addresses[1], agent="cli/two", timeout=60) as two,
    ):
        yield one, two


def claim(text: str, owner: str = OWNER, **fields: object) -> Candidate:
    """What an operator says."""
    return Candidate(text, owner, said_by="internal", **fields)  # type: ignore[arg-type] # fields of a candidate


def home(city: str) -> Candidate:
    """Where the harbour master lives, of which there is one place at a time."""
    return claim(
        f"The harbour master lives in {city}",
        subject="harbour master",
        predicate="home",
        object=city,
        cardinality="single",
    )


async def decided(client: Client, ids: Sequence[str]) -> Counter[str]:
    """Returns what became of candidates, once that is known of all."""
    statuses: Counter[str] = Counter()
    async with asyncio.timeout(SECONDS_MAX):
        for one in ids:
            while True:
                status = (await client.facts.candidate(one)).decision.status
                if status != "queued":
                    break
                await asyncio.sleep(PAUSE_SECONDS)
            statuses[str(status)] += 1
    return statuses


async def listed(client: Client, owner: str = OWNER, *, history: bool = False) -> list[str]:
    """Returns the texts of all facts of a scope."""
    return sorted([fact.text async for fact in client.facts.list(owner, include_superseded=history)])


async def found(client: Client, query: str) -> list[str]:
    return [hit.text for hit in await client.facts.search(query, owner=OWNER)]


async def until_found(client: Client, query: str) -> list[str]:
    """Returns what a search finds, once it is not refused any more."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await found(client, query)
            except Unavailable:
                await asyncio.sleep(PAUSE_SECONDS)


def killed(weaviate: WeaviateProcess) -> Callable[[], None]:
    """Kills it; returns what brings it back."""
    weaviate.kill()
    return weaviate.start


def stopped(weaviate: WeaviateProcess) -> Callable[[], None]:
    """Stops it where it stands, with all connections; returns what lets it go on."""
    weaviate.pause()
    return weaviate.resume


@pytest.mark.timeout(600)
@pytest.mark.parametrize("goes", [killed, stopped], ids=["killed", "stopped"])
async def test_while_weaviate_is_away_only_facts_wait_and_nothing_comes_back_that_was_forgotten(
    fleet: Fleet, goes: Callable[[WeaviateProcess], Callable[[], None]]
) -> None:
    assert fleet.weaviate is not None
    async with operators(fleet) as (one, two):
        before = await one.facts.propose(home("Lyon"), claim("The lighthouse is green"), claim("The quay is long"))
        assert await decided(two, before) == {"written": 3}
        (hit,) = [hit for hit in await two.facts.search("lighthouse", owner=OWNER) if "lighthouse" in hit.text]
        comes_back = goes(fleet.weaviate)
        try:
            # What moves it and what is new waits, at both.
            moves = await one.facts.propose(home("Rome"))
            waits = await two.facts.propose(*(claim(f"Crate {at} holds word{at}") for at in range(40)))
            # What is forgotten is so at once, though its words are out of reach.
            with pytest.raises(AWAY, match="Weaviate"):
                await one.facts.forget(hit.fact, timeout=TIMEOUT)
            for client in (one, two):
                # It is asked again until its time is over, and told each time why.
                with pytest.raises(AWAY, match="Weaviate"):
                    await client.facts.search("quay", owner=OWNER, timeout=TIMEOUT)
                for number in range(20):
                    await client.private.put("k", number)
                    record = await client.private.get("k")
                    assert record is not None
                    assert record.value == number
            assert (await one.facts.candidate(moves[0])).decision.status == "queued"
            assert (await two.facts.candidate(waits[-1])).decision.status == "queued"
        finally:
            comes_back()
        assert await until_found(one, "quay") == ["The quay is long"]
        assert await decided(one, [*moves, *waits]) == {"superseded": 1, "written": 40}
        for client in (one, two):
            assert await found(client, "lighthouse green") == []
            assert (await found(client, "Where does the harbour master live?"))[0] == "The harbour master lives in Rome"
            assert Counter(await listed(client)) == Counter(
                [
                    "The harbour master lives in Rome",
                    "The quay is long",
                    *(f"Crate {at} holds word{at}" for at in range(40)),
                ]
            )


@pytest.mark.timeout(3_600)
async def test_ten_thousand_facts_of_two_workers_one_of_which_is_killed_are_there_once(fleet: Fleet) -> None:
    texts: dict[str, list[str]] = {f"shared/dock-{at}": [] for at in range(OWNERS)}
    for number in range(FACTS):
        dock = number % OWNERS
        texts[f"shared/dock-{dock}"].append(f"Container {number} of dock {dock} holds cargo{number}")
    acknowledged: list[str] = []
    began = time.monotonic()
    async with operators(fleet) as (one, two):

        async def propose(owner: str) -> None:
            claims = [claim(text, owner) for text in texts[owner]]
            for start in range(0, len(claims), A_CALL):
                acknowledged.extend(await one.facts.propose(*claims[start : start + A_CALL], timeout=120))

        async def left() -> int:
            told = await two.facts.upkeep(OWNER, timeout=60)
            return told.waiting + told.leased

        async def until_left(most: int) -> None:
            async with asyncio.timeout(SECONDS_MAX * 4):
                while True:
                    if await left() <= most:
                        return
                    await asyncio.sleep(PAUSE_SECONDS)

        owners = list(texts)
        for start in range(0, OWNERS, 4):
            await asyncio.gather(*map(propose, owners[start : start + 4]))
        assert len(set(acknowledged)) == len(acknowledged) == FACTS
        await until_left(FACTS // 2)
        # Wherever both have come to by now.
        fleet.servers[0].kill()
        await until_left(0)
        took = time.monotonic() - began
        print(f"{FACTS} facts in {took:.0f} s, {FACTS / took:.0f} a second")
        for owner, expected in texts.items():
            assert await listed(two, owner, history=True) == sorted(expected), "each is there, and once"
        for number in range(0, FACTS, max(1, FACTS // 20)):
            dock = number % OWNERS
            hits = await two.facts.search(f"cargo{number}", owner=f"shared/dock-{dock}")
            assert hits[0].text == f"Container {number} of dock {dock} holds cargo{number}"
    await asyncio.to_thread(fleet.servers[0].restart)
