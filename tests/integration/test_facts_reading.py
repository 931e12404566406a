"""Reading facts: as they are and were, by pages, with all that came before, and why they are where they are."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.engine import LocalServer
from tests.support.facts import FactAgent
from tests.support.statuses import refusal
from tests.support.telling import Teller

from noosphere.consistency import Reason
from noosphere.server.facts import reading
from noosphere.v1 import fact_service_pb2 as pb

CITY: dict[str, Any] = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}


@pytest.fixture
async def user(local: LocalServer) -> Teller:
    return await Teller.begin(await local.api.agent("a"))


def at(time_ms: int) -> Timestamp:
    found = Timestamp()
    found.FromMilliseconds(time_ms)
    return found


async def moves(local: LocalServer, user: Teller, *cities: str) -> list[pb.Fact]:
    """Has the user move from city to city; returns the facts as they are when they are written."""
    facts = []
    for city in cities:
        await local.elapse(1_000)
        facts.append(await user.facts.get(await user.tells(f"Lives in {city}", object=city, **CITY)))
    return facts


async def test_history_has_every_version_of_the_whole_chain_from_wherever_it_is_asked(
    local: LocalServer, user: Teller
) -> None:
    paris, rome, oslo = await moves(local, user, "Paris", "Rome", "Oslo")
    await user.tells("Works in Bergen", subject="user", predicate="work city", object="Bergen")
    await user.another().tells("Lives in Bonn", object="Bonn", **CITY)
    history = await user.facts.history(rome.id)
    assert [await user.facts.history(fact.id) for fact in (paris, oslo)] == [history, history]
    assert {(fact.id, fact.version, fact.superseded_by, fact.HasField("valid_to")) for fact in history} == {
        (paris.id, 1, "", False),
        (rome.id, 1, "", False),
        (oslo.id, 1, "", False),
        (paris.id, 2, rome.id, True),
        (rome.id, 2, oslo.id, True),
    }
    times = [fact.record_time.ToMilliseconds() for fact in history]
    assert times == sorted(times, reverse=True)


async def test_what_contradicts_a_fact_without_ending_it_is_no_part_of_its_history(user: Teller) -> None:
    await user.facts.set_policy(user.user, conflict_rule=pb.CONFLICT_RULE_KEEP_BOTH)
    paris = await user.tells("Lives in Paris", object="Paris", **CITY)
    await user.tells("Lives in Rome", object="Rome", **CITY)
    assert [fact.id for fact in await user.facts.history(paris)] == [paris]
    assert (await user.facts.get(paris)).contested_by


async def test_a_fact_is_read_as_it_was_known_at_a_moment(local: LocalServer, user: Teller) -> None:
    paris, rome = await moves(local, user, "Paris", "Rome")
    now = await user.facts.get(paris.id)
    assert (now.superseded_by, now.version) == (rome.id, 2)
    assert now.valid_to == rome.valid_from
    before = await user.facts.get(paris.id, as_of=at(rome.record_time.ToMilliseconds() - 1))
    assert before == paris
    with refusal(Reason.ENTRY_NOT_FOUND) as error:
        await user.facts.get(rome.id, as_of=at(rome.record_time.ToMilliseconds() - 1))
    assert "was not known at that moment" in error.message
    with refusal(Reason.INVALID_FIELD):
        await user.facts.get(rome.id, as_of=at(-1))


@pytest.mark.parametrize("page_size", [1, 2, 7, 0])
async def test_pages_have_every_fact_once_by_id_and_only_what_is_asked_for(
    local: LocalServer, user: Teller, page_size: int
) -> None:
    shared = "shared/team"
    both = [user, user.another()]
    told = {one.user: [await one.tells(f"Note {at}", scope=shared) for at in range(5)] for one in both}
    history = [
        await user.tells(f"Lives in city {n}", object=n, scope=shared, valid_from=at(n + 1), **CITY) for n in (0, 1)
    ]
    ids = sorted([*told[both[0].user], *told[both[1].user], history[1]])
    assert [fact.id for fact in await user.facts.listed(shared, page_size=page_size)] == ids
    everything = await user.facts.listed(shared, page_size=page_size, include_superseded=True)
    assert [fact.id for fact in everything] == sorted([*ids, history[0]])
    other = both[1].user
    assert [fact.id for fact in await user.facts.listed(shared, page_size=page_size, owner=other)] == sorted(
        told[other]
    )


async def test_a_page_ends_once_there_is_so_much_in_it(user: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_BYTES_MAX", 4 * 1024)
    operator = FactAgent(await user.facts.agent.api.agent("cli/anna"))
    filling = "word " * 200
    claims = [pb.Candidate(text=f"{filling} {n}", owner=user.user, channel=pb.CHANNEL_INTERNAL) for n in range(12)]
    await operator.submit(*claims)
    request = pb.ListFactsRequest(scope=user.user, page_size=1_000)
    page = await user.facts.call("ListFacts", request, pb.ListFactsResponse)
    assert 2 < len(page.facts) < 5
    assert page.next_page_token
    assert len(await user.facts.listed(user.user, page_size=1_000)) == 12


async def test_a_page_token_is_good_for_the_same_list_only(user: Teller) -> None:
    await user.tells("Likes tea")
    await user.tells("Likes jam")
    request = pb.ListFactsRequest(scope=user.user, page_size=1)
    token = (await user.facts.call("ListFacts", request, pb.ListFactsResponse)).next_page_token
    others: list[dict[str, Any]] = [{"owner": user.user}, {"include_superseded": True}, {"scope": "shared/x"}]
    for fields in others:
        asked: dict[str, Any] = {"scope": user.user, "page_size": 1, "page_token": token, **fields}
        other = pb.ListFactsRequest(**asked)
        with refusal(Reason.INVALID_PAGE_TOKEN):
            await user.facts.call("ListFacts", other, pb.ListFactsResponse)


async def test_the_facts_of_an_agent_are_read_by_nobody_else(local: LocalServer, user: Teller) -> None:
    fact_id = await user.tells("My plan is secret", owner="agent/a")
    assert (await user.facts.get(fact_id)).text == "My plan is secret"
    other, operator = [FactAgent(await local.api.agent(name)) for name in ("b", "cli/anna")]
    requests: list[tuple[str, Any, Any]] = [
        ("GetFact", pb.GetFactRequest(fact_id=fact_id), pb.GetFactResponse),
        ("ListFactHistory", pb.ListFactHistoryRequest(fact_id=fact_id), pb.ListFactHistoryResponse),
        ("ListFacts", pb.ListFactsRequest(scope="agent/a"), pb.ListFactsResponse),
        ("ExplainFact", pb.ExplainFactRequest(fact_id=fact_id), pb.ExplainFactResponse),
        ("SearchFacts", pb.SearchFactsRequest(query="plan", owners=["agent/a"]), pb.SearchFactsResponse),
    ]
    for method, request, kind in requests:
        with refusal(Reason.PERMISSION_DENIED):
            await other.call(method, request, kind)
        request.ClearField("call")
        await operator.call(method, request, kind)


async def test_an_explanation_leads_from_every_candidate_to_the_rank(local: LocalServer, user: Teller) -> None:
    first = await user.decided("Likes green tea")
    again = await user.decided("likes green tea.")
    assert again.fact_id == first.fact_id
    await user.tells("Green paint is in the cellar")
    (old, _) = await moves(local, user, "Paris", "Rome")

    async def explained(fact_id: str, query: str) -> pb.ExplainFactResponse:
        request = pb.ExplainFactRequest(fact_id=fact_id, query=query)
        return await user.facts.call("ExplainFact", request, pb.ExplainFactResponse)

    told = await explained(first.fact_id, "Who likes green tea?")
    assert [known.decision.candidate_id for known in told.candidates] == [again.candidate_id, first.candidate_id]
    assert told.fact.source_count == 2
    (hit, *_) = (await user.search("Who likes green tea?")).hits
    assert (told.rank, told.scores) == (1, hit.scores)
    assert (await explained(first.fact_id, "green paint")).rank == 2
    assert (await explained(first.fact_id, "When does the train leave?")).rank == 0
    assert (await explained(old.id, "Does the user live in Paris?")).rank > 0, "among history, what is history"
    with refusal(Reason.VALUE_TOO_LARGE):
        await explained(first.fact_id, "x" * 5_000)
