"""The fact service on a real Weaviate: what holds on the embedded store holds there, and what only Weaviate can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.test_facts_races import (
    test_of_many_values_of_one_slot_at_once_one_is_current_and_none_is_lost,
    test_servers_that_decide_about_the_same_at_once_make_one_fact,
    test_what_is_forgotten_while_it_is_said_again_does_not_come_back_from_the_same_evidence,
    test_words_that_were_swept_before_their_commit_are_written_again,
)
from tests.integration.test_facts_search import (
    test_a_current_fact_is_found_behind_hundreds_of_versions_that_are_not,
    test_one_hop_finds_what_else_is_known_of_subjects_and_objects,
    test_other_scripts_are_found_by_parts_of_their_words,
)
from tests.integration.test_facts_search import user as user
from tests.integration.test_facts_search_filters import (
    test_a_fact_ends_at_the_very_millisecond_even_if_nobody_sweeps,
    test_a_filter_leaves_what_it_says,
    test_names_and_questions_are_data_whatever_they_look_like,
    test_trust_below_the_least_stays_out,
    test_what_holds_only_for_a_time_is_found_for_that_time,
    test_what_was_known_at_a_moment_is_found_as_of_then,
)
from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent
from tests.support.on_weaviate import OnWeaviate
from tests.support.proxy import Fault, proxied
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.consistency import Reason
from noosphere.server import app
from noosphere.server.facts.sweeping import ORPHAN_AGE_MS
from noosphere.v1 import fact_service_pb2 as pb

pytestmark = [needs_weaviate]

# Suites of the embedded store, which run here on Weaviate: their fixture `local` is the one below.
SHARED = (
    test_a_current_fact_is_found_behind_hundreds_of_versions_that_are_not,
    test_a_fact_ends_at_the_very_millisecond_even_if_nobody_sweeps,
    test_a_filter_leaves_what_it_says,
    test_names_and_questions_are_data_whatever_they_look_like,
    test_of_many_values_of_one_slot_at_once_one_is_current_and_none_is_lost,
    test_one_hop_finds_what_else_is_known_of_subjects_and_objects,
    test_other_scripts_are_found_by_parts_of_their_words,
    test_servers_that_decide_about_the_same_at_once_make_one_fact,
    test_trust_below_the_least_stays_out,
    test_what_holds_only_for_a_time_is_found_for_that_time,
    test_what_is_forgotten_while_it_is_said_again_does_not_come_back_from_the_same_evidence,
    test_what_was_known_at_a_moment_is_found_as_of_then,
    test_words_that_were_swept_before_their_commit_are_written_again,
)

Status = pb.CandidateStatus
CITY: dict[str, Any] = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
TEXTS = [
    "Likes C++ && NOT (Java OR *)",
    "Says `WHERE x = 'y'; DROP TABLE facts` a lot",
    'The wildcard is * or ? or %_ and the quote is "',
    "Stores {a: {operator: Equal, valueText: [1]}} as an example",
    "乌班图系统 24.04 已经安装",
    "المستخدم يفضل القهوة",
    "He loves naïve façade\u0301 and 🦊🦊",
    "Tab\tand\nnew line and nul-like \\u0000",
]


@pytest.fixture(scope="module")
def weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeaviateProcess]:
    """One Weaviate for all tests of this module: it takes seconds to start."""
    made = WeaviateProcess(tmp_path_factory.mktemp("weaviate"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def on(weaviate: WeaviateProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnWeaviate]:
    """Servers of this test have their facts on Weaviate."""
    made = OnWeaviate(weaviate)
    monkeypatch.setattr(app, "open_drivers", made.open)
    yield made
    made.drop()


@pytest.fixture
async def local(tmp_path: Path, on: OnWeaviate) -> AsyncIterator[LocalServer]:
    """A server in this process, whose clock and crashes the test controls."""
    async with local_server(tmp_path) as server:
        yield server


async def freeze(weaviate: WeaviateProcess, on: OnWeaviate, *, frozen: bool) -> None:
    """Has Weaviate take no writes to the facts, or take them again."""
    async with httpx.AsyncClient(base_url=f"{weaviate.url}/v1", timeout=30, trust_env=False) as rest:
        name = (await rest.get(f"/aliases/{on.access.collection}")).json()["class"]
        for tenant in (await rest.get(f"/schema/{name}/tenants")).json():
            status = {"status": "READONLY" if frozen else "READY"}
            (await rest.put(f"/schema/{name}/shards/{tenant['name']}", json=status)).raise_for_status()


async def settled(local: LocalServer, facts: FactAgent, ids: Any) -> list[pb.Decision]:
    """Returns the decisions about candidates, which somebody makes in the end."""
    async with asyncio.timeout(120):
        while True:
            found = [(await facts.candidate(one)).decision for one in ids]
            if all(decision.status != Status.CANDIDATE_STATUS_QUEUED for decision in found):
                return found
            await local.elapse(1_000)
            await asyncio.sleep(0.01)


async def versions(local: LocalServer, scope: str) -> int:
    """Returns how many versions of facts of a scope the store has, named by anybody or not."""
    return len([key async for key in local.engine.facts.store.versions(scope)])


async def test_words_are_kept_found_and_forgotten_whatever_they_look_like(local: LocalServer) -> None:
    user = await Teller.begin(await local.api.agent("a"))
    ids = {text: await user.tells(text) for text in TEXTS}
    assert len(set(ids.values())) == len(TEXTS)
    for text, fact_id in ids.items():
        fact = await user.facts.get(fact_id)
        assert fact.text == text
        assert (await user.finds(text))[0] == text
    for text, fact_id in ids.items():
        report = await user.facts.forget(query=text, owner=user.user)
        assert any("until it compacts" in where for where in report.remaining)
        assert list(report.fact_ids) == [fact_id], text
    assert await versions(local, user.user) == 0


async def test_while_it_takes_no_writes_candidates_wait_and_searches_go_on(
    local: LocalServer, weaviate: WeaviateProcess, on: OnWeaviate
) -> None:
    user = await Teller.begin(await local.api.agent("a"))
    paris = await user.tells("Lives in Paris", object="Paris", **CITY)
    tea = await user.tells("Likes green tea")
    await freeze(weaviate, on, frozen=True)
    try:
        heard = await user.talk.hears("I live in Rome.")
        claim = pb.Candidate(text="Lives in Rome", owner=user.user, channel=pb.CHANNEL_USER, evidence=[heard], **CITY)
        (waits,) = (await user.facts.submit(claim, wait=False)).candidate_ids
        for _ in range(20):
            await local.elapse(10_000)
            await asyncio.sleep(0.02)
        (job,) = await local.engine.facts.queue.find((waits,))
        assert job is not None
        assert (job.dead, job.attempts < 2) == (False, True), "none of it was its fault"
        assert (await user.finds("Where does the user live?"))[0] == "Lives in Paris"
        with refusal(Reason.ENGINE_UNAVAILABLE) as refused:
            await user.facts.forget(fact_id=tea)
        assert "Weaviate" in str(refused)
        assert await user.finds("tea") == [], "the ledger has forgotten it"
        assert await versions(local, user.user) == 2
    finally:
        await freeze(weaviate, on, frozen=False)
    (decision,) = await settled(local, user.facts, [waits])
    assert (decision.status, list(decision.superseded)) == (Status.CANDIDATE_STATUS_SUPERSEDED, [paris])
    await user.facts.run_upkeep(user.user)
    assert [fact.text for fact in await user.facts.listed(user.user)] == ["Lives in Rome"]
    assert await user.finds("tea") == []
    local.clock.advance(2 * ORPHAN_AGE_MS)
    await user.facts.run_upkeep(user.user)
    # Rome, Paris as it was, and Paris as what is history; nothing of what is forgotten or was tried in vain.
    assert await versions(local, user.user) == 3


async def test_a_write_whose_reply_is_lost_makes_nothing_twice(
    tmp_path: Path, weaviate: WeaviateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(weaviate.grpc) as proxy:
        on = OnWeaviate(weaviate, grpc=proxy.address, call_ms_max=2_000)
        monkeypatch.setattr(app, "open_drivers", on.open)
        try:
            async with local_server(tmp_path) as local:
                user = await Teller.begin(await local.api.agent("a"))
                await user.tells("Likes green tea")
                said = [f"Likes {thing}" for thing in ("amber", "basil", "cocoa", "dates", "elder", "fennel", "ginger")]
                claims = [
                    pb.Candidate(
                        text=text, owner=user.user, channel=pb.CHANNEL_USER, evidence=[await user.talk.hears(text)]
                    )
                    for text in said
                ]
                with proxy.during(Fault.DROP_REPLIES):
                    ids = (await user.facts.submit(*claims, wait=False)).candidate_ids
                    await proxy.happened()
                    for _ in range(5):
                        await local.elapse(1_000)
                        await asyncio.sleep(0.05)
                decisions = await settled(local, user.facts, ids)
                assert {decision.status for decision in decisions} == {Status.CANDIDATE_STATUS_WRITTEN}
                texts = [fact.text for fact in await user.facts.listed(user.user)]
                assert sorted(texts) == sorted(["Likes green tea", *said])
                local.clock.advance(2 * ORPHAN_AGE_MS)
                await user.facts.run_upkeep(user.user)
                assert await versions(local, user.user) == len(texts), "what was tried in vain is swept"
        finally:
            on.drop()
