"""Searching facts in every world: what was decided is found, with reasons, and nothing else is."""

from __future__ import annotations

import pytest
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.worlds import DIRECT, World

from noosphere.consistency import Reason
from noosphere.v1 import fact_service_pb2 as pb

pytestmark = DIRECT


async def test_what_was_decided_is_found_at_once_and_says_why(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.tells("Anna prefers metric units")
    fact_id = await user.tells("The Oslo office opens in March 2027")
    best, *_ = (await user.search("When does the Oslo office open?")).hits
    assert best.fact == await user.facts.get(fact_id)
    assert best.scores.parts["keywords"] > 0
    assert sum(best.scores.parts.values()) == pytest.approx(best.scores.total)
    assert 0 < best.scores.keyword <= 1
    assert 0 < best.scores.relevance <= 1
    assert 0 <= best.scores.dense <= 1
    assert best.tokens > 0


async def test_a_search_by_the_tokens_of_a_decision_finds_it_and_returns_its_own(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.tells("Likes green tea")
    call = user.facts.agent.call()
    call.return_causal_token = True
    reply = await user.search("green tea", call=call)
    again = user.facts.agent.call()
    again.causal_tokens.append(reply.call.causal_token)
    assert [hit.fact.text for hit in (await user.search("green tea", call=again)).hits] == ["Likes green tea"]


async def test_what_belongs_to_others_stays_theirs(world: World) -> None:
    anna, ben = await Teller.begin(await world.agent()), await Teller.begin(await world.agent())
    await anna.tells("The key is under the mat")
    await ben.tells("The key is in the car")
    assert await anna.finds("Where is the key?") == ["The key is under the mat"]
    assert await anna.finds("Where is the key?", owners=[ben.user]) == ["The key is in the car"], "until part 6"
    assert sorted(await anna.finds("Where is the key?", owners=[anna.user, ben.user])) == [
        "The key is in the car",
        "The key is under the mat",
    ]
    assert await anna.finds("Where is the key?", scopes=[ben.user]) == []
    own = f"agent/{ben.facts.agent.actor.agent_id}"
    await ben.tells("The key is in my drawer", owner=own)
    assert await ben.finds("Where is the key?", owners=[own]) == ["The key is in my drawer"]
    with refusal(Reason.PERMISSION_DENIED):
        await anna.search("Where is the key?", owners=[own])
    with refusal(Reason.PERMISSION_DENIED):
        await anna.search("Where is the key?", scopes=[anna.user, own])


async def test_a_shared_scope_is_searched_by_name(world: World) -> None:
    user = await Teller.begin(await world.agent())
    shared = world.space("team")
    await user.tells("Deploys happen on Tuesdays", scope=shared)
    assert await user.finds("When do deploys happen?") == []
    assert await user.finds("When do deploys happen?", scopes=[shared]) == ["Deploys happen on Tuesdays"]


async def test_facts_are_listed_by_pages_read_with_history_and_explained(world: World) -> None:
    user = await Teller.begin(await world.agent())
    claim = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    paris = await user.tells("Lives in Paris", object="Paris", **claim)
    await world.elapse(1)
    rome = await user.tells("Lives in Rome", object="Rome", **claim)
    tea = await user.tells("Likes green tea")
    assert {fact.id for fact in await user.facts.listed(user.user, page_size=1)} == {rome, tea}
    everything = await user.facts.listed(user.user, page_size=2, include_superseded=True)
    assert [fact.id for fact in everything] == sorted([paris, rome, tea])
    for fact_id in (paris, rome):
        versions = await user.facts.history(fact_id)
        assert sorted((fact.text, fact.superseded_by) for fact in versions) == [
            ("Lives in Paris", ""),
            ("Lives in Paris", rome),
            ("Lives in Rome", ""),
        ]
    request = pb.ExplainFactRequest(fact_id=tea, query="What does the user like to drink? Tea?")
    told = await user.facts.call("ExplainFact", request, pb.ExplainFactResponse)
    assert told.fact.id == tea
    assert [known.decision.fact_id for known in told.candidates] == [tea]
    assert told.rank == 1
    assert told.scores.total > 0
    unasked = await user.facts.call("ExplainFact", pb.ExplainFactRequest(fact_id=tea), pb.ExplainFactResponse)
    assert (unasked.rank, unasked.scores) == (0, pb.HitScores())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"query": "x" * 4_097}, "query has 4097 bytes, the limit is 4096"),
        ({"owners": []}, "owners: "),
        ({"owners": [f"user/{at}" for at in range(9)]}, "owners has 9 entries, the limit is 8"),
        ({"owners": ["user/1", "anna"]}, "owners[1]: 'anna'"),
        ({"owners": ["app/shop/user/1"]}, "owners[0]: "),
        ({"scopes": [f"user/{at}" for at in range(9)]}, "scopes has 9 entries, the limit is 8"),
        ({"scopes": ["user/1*#"]}, "scopes[0]: "),
        ({"limit": 101}, "limit: 101 is not from 1 to 100"),
        ({"trust_min": 1.5}, "trust_min: 1.5 is not from 0 to 1"),
        ({"trust_min": float("nan")}, "trust_min: nan"),
        ({"memory_types": [9]}, "memory_types[0]: 9"),
        ({"subject": "x" * 257}, "subject has 257 bytes, the limit is 256"),
        ({"predicate": " \u200b"}, "predicate: "),
        ({"embed_timeout": {"seconds": 11}}, "embed_timeout: 11000 ms is not from 0 to 10000 ms"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:30],
)
async def test_a_bad_search_is_refused_by_field_value_and_limit(
    world: World, fields: dict[str, object], named: str
) -> None:
    user = await Teller.begin(await world.agent())
    with refusal(Reason.VALUE_TOO_LARGE if "the limit is" in named else Reason.INVALID_FIELD) as error:
        await user.search("tea", **fields)
    assert named in error.message


@pytest.mark.parametrize("fact_id", ["", "user/42", "user/42#", "42#" + "0" * 24, "user/42#" + "g" * 24])
async def test_a_malformed_fact_id_is_refused(world: World, fact_id: str) -> None:
    user = await Teller.begin(await world.agent())
    with refusal(Reason.INVALID_FIELD) as error:
        await user.facts.get(fact_id)
    assert "fact_id: " in error.message
    with refusal(Reason.ENTRY_NOT_FOUND):
        await user.facts.get(f"{user.user}#{'0' * 24}")
