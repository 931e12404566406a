"""Forgetting in every world: what is meant goes, nothing else does, and the same evidence teaches nothing."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import fact_service_pb2 as pb

# An erasure writes the server's file anew, and the one behind the socket is shared by all tests. The clients' and the
# commands' tests of forgetting go through a socket to a server of their own.
pytestmark = pytest.mark.parametrize("world", ["in process"], indirect=True)

Status = pb.CandidateStatus


def places(report: pb.ForgetFactsResponse) -> dict[str, int]:
    """How many entries went from each place."""
    return {place.place: place.count for place in report.places}


def reasons(decision: pb.Decision) -> list[str]:
    return [why.reason for why in decision.reasons]


async def operator(world: World) -> FactAgent:
    """An agent of the operator at the machine."""
    return FactAgent(await world.agent("cli/op"))


async def everything(facts: FactAgent, scope: str) -> set[str]:
    """Texts of all facts of a scope, also of those that were superseded."""
    return {fact.text for fact in await facts.listed(scope, include_superseded=True)}


async def test_what_is_forgotten_is_not_searched_read_listed_or_told(world: World) -> None:
    user = await Teller.begin(await world.agent())
    kept = await user.tells("Likes green tea")
    decision = await user.decided("The garage code word is Perseids")
    report = await user.facts.forget(fact_id=decision.fact_id)
    assert list(report.fact_ids) == [decision.fact_id]
    assert (places(report)["facts"], places(report)["index"]) == (1, 1)
    assert any("backups" in text for text in report.remaining)
    assert not [text for text in report.remaining if "compacts" in text], "the embedded store overwrites words"
    for everything in (False, True):
        assert decision.fact_id not in {
            hit.fact.id for hit in (await user.search("garage code word", include_superseded=everything)).hits
        }
    assert [fact.id for fact in await user.facts.listed(user.user, include_superseded=True)] == [kept]
    for read in (user.facts.get, user.facts.history, lambda id: user.facts.forget(fact_id=id)):
        with refusal(Reason.ENTRY_NOT_FOUND):
            await read(decision.fact_id)
    known = await user.facts.candidate(decision.candidate_id)
    assert (known.candidate.text, list(known.candidate.evidence)) == ("", [])
    assert known.decision == decision, "what became of it stays told, without its words"


async def test_what_superseded_and_was_superseded_is_forgotten_with_all_its_versions(world: World) -> None:
    user = await Teller.begin(await world.agent())
    claim = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    paris = await user.tells("Lives in Paris", object="Paris", **claim)
    await world.elapse(2)
    rome = await user.tells("Lives in Rome", object="Rome", **claim)
    await user.facts.forget(fact_id=paris)
    assert [fact.text for fact in await user.facts.history(rome)] == ["Lives in Rome"]
    assert await user.finds("Who lives where?", include_superseded=True) == ["Lives in Rome"]


HOWS: Mapping[str, tuple[Mapping[str, Any], set[str]]] = {
    "by query": ({"query": "forget the lake house", "owner": True}, {"Sails at the lake house"}),
    "by producer": ({"producer": "scraper/1", "owner": True}, {"Eats only raw onions"}),
    "all": ({"all": True, "owner": True}, {"Sails at the lake house", "Eats only raw onions", "Likes green tea"}),
}


@pytest.mark.parametrize("how", HOWS)
async def test_a_dry_run_tells_what_a_run_does_and_does_nothing(world: World, how: str) -> None:
    user = await Teller.begin(await world.agent())
    await user.tells("Likes green tea")
    await user.tells("Sails at the lake house")
    await user.tells("Eats only raw onions", producer="scraper/1")
    before = await user.facts.listed(user.user)
    asked, meant = HOWS[how]
    asked = {**asked, "owner": user.user}
    would = await user.facts.forget(**asked, dry_run=True)
    assert await user.facts.listed(user.user) == before
    report = await user.facts.forget(**asked)
    assert set(would.fact_ids) == set(report.fact_ids)
    assert places(would)["facts"] == places(report)["facts"] == len(meant)
    left = await everything(user.facts, user.user)
    assert left == {fact.text for fact in before} - meant
    assert list((await user.facts.forget(**asked)).fact_ids) == [], "there is nothing left to forget"


async def test_a_query_means_what_has_all_its_words_and_words_of_command_are_none(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.tells("The lake house has a red door")
    await user.tells("The tree house has a red door")
    await user.tells("Sails on the lake")
    report = await user.facts.forget(query="Please forget everything about the lake house!", owner=user.user)
    assert len(report.fact_ids) == 1
    assert await everything(user.facts, user.user) == {"The tree house has a red door", "Sails on the lake"}
    for syntax in ('house" OR "lake', "lake* NOT house", "% _ lake - | house :"):
        await user.facts.forget(query=syntax, owner=user.user)
        assert await everything(user.facts, user.user) == {"The tree house has a red door", "Sails on the lake"}
    await user.facts.forget(query="忘记 red door", owner=user.user)
    assert await everything(user.facts, user.user) == {"Sails on the lake"}


async def test_forgetting_everything_of_one_owner_touches_no_other(world: World) -> None:
    anna = await Teller.begin(await world.agent())
    ben, shared = anna.another(), world.space("team")
    for one in (anna, ben):
        for scope in ("", shared):
            await one.tells("The key is under the mat", scope=scope)
    await anna.facts.forget(all=True, owner=anna.user)
    assert await everything(anna.facts, anna.user) == set()
    assert await everything(anna.facts, ben.user) == {"The key is under the mat"}
    assert {fact.owner for fact in await anna.facts.listed(shared)} == {anna.user, ben.user}, "another scope"
    await anna.facts.forget(all=True, owner=anna.user, scope=shared)
    assert [fact.owner for fact in await anna.facts.listed(shared)] == [ben.user]
    assert await ben.finds("Where is the key?", scopes=[shared]) == ["The key is under the mat"]
    assert await ben.finds("Where is the key?") == ["The key is under the mat"]


async def test_the_same_evidence_teaches_nothing_again_and_a_new_statement_does(world: World) -> None:
    agent = await world.agent()
    facts, talk, user = FactAgent(agent), await Conversation.begin(agent), user_name()
    said = "My favourite colour is teal"
    heard = await talk.hears(said)
    claim = {"owner": user, "channel": pb.CHANNEL_USER, "evidence": [heard]}
    learned = await facts.decided(said, **claim)
    await facts.forget(fact_id=learned.fact_id)
    late = await facts.decided("Another claim of the same message: teal", **claim)
    assert (late.status, reasons(late)) == (Status.CANDIDATE_STATUS_SUPPRESSED, ["evidence_forgotten"])
    assert (await facts.candidate(late.candidate_id)).candidate.text == "", "nobody keeps its words"
    job = await facts.extract(session_id=talk.id, owner=user)
    assert list(job.candidate_ids) == [], "a late job reads nothing of it"
    assert await everything(facts, user) == set()
    await world.elapse(2)
    again = await facts.decided(said, owner=user, channel=pb.CHANNEL_USER, evidence=[await talk.hears(said)])
    assert again.status == Status.CANDIDATE_STATUS_WRITTEN
    assert await everything(facts, user) == {said}
    job = await facts.extract(session_id=talk.id, owner=user)
    assert job.state == pb.EXTRACTION_STATE_DONE, "the new message is read"


async def test_evidence_is_suppressed_for_its_owner_alone(world: World) -> None:
    agent = await world.agent()
    facts, talk = FactAgent(agent), await Conversation.begin(agent)
    anna, ben = user_name(), user_name()
    shared = world.space("team")
    heard = await talk.hears("We all like tea")
    fields = {"scope": shared, "channel": pb.CHANNEL_USER, "evidence": [heard]}
    learned = await facts.decided("Likes tea", owner=anna, **fields)
    await facts.forget(fact_id=learned.fact_id)
    hers = await facts.decided("Anna likes tea", owner=anna, **fields)
    assert hers.status == Status.CANDIDATE_STATUS_SUPPRESSED
    assert "evidence_forgotten" not in reasons(await facts.decided("Likes tea", owner=ben, **fields))


async def test_the_database_password_is_forgotten_where_it_is_kept_apart(world: World) -> None:
    facts, talk, user = await _with_password(world)
    (apart,) = await facts.candidates(user, statuses=[Status.CANDIDATE_STATUS_QUARANTINED])
    assert "correct-horse-77" in apart.candidate.text
    would = await facts.forget(query="forget the database password", owner=user, dry_run=True)
    report = await facts.forget(query="forget the database password", owner=user)
    assert places(would)["candidates"] == places(report)["candidates"] == 1
    assert await facts.candidates(user, statuses=[Status.CANDIDATE_STATUS_QUARANTINED]) == []
    known = await facts.candidate(apart.decision.candidate_id)
    assert (known.candidate.text, known.decision.status) == ("", Status.CANDIDATE_STATUS_SUPPRESSED)
    assert reasons(known.decision) == ["secret", "forgotten"]
    with refusal(Reason.INVALID_FIELD):
        await (await operator(world)).review(known.decision.candidate_id, accept=True)
    job = await facts.extract(session_id=talk.id, owner=user)
    for candidate_id in job.candidate_ids:
        assert "correct-horse-77" not in (await facts.candidate(candidate_id)).candidate.text


async def test_the_database_password_is_forgotten_where_it_is_a_fact(world: World) -> None:
    facts, _, user = await _with_password(world)
    (apart,) = await facts.candidates(user)
    accepted = await (await operator(world)).review(apart.decision.candidate_id, accept=True)
    assert accepted.status == Status.CANDIDATE_STATUS_WRITTEN
    report = await facts.forget(query="the database password", owner=user)
    assert list(report.fact_ids) == [accepted.fact_id]
    assert await facts.listed(user, include_superseded=True) == []
    assert all(known.candidate.text == "" for known in await facts.candidates(user))


async def _with_password(world: World) -> tuple[FactAgent, Conversation, str]:
    agent = await world.agent()
    facts, talk, user = FactAgent(agent), await Conversation.begin(agent), user_name()
    said = "The database password is correct-horse-77"
    decision = await facts.decided(said, owner=user, channel=pb.CHANNEL_USER, evidence=[await talk.hears(said)])
    assert decision.status == Status.CANDIDATE_STATUS_QUARANTINED
    return facts, talk, user


CITY = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}


async def test_a_poisoned_producer_is_rolled_back_whole_and_only_it(world: World) -> None:
    agent = await world.agent()
    talk, bad = await Conversation.begin(agent), "scraper/1"
    user = Teller(FactAgent(agent), talk, user_name())
    paris = await user.tells("Lives in Paris", object="Paris", **CITY)
    tea = await user.tells("Likes green tea", confidence=0.8)
    before = {fact.id: fact for fact in await user.facts.listed(user.user)}
    await world.elapse(2)
    rome = await user.tells("Lives in Rome", object="Rome", producer=bad, **CITY)
    heard = await talk.hears("Green tea, says the page.")
    merged = await user.tells("Likes green tea", confidence=0.8, producer=bad, evidence=[heard])
    alone = await user.tells("Eats only raw onions", producer=bad)
    assert merged == tea
    assert (await user.facts.get(tea)).confidence == pytest.approx(0.96)
    would = await user.facts.forget(producer=bad, owner=user.user, dry_run=True)
    report = await user.facts.forget(producer=bad, owner=user.user)
    assert set(would.fact_ids) == set(report.fact_ids) == {rome, alone}
    assert {name: count for name, count in places(report).items() if name in ("facts", "sources", "revived")} == {
        "facts": 2,
        "sources": 1,
        "revived": 1,
    }
    after = {fact.id: fact for fact in await user.facts.listed(user.user)}
    assert after.keys() == before.keys() == {paris, tea}
    for fact_id, fact in after.items():
        was = before[fact_id]
        assert (fact.text, fact.trust, fact.source_count) == (was.text, was.trust, was.source_count)
        assert fact.confidence == pytest.approx(was.confidence)
        assert list(fact.evidence) == list(was.evidence)
        assert (fact.superseded_by, fact.HasField("valid_to")) == ("", False)
    assert (await user.finds("Who lives where?"))[0] == "Lives in Paris"
    await world.elapse(2)
    oslo = await user.decided("Lives in Oslo", object="Oslo", **CITY)
    assert list(oslo.superseded) == [paris], "what was put back takes part in conflicts again"


async def test_a_rollback_leaves_the_evidence_of_others_as_it_was(world: World) -> None:
    agent = await world.agent()
    facts, talk, user = FactAgent(agent), await Conversation.begin(agent), user_name()
    heard = await talk.hears("I like green tea and my sister Ann")
    page = await talk.hears("Some page of mud")
    claim: dict[str, Any] = {"owner": user, "channel": pb.CHANNEL_USER}
    tea = await facts.decided("Likes green tea", evidence=[heard], **claim)
    mud = await facts.decided("Is fond of mud and green soap", evidence=[heard, page], producer="scraper/1", **claim)
    report = await facts.forget(producer="scraper/1", owner=user)
    assert list(report.fact_ids) == [mud.fact_id]
    said = {message.id: message.parts[0].text for message in await talk.sessions.messages(talk.id)}
    assert said == {"m1": "I like green tea and my sister Ann", "m2": "[forgotten]"}
    (left,) = await facts.listed(user)
    assert (left.id, left.evidence[0].reference) == (tea.fact_id, heard.reference)
    await world.elapse(2)
    ann = await facts.decided("Has a sister Ann", evidence=[heard], **claim)
    assert ann.status == Status.CANDIDATE_STATUS_WRITTEN, "what others rest on may teach again"
    again = await facts.decided("Knows of mud", evidence=[page], **claim)
    assert again.status == Status.CANDIDATE_STATUS_SUPPRESSED


async def test_a_rollback_of_a_chain_puts_back_what_stood_before_it(world: World) -> None:
    user = await Teller.begin(await world.agent())
    paris = await user.tells("Lives in Paris", object="Paris", **CITY)
    for city in ("Rome", "Bonn"):
        await world.elapse(2)
        await user.tells(f"Lives in {city}", object=city, producer="scraper/1", **CITY)
    await user.facts.forget(producer="scraper/1", owner=user.user)
    assert [fact.id for fact in await user.facts.listed(user.user, include_superseded=True)] == [paris]
    await world.elapse(2)
    oslo = await user.tells("Lives in Oslo", object="Oslo", **CITY)
    await world.elapse(2)
    await user.tells("Lives in Rome", object="Rome", producer="scraper/2", **CITY)
    await user.facts.forget(producer="scraper/2", owner=user.user)
    standing = await user.facts.listed(user.user, include_superseded=True)
    assert {fact.id: fact.superseded_by for fact in standing} == {oslo: "", paris: oslo}


async def test_a_rollback_lowers_the_trust_that_only_the_producer_brought(world: World) -> None:
    user, op = await Teller.begin(await world.agent()), await operator(world)
    shop = await user.tells("The shop opens at nine", confidence=0.8)
    await op.decided("The shop opens at nine", owner=user.user, channel=pb.CHANNEL_INTERNAL, producer="loader/1")
    assert (await user.facts.get(shop)).trust == 1.0
    assert (await user.search("When does the shop open?", trust_min=0.9)).hits
    await op.forget(producer="loader/1", scope=user.user)
    fact = await user.facts.get(shop)
    assert (fact.trust, fact.source_count) == (0.5, 1)
    assert fact.confidence == pytest.approx(0.8)
    assert list((await user.search("When does the shop open?", trust_min=0.9)).hits) == []
    assert [hit.fact.id for hit in (await user.search("When does the shop open?")).hits] == [shop]


async def test_what_nobody_trusted_says_goes_with_the_producer_that_was_trusted(world: World) -> None:
    agent = await world.agent()
    facts, talk, user = FactAgent(agent), await Conversation.begin(agent), user_name()
    await facts.set_policy(user, trust_min=0.0)
    page = pb.Candidate(text="The shop opens at nine", owner=user, channel=pb.CHANNEL_EXTERNAL)
    page.confidence = page.importance = 0.8
    (low,) = (await facts.submit(page)).decisions
    heard = await talk.hears("The shop opens at nine")
    await facts.decided(page.text, owner=user, channel=pb.CHANNEL_USER, evidence=[heard], producer="scraper/1")
    assert (await facts.get(low.fact_id)).trust == 0.5
    await facts.forget(producer="scraper/1", owner=user)
    assert await facts.listed(user) == []


async def test_an_agent_is_a_producer_and_the_operator_rolls_it_back_in_every_scope(world: World) -> None:
    bad, good = await Teller.begin(await world.agent("bad")), await Teller.begin(await world.agent("good"))
    name = bad.facts.agent.actor.agent_id
    ours, shared = bad.another(), world.space("team")
    await bad.tells("Likes mud")
    await ours.tells("Eats mud", owner=f"agent/{name}")
    await bad.tells("The team meets in the mud", scope=shared)
    await good.tells("The team meets on Mondays", scope=shared)
    with refusal(Reason.PERMISSION_DENIED) as error:
        await good.facts.forget(producer=name)
    assert "operator" in error.message
    op = await operator(world)
    report = await op.forget(producer=name)
    assert len(report.fact_ids) == 3
    assert await everything(op, bad.user) == set()
    assert await everything(op, f"agent/{name}") == set()
    assert await everything(op, shared) == {"The team meets on Mondays"}


async def test_what_is_not_clear_or_not_permitted_is_refused_and_nothing_is_forgotten(world: World) -> None:
    user = await Teller.begin(await world.agent())
    own = f"agent/{user.facts.agent.actor.agent_id}"
    fact_id = await user.tells("Likes green tea")
    mine = await user.tells("Likes to plan", owner=own)
    other = FactAgent(await world.agent())
    unclear: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "what"),
        ({"query": "tea"}, "owner"),
        ({"all": True}, "owner"),
        ({"query": "please forget everything", "owner": user.user}, "query"),
        ({"query": "x" * 5000, "owner": user.user}, "query"),
        ({"fact_id": "user/nobody"}, "fact_id"),
        ({"fact_id": fact_id, "scope": "user/another"}, "scope"),
        ({"query": "tea", "owner": "nobody"}, "owner"),
    )
    for fields, words in unclear:
        with refusal(Reason.INVALID_FIELD) as error:
            await user.facts.forget(**fields)
        assert error.message.startswith(words), fields
    with refusal(Reason.ENTRY_NOT_FOUND):
        await user.facts.forget(fact_id=fact_id[:-1] + ("0" if fact_id[-1] != "0" else "1"))
    denied: tuple[dict[str, Any], ...] = (
        {"fact_id": mine},
        {"all": True, "owner": own},
        {"producer": "x", "scope": own},
    )
    for fields in denied:
        with refusal(Reason.PERMISSION_DENIED):
            await other.forget(**fields)
    assert await everything(user.facts, user.user) == {"Likes green tea"}
    assert await everything(user.facts, own) == {"Likes to plan"}


async def test_a_repeated_request_forgets_nothing_that_was_said_since(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.tells("Likes green tea")
    call = user.facts.agent.call()
    call.request_id.uuid = str(uuid.uuid4())
    first = await user.facts.forget(all=True, owner=user.user, call=call)
    await world.elapse(2)
    await user.tells("Likes black tea")
    assert await user.facts.forget(all=True, owner=user.user, call=call) == first
    assert await everything(user.facts, user.user) == {"Likes black tea"}
    with refusal(Reason.REQUEST_ID_REUSED):
        await user.facts.forget(query="black tea", owner=user.user, call=call)
    one = user.facts.agent.call()
    one.request_id.uuid = str(uuid.uuid4())
    (fact,) = await user.facts.listed(user.user)
    gone = await user.facts.forget(fact_id=fact.id, call=one)
    assert await user.facts.forget(fact_id=fact.id, call=one) == gone, "it is an answer, not a fact that is not there"
