"""Fact stores whose searches lag: what the ledger knows is found, joined, superseded and forgotten all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_round_trips import Asked
from tests.support.engine import LocalServer, local_server
from tests.support.lagging import Lag
from tests.support.telling import Teller

from noosphere.server import app
from noosphere.server.drivers import open_drivers
from noosphere.server.facts.fresh import SLOW_MS
from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
CITY = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}


@pytest.fixture
def lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lag:
    """Servers of this test have a store that lags."""
    made = Lag(tmp_path / "behind")
    monkeypatch.setattr(app, "open_drivers", made.open)
    return made


@pytest.fixture
async def local(tmp_path: Path, lag: Lag) -> AsyncIterator[LocalServer]:
    """A server whose searches lag for as long as the test says."""
    async with local_server(tmp_path) as server:
        yield server


async def begin(local: LocalServer, name: str = "guide") -> Teller:
    return await Teller.begin(await local.api.agent(name))


async def settle(local: LocalServer, lag: Lag) -> None:
    """Returns once searches find whatever was written by now, and nothing has to be added to them."""
    await local.elapse(SLOW_MS + 1)
    await lag.catch_up()


async def found(user: Teller, query: str = "", **fields: Any) -> list[str]:
    return [hit.fact.text for hit in (await user.search(query, **fields)).hits]


async def test_what_is_just_written_is_found_by_words_that_nothing_else_has(local: LocalServer, lag: Lag) -> None:
    user = await begin(local)
    await user.tells("Likes green tea")
    await settle(local, lag)
    await user.tells("Plays the xylophone")
    assert await found(user, "xylophone") == ["Plays the xylophone"]
    assert await found(user, "tea") == ["Likes green tea"], "one that has none of the words stays out"
    assert (
        set(await found(user)) == set(await found(user, "tea xylophone")) == {"Plays the xylophone", "Likes green tea"}
    )


async def test_filters_hold_for_what_the_store_does_not_find_yet(local: LocalServer) -> None:
    user = await begin(local)
    other = user.another()
    await user.tells("Lives in Rome", object="Rome", **CITY)
    await user.tells("Rome is too hot", memory_type=pb.MEMORY_TYPE_EPISODIC)
    await other.tells("Was born in Rome")
    assert await found(user, "Rome", subject="the user", predicate="home city") == ["Lives in Rome"]
    assert await found(user, subject="the user") == ["Lives in Rome"]
    assert await found(user, "Rome", memory_types=[pb.MEMORY_TYPE_EPISODIC]) == ["Rome is too hot"]
    assert await found(user, "Rome", trust_min=0.6) == []
    assert await found(other, "Rome") == ["Was born in Rome"]
    both = await user.search("Rome", owners=[user.user, other.user])
    assert len(both.hits) == 3


async def test_what_was_superseded_a_moment_ago_is_history(local: LocalServer, lag: Lag) -> None:
    user = await begin(local)
    paris = await user.tells("Lives in Paris", object="Paris", **CITY)
    await settle(local, lag)
    rome = await user.tells("Lives in Rome", object="Rome", **CITY)
    assert await found(user, "Where does the user live?") == ["Lives in Rome"]
    assert set(await found(user, "lives", include_superseded=True)) == {"Lives in Rome", "Lives in Paris"}
    assert {fact.id for fact in await user.facts.history(rome)} == {rome, paris}


async def test_what_says_the_same_as_what_is_just_written_is_joined_to_it(local: LocalServer) -> None:
    user = await begin(local)
    first = await user.tells("Deploys really happen without a fuss")
    again = await user.decided("Deploys happen without a fuss")
    assert (again.status, again.fact_id) == (Status.CANDIDATE_STATUS_MERGED, first)


async def test_links_lead_to_what_is_just_written(local: LocalServer) -> None:
    user = await begin(local)
    await user.tells("Works on Phoenix", subject="user", predicate="project", object="Phoenix")
    await user.tells("The launch is in May", subject="Phoenix", predicate="launch", object="May")
    assert await found(user, "project work", expand=True) == ["Works on Phoenix", "The launch is in May"]


async def test_forgetting_by_a_query_means_what_the_store_does_not_find_yet(local: LocalServer) -> None:
    user = await begin(local)
    tea = await user.tells("Likes green tea")
    kept = await user.tells("Plays the xylophone")
    report = await user.facts.forget(query="green tea", owner=user.user)
    assert list(report.fact_ids) == [tea]
    assert [fact.id for fact in await user.facts.listed(user.user)] == [kept]
    assert await found(user, "tea") == []


async def test_forgetting_finds_what_was_just_kept_apart(local: LocalServer) -> None:
    user = await begin(local)
    refused = await user.decided("Whispers s3cr3tbird to nobody", importance=0.1)
    assert refused.status == Status.CANDIDATE_STATUS_REJECTED
    assert (await user.facts.candidate(refused.candidate_id)).candidate.text
    store = local.engine.facts.store
    await user.facts.forget(query="s3cr3tbird", owner=user.user)
    after = await user.facts.candidate(refused.candidate_id)
    assert (after.decision.status, after.candidate.text) == (Status.CANDIDATE_STATUS_SUPPRESSED, "")
    assert (await store.stats()).versions == 0, "its words are gone"


async def test_what_a_roll_back_has_put_back_is_found(local: LocalServer, lag: Lag) -> None:
    user = await begin(local)
    await user.tells("Lives in Paris", object="Paris", **CITY)
    await local.elapse(2)
    await user.tells("Lives in Rome", object="Rome", producer="scraper/1", **CITY)
    await settle(local, lag)
    assert await found(user, "lives") == ["Lives in Rome"]
    await user.facts.forget(producer="scraper/1", owner=user.user)
    assert await found(user, "lives") == ["Lives in Paris"]


async def test_upkeep_compares_once_more_what_the_store_did_not_find_yet(
    local: LocalServer, lag: Lag, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await begin(local)
    older = await user.tells("Deploys really happen without a fuss")
    # More than a search looks at is written in between, so nothing tells of the older one.
    monkeypatch.setattr("noosphere.server.facts.fresh.FRESH_MAX", 1)
    await user.tells("Plays the xylophone")
    await local.elapse(1)
    newer = await user.decided("Deploys happen without a fuss")
    assert newer.status == Status.CANDIDATE_STATUS_WRITTEN
    await user.facts.run_upkeep(user.user)
    assert len(await user.facts.listed(user.user)) == 3
    await local.elapse(1_000)
    await lag.catch_up()
    done = await user.facts.run_upkeep(user.user)
    assert [(change.fact_id, change.action) for change in done.changes] == [(newer.fact_id, "merge")]
    assert older in {fact.id for fact in await user.facts.listed(user.user)}


async def test_of_a_burst_the_newest_are_looked_at_and_the_rest_once_the_store_has_caught_up(
    local: LocalServer, lag: Lag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noosphere.server.facts.fresh.FRESH_MAX", 8)
    user = await begin(local)
    for at in range(12):
        await user.tells(f"Crate {at} holds word{at}")
    for at in (11, 4):
        assert await found(user, f"word{at}") == [f"Crate {at} holds word{at}"]
    assert await found(user, "word3") == []
    await settle(local, lag)
    assert await found(user, "word3") == ["Crate 3 holds word3"]


async def test_a_store_that_does_not_lag_has_nothing_read_for_it(
    tmp_path: Path, lag: Lag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "open_drivers", open_drivers)
    async with local_server(tmp_path / "plain") as plain:
        user = await begin(plain)
        await user.tells("Likes green tea")
        asked = Asked(plain)
        assert await found(user, "tea") == ["Likes green tea"]
        assert asked.calls == ["read"], "what the ledger says of the hit"
