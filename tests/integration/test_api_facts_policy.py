"""The write policy of a scope, in every world: who may write what, how sure it has to be, what becomes of conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.worlds import DIRECT, World

from noosphere.consistency import Reason
from noosphere.v1 import fact_service_pb2 as pb

pytestmark = DIRECT

Status = pb.CandidateStatus
WRITTEN = Status.CANDIDATE_STATUS_WRITTEN
REJECTED = Status.CANDIDATE_STATUS_REJECTED


def reasons(decision: pb.Decision) -> list[tuple[str, str]]:
    """Steps and reasons of a decision."""
    return [(why.step, why.reason) for why in decision.reasons]


async def test_a_scope_without_a_policy_has_the_defaults_and_one_replaces_all_of_it(world: World) -> None:
    facts, user = FactAgent(await world.agent()), user_name()
    default = await facts.policy(user)
    assert (default.importance_min, default.confidence_min, default.trust_min) == (0.6, 0.7, 0.5)
    assert default.conflict_rule == pb.CONFLICT_RULE_NEWEST
    empty = {"memory_types", "writers", "single_valued", "aliases", "ttl", "half_life"}
    assert empty.isdisjoint(field.name for field, _ in default.ListFields())
    given = pb.FactPolicy(
        memory_types=[pb.MEMORY_TYPE_SEMANTIC, pb.MEMORY_TYPE_EPISODIC],
        writers=["planner-*", "cli/op"],
        importance_min=0.0,
        confidence_min=0.25,
        trust_min=1.0,
        conflict_rule=pb.CONFLICT_RULE_KEEP_BOTH,
        single_valued=["favourite team"],
        aliases={"乌班图": "Ubuntu"},
        ttl={"episodic": Duration(seconds=3600)},
        half_life={"mood": Duration(seconds=86_400)},
    )
    fields = {field.name: value for field, value in given.ListFields()} | {"importance_min": 0.0}
    assert await facts.set_policy(user, **fields) == given
    assert await facts.policy(user) == given
    assert await facts.policy(user_name()) == default, "another scope has its own"
    await facts.set_policy(user)
    assert await facts.policy(user) == default


@pytest.mark.parametrize("gate", ["importance", "confidence"])
async def test_what_is_below_a_gate_is_refused_with_its_words_kept_and_what_is_at_it_is_not(
    world: World, gate: str
) -> None:
    user = await Teller.begin(await world.agent())
    least = {"importance": 0.6, "confidence": 0.7}[gate]
    below = await user.decided("Likes green tea", **{gate: least - 0.01})
    assert (below.status, reasons(below)[-1]) == (REJECTED, ("retain", f"low_{gate}"))
    assert (await user.facts.candidate(below.candidate_id)).candidate.text == "Likes green tea"
    assert (await user.decided("Likes black tea", **{gate: least})).status == WRITTEN
    await user.facts.set_policy(user.user, **{f"{gate}_min": 0.1})
    assert (await user.decided("Likes green tea", **{gate: 0.1})).status == WRITTEN
    assert (await user.decided("Likes mud", **{gate: 0.09})).status == REJECTED


async def test_all_gates_that_are_missed_are_named(world: World) -> None:
    facts, user = FactAgent(await world.agent()), user_name()
    decision = await facts.decided("Likes mud", owner=user, importance=0.1, confidence=0.2)
    assert [why for step, why in reasons(decision) if step == "retain"] == [
        "low_importance",
        "low_confidence",
        "low_trust",
    ]
    explained = next(why.explanation for why in decision.reasons if why.reason == "low_confidence")
    assert "0.2" in explained
    assert "0.7" in explained


async def test_a_lower_trust_gate_takes_what_nobody_vouches_for_and_a_higher_one_only_the_system(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.facts.set_policy(user.user, trust_min=0.0)
    page = await user.facts.decided(
        "The shop opens at nine", owner=user.user, channel=pb.CHANNEL_EXTERNAL, confidence=0.8, importance=0.8
    )
    assert (page.status, (await user.facts.get(page.fact_id)).trust) == (WRITTEN, 0.0)
    await user.facts.set_policy(user.user, trust_min=1.0)
    assert reasons(await user.decided("Likes green tea"))[-1] == ("retain", "low_trust")
    op = FactAgent(await world.agent("cli/op"))
    told = await op.decided("Likes black tea", owner=user.user, channel=pb.CHANNEL_INTERNAL)
    assert told.status == WRITTEN


async def test_types_that_a_scope_does_not_take_are_refused_before_anything_is_looked_at(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.facts.set_policy(user.user, memory_types=[pb.MEMORY_TYPE_EPISODIC])
    refused = await user.decided("The password is hunter2-and-more", memory_type=pb.MEMORY_TYPE_SEMANTIC)
    assert (refused.status, reasons(refused)) == (REJECTED, [("validate", "type_not_allowed")])
    assert (await user.decided("Went to Oslo", memory_type=pb.MEMORY_TYPE_EPISODIC)).status == WRITTEN


async def test_only_the_agents_that_are_named_may_write(world: World) -> None:
    planner, other = await Teller.begin(await world.agent("planner")), await Teller.begin(await world.agent("other"))
    name, scope = planner.facts.agent.actor.agent_id, world.space("team")
    for writers, text in (([name], "Meets on Mondays"), (["nobody", name[:7] + "*"], "Eats at Luigi's")):
        await planner.facts.set_policy(scope, writers=writers)
        ours = await planner.decided(text, scope=scope)
        theirs = await other.decided("Meets nowhere", scope=scope)
        assert ours.status == WRITTEN, writers
        assert (theirs.status, reasons(theirs)) == (REJECTED, [("validate", "writer_not_allowed")])
    await planner.facts.set_policy(scope, writers=[name[:-1]])
    assert (await planner.decided("Writes in English", scope=scope)).status == REJECTED, (
        "a prefix without a star is none"
    )


async def test_facts_end_by_type_and_sensitivity_and_never_later_than_they_say(world: World) -> None:
    user = await Teller.begin(await world.agent())
    spans = {"episodic": 3600, "working": 60, "personal": 600}
    await user.facts.set_policy(user.user, ttl={name: Duration(seconds=span) for name, span in spans.items()})

    async def lives_ms(text: str, **fields: Any) -> int | None:
        decision = await user.decided(text, **fields)
        fact = await user.facts.get(decision.fact_id)
        submitted = (await user.facts.candidate(decision.candidate_id)).candidate.submit_time
        if not fact.HasField("expire_time"):
            return None
        return fact.expire_time.ToMilliseconds() - submitted.ToMilliseconds()

    assert await lives_ms("Went to Oslo", memory_type=pb.MEMORY_TYPE_EPISODIC) == 3_600_000
    assert await lives_ms("Is writing a letter", memory_type=pb.MEMORY_TYPE_WORKING) == 60_000
    assert await lives_ms("Likes green tea") is None
    assert await lives_ms("Sleeps badly", sensitivity="personal") == 600_000
    assert await lives_ms("Slept badly in Oslo", memory_type=pb.MEMORY_TYPE_EPISODIC, sensitivity="personal") == 600_000
    assert await lives_ms("Keeps a diary of dreams", sensitivity="secret") is None
    sooner = pb.Candidate()
    sooner.expire_time.FromMilliseconds(
        (
            await user.facts.candidate((await user.decided("Likes jam")).candidate_id)
        ).candidate.submit_time.ToMilliseconds()
        + 30_000
    )
    early = await lives_ms("Is at lunch", memory_type=pb.MEMORY_TYPE_WORKING, expire_time=sooner.expire_time)
    assert early is not None
    assert early <= 30_000


async def test_a_predicate_that_the_policy_calls_single_valued_is(world: World) -> None:
    user = await Teller.begin(await world.agent())
    claim = {"subject": "user", "predicate": "spirit animal"}
    first = await user.decided("Is an otter at heart", object="otter", **claim)
    await world.elapse(2)
    beside = await user.decided("Is a badger at heart", object="badger", **claim)
    assert (first.status, list(beside.superseded)) == (WRITTEN, [])
    await user.facts.set_policy(user.user, single_valued=["Spirit Animal"])
    await world.elapse(2)
    alone = await user.decided("Is a heron at heart", object="heron", **claim)
    assert set(alone.superseded) == {first.fact_id, beside.fact_id}
    assert [fact.text for fact in await user.facts.listed(user.user)] == ["Is a heron at heart"]


async def test_words_that_the_policy_calls_the_same_make_one_fact(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.facts.set_policy(user.user, aliases={"乌班图": "Ubuntu", "Ubuntu系统": "Ubuntu"})
    claim = {"subject": "user", "predicate": "operating system"}
    first = await user.decided("Works on Ubuntu", object="Ubuntu", **claim)
    for word in ("乌班图", "Ubuntu系统", "ubuntu"):
        again = await user.decided(f"Works on {word}", object=word, **claim)
        assert (again.status, again.fact_id) == (Status.CANDIDATE_STATUS_MERGED, first.fact_id), word
    assert (await user.facts.get(first.fact_id)).source_count == 4


async def test_contradictions_follow_the_rule_of_the_scope(world: World) -> None:
    """The same two claims, the later one trusted less, under each rule."""
    agent = await world.agent()
    facts, talk = FactAgent(agent), await Conversation.begin(agent)
    heard = await talk.hears("I live in Paris, and then it was Rome")
    outcomes: dict[int, tuple[int, list[str]]] = {}
    for rule in (pb.CONFLICT_RULE_NEWEST, pb.CONFLICT_RULE_TRUST, pb.CONFLICT_RULE_KEEP_BOTH):
        user = user_name()
        await facts.set_policy(user, conflict_rule=rule, trust_min=0.0)
        claim: dict[str, Any] = {
            "owner": user, "subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE,
            "channel": pb.CHANNEL_USER, "evidence": [heard],
        }  # fmt: skip
        await facts.decided("Lives in Paris", claimed_trust=0.5, **claim)
        await world.elapse(2)
        later = pb.Candidate()
        later.valid_from.FromMilliseconds((await facts.candidates(user))[0].candidate.submit_time.ToMilliseconds() + 1)
        rome = await facts.decided("Lives in Rome", claimed_trust=0.3, valid_from=later.valid_from, **claim)
        outcomes[rule] = (rome.status, sorted(fact.text for fact in await facts.listed(user)))
    both = ["Lives in Paris", "Lives in Rome"]
    assert outcomes == {
        pb.CONFLICT_RULE_NEWEST: (Status.CANDIDATE_STATUS_CONTESTED, both),
        pb.CONFLICT_RULE_TRUST: (WRITTEN, ["Lives in Paris"]),
        pb.CONFLICT_RULE_KEEP_BOTH: (Status.CANDIDATE_STATUS_CONTESTED, both),
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"importance_min": 1.5}, "policy.importance_min: 1.5"),
        ({"confidence_min": -0.1}, "policy.confidence_min: -0.1"),
        ({"trust_min": float("nan")}, "policy.trust_min: nan"),
        ({"writers": [""]}, "policy.writers"),
        ({"writers": ["x" * 257]}, "policy.writers"),
        ({"single_valued": ["x"] * 257}, "policy.single_valued"),
        ({"aliases": {str(n): "x" for n in range(1_025)}}, "policy.aliases"),
        ({"ttl": {"forever": Duration(seconds=1)}}, "policy.ttl: 'forever'"),
        ({"ttl": {"working": Duration(seconds=0)}}, "policy.ttl['working']"),
        ({"half_life": {"mood": Duration(seconds=-1)}}, "policy.half_life['mood']"),
        ({"conflict_rule": 77}, "policy.conflict_rule: 77"),
        ({"memory_types": [77]}, "policy.memory_types[0]: 77"),
    ],
    ids=[
        "importance", "confidence", "trust", "empty writer", "long writer", "many predicates", "many aliases",
        "no such type", "no time", "negative time", "no such rule", "no such number",
    ],
)  # fmt: skip
async def test_a_bad_policy_names_field_and_value_and_changes_nothing(
    world: World, fields: dict[str, Any], words: str
) -> None:
    facts, user = FactAgent(await world.agent()), user_name()
    before = await facts.set_policy(user, importance_min=0.3)
    with refusal(Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE) as error:
        await facts.set_policy(user, **fields)
    assert words in error.message
    assert await facts.policy(user) == before


async def test_the_policy_of_an_agents_own_scope_is_its_own(world: World) -> None:
    facts, other = FactAgent(await world.agent()), FactAgent(await world.agent())
    own = f"agent/{facts.agent.actor.agent_id}"
    await facts.set_policy(own, trust_min=0.25)
    with refusal(Reason.PERMISSION_DENIED):
        await other.set_policy(own, trust_min=0.0)
    with refusal(Reason.PERMISSION_DENIED):
        await other.policy(own)
    assert (await facts.policy(own)).trust_min == 0.25
