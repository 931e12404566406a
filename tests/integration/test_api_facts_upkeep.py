"""Upkeep: what has ended goes, confidence decays, what says the same becomes one, old events one summary."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.engine import LocalServer
from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.statuses import Refused, refusal
from tests.support.telling import Teller
from tests.support.worlds import DIRECT, LocalWorld, World

from noosphere.consistency import Reason, Refusal
from noosphere.server.facts import pipeline, planning
from noosphere.server.ports.factqueue import Job
from noosphere.server.ports.factstore import FactContent, FactKey
from noosphere.v1 import fact_service_pb2 as pb

DAY_MS = 24 * 3600 * 1000
ORPHAN_AGE_MS = 10 * 60 * 1000
PLACES = ("Oslo", "Bergen", "Lyon", "Paris", "Rome", "Bonn", "Graz", "Turin", "Porto")
EPISODIC = pb.MEMORY_TYPE_EPISODIC


@pytest.fixture
def local_world(local: LocalServer) -> LocalWorld:
    """A server whose time stands still until the test moves it; its upkeep rests."""
    return LocalWorld(local)


def told(run: pb.RunFactUpkeepResponse) -> list[tuple[str, str]]:
    """Which facts were changed, and how."""
    return sorted((change.fact_id, change.action) for change in run.changes)


async def kept_words(world: LocalWorld, scope: str) -> set[FactKey]:
    """Everything that the fact store keeps of a scope."""
    return {key async for key in world.server.engine.facts.store.versions(scope)}


async def seen(user: Teller, fact_id: str) -> dict[str, bool]:
    """By which calls a fact is seen."""
    try:
        read = (await user.facts.get(fact_id)).id == fact_id
    except Refused as error:
        read = error.reason != Reason.ENTRY_NOT_FOUND
    return {
        "search": fact_id in {hit.fact.id for hit in (await user.search("tea", include_superseded=True)).hits},
        "list": fact_id in {fact.id for fact in await user.facts.listed(user.user, include_superseded=True)},
        "get": read,
    }


async def test_a_fact_ends_exactly_at_its_time_with_the_sweeper_off(local_world: LocalWorld) -> None:
    user = await Teller.begin(await local_world.agent())
    end = local_world.server.engine.facts.ledger.now_ms + 1_000
    candidate = pb.Candidate()
    candidate.expire_time.FromMilliseconds(end)
    tea = await user.tells("Likes green tea today", expire_time=candidate.expire_time)
    lasting = await user.tells("Likes black tea always")
    await local_world.elapse(999)
    assert await seen(user, tea) == {"search": True, "list": True, "get": True}
    await local_world.elapse(1)
    assert await seen(user, tea) == {"search": False, "list": False, "get": False}
    assert await seen(user, lasting) == {"search": True, "list": True, "get": True}
    assert tea in {key.fact_id for key in await kept_words(local_world, user.user)}, "nobody has swept"
    again = await user.decided("Likes green tea today")
    assert again.status == pb.CANDIDATE_STATUS_WRITTEN, "what has ended holds no claim"
    assert again.fact_id != tea


async def test_what_has_ended_goes_with_its_words_as_a_dry_run_tells(local_world: LocalWorld) -> None:
    user = await Teller.begin(await local_world.agent())
    candidate = pb.Candidate()
    candidate.expire_time.FromMilliseconds(local_world.server.engine.facts.ledger.now_ms + 1_000)
    tea = await user.tells("Likes green tea today", expire_time=candidate.expire_time)
    lasting = await user.tells("Likes black tea always")
    assert told(await user.facts.run_upkeep(user.user)) == []
    await local_world.elapse(1_000)
    would = await user.facts.run_upkeep(user.user, dry_run=True)
    assert tea in {key.fact_id for key in await kept_words(local_world, user.user)}
    done = await user.facts.run_upkeep(user.user)
    assert told(would) == told(done) == [(tea, "expire")]
    assert (would.looked_at, done.looked_at) == (2, 2)
    assert {key.fact_id for key in await kept_words(local_world, user.user)} == {lasting}
    (newest,) = (await user.facts.upkeep(user.user)).rounds
    assert (newest.scope, newest.looked_at, dict(newest.changed), newest.failure) == (user.user, 2, {"expire": 1}, "")
    assert told(await user.facts.run_upkeep(user.user)) == []


async def test_confidence_is_halved_in_every_half_life_of_the_predicate(local_world: LocalWorld) -> None:
    user = await Teller.begin(await local_world.agent())
    await user.facts.set_policy(user.user, half_life={"mood": Duration(seconds=DAY_MS // 1000)})
    mood = await user.tells("In a good mood", subject="user", predicate="mood", object="good", confidence=0.8)
    other = await user.tells("Prefers metric units", subject="user", predicate="units", object="metric")
    was = (await user.facts.get(other)).confidence
    assert told(await user.facts.run_upkeep(user.user)) == []
    for left in (0.4, 0.2):
        await local_world.elapse(DAY_MS)
        would = await user.facts.run_upkeep(user.user, dry_run=True)
        assert told(would) == told(await user.facts.run_upkeep(user.user)) == [(mood, "decay")]
        assert (await user.facts.get(mood)).confidence == pytest.approx(left)
        assert told(await user.facts.run_upkeep(user.user)) == [], "it has decayed up to now"
    await local_world.elapse(DAY_MS // 2)
    await user.facts.run_upkeep(user.user)
    assert (await user.facts.get(mood)).confidence == pytest.approx(0.2 / 2**0.5), "however often upkeep runs"
    assert (await user.facts.get(other)).confidence == was


async def test_what_came_at_the_same_moment_and_says_the_same_becomes_one(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await Teller.begin(await local_world.agent())
    older = await user.decided("Deploys really happen without a fuss", confidence=0.8)
    with monkeypatch.context() as patched:
        # As if both had been looked for before either was there.
        async def nothing(*_: object) -> tuple[()]:
            return ()

        patched.setattr(pipeline, "find_near", nothing)
        await local_world.elapse(1)
        newer = await user.decided("Deploys happen without a fuss", confidence=0.8)
    assert newer.status == pb.CANDIDATE_STATUS_WRITTEN
    assert newer.fact_id != older.fact_id
    would = await user.facts.run_upkeep(user.user, dry_run=True)
    assert len(await user.facts.listed(user.user)) == 2
    assert told(would) == told(await user.facts.run_upkeep(user.user)) == [(newer.fact_id, "merge")]
    (one,) = await user.facts.listed(user.user)
    assert (one.id, one.source_count, len(one.evidence)) == (older.fact_id, 2, 2)
    assert one.confidence == pytest.approx(0.96)
    assert {key.fact_id for key in await kept_words(local_world, user.user)} == {older.fact_id}
    again = await user.decided("Deploys happen without a fuss")
    assert (again.status, again.fact_id) == (pb.CANDIDATE_STATUS_MERGED, older.fact_id)


async def events(world: LocalWorld, count: int) -> tuple[FactAgent, str, list[str]]:
    """Has so many things happen in one session, one a minute; returns the facts that they became."""
    agent = await world.agent()
    facts, talk, user = FactAgent(agent), await Conversation.begin(agent), user_name()
    ids: list[str] = []
    for number, place in enumerate(PLACES[:count]):
        text = f"Visited the museum of {place} on trip {number}"
        heard = await talk.hears(text)
        decision = await facts.decided(
            text, owner=user, channel=pb.CHANNEL_USER, evidence=[heard], memory_type=EPISODIC
        )
        assert decision.fact_id, decision
        ids.append(decision.fact_id)
        await world.elapse(60_000)
    return facts, user, ids


async def test_old_events_of_a_session_become_one_summary_that_stands_on_them(local_world: LocalWorld) -> None:
    facts, user, ids = await events(local_world, 8)
    await local_world.elapse(30 * DAY_MS - 60_000 - 1)
    assert told(await facts.run_upkeep(user)) == [], "the last is not old yet"
    await local_world.elapse(1)
    would = await facts.run_upkeep(user, dry_run=True)
    done = await facts.run_upkeep(user)
    assert told(would) == told(done) == sorted((id, "compress") for id in ids)
    (summary,) = await facts.listed(user)
    assert summary.memory_type == EPISODIC
    assert {one.reference for one in summary.evidence} == {f"fact:{id}" for id in ids}
    everything = {fact.id: fact for fact in await facts.listed(user, include_superseded=True)}
    assert {everything[id].superseded_by for id in ids} == {summary.id}, "the originals stay as evidence"
    found = [hit.fact.id for hit in await facts.search("Which museum was visited?", user)]
    assert found == [summary.id]
    assert told(await facts.run_upkeep(user)) == []


async def test_few_events_and_pinned_ones_stay_as_they_are(local_world: LocalWorld) -> None:
    facts, user, ids = await events(local_world, 7)
    heard = pb.FactEvidence(reference=(await facts.get(ids[0])).evidence[0].reference)
    pinned = await facts.decided(
        "Visited the museum at home", owner=user, channel=pb.CHANNEL_USER, evidence=[heard], memory_type=EPISODIC,
        pinned=True,
    )  # fmt: skip
    assert pinned.fact_id
    await local_world.elapse(31 * DAY_MS)
    assert told(await facts.run_upkeep(user)) == []
    assert {fact.id for fact in await facts.listed(user)} == {*ids, pinned.fact_id}


async def test_a_forgotten_event_takes_its_summary_along_and_the_others_speak_for_themselves(
    local_world: LocalWorld,
) -> None:
    facts, user, ids = await events(local_world, 9)
    await local_world.elapse(31 * DAY_MS)
    await facts.run_upkeep(user)
    (summary,) = await facts.listed(user)
    would = await facts.forget(fact_id=ids[3], dry_run=True)
    report = await facts.forget(fact_id=ids[3])
    assert set(would.fact_ids) == set(report.fact_ids) == {ids[3], summary.id}
    left = await facts.listed(user, include_superseded=True)
    assert {fact.id for fact in left} == {*ids} - {ids[3]}
    assert {fact.superseded_by for fact in left} == {""}
    assert len(await facts.search("Which museum was visited?", user)) == 8


async def test_a_query_that_a_summary_meets_with_one_of_its_events_leaves_the_others(local_world: LocalWorld) -> None:
    facts, user, ids = await events(local_world, 9)
    await local_world.elapse(31 * DAY_MS)
    await facts.run_upkeep(user)
    (summary,) = await facts.listed(user)
    report = await facts.forget(query="the museum of Paris", owner=user)
    assert set(report.fact_ids) == {ids[PLACES.index("Paris")], summary.id}
    left = {fact.text for fact in await facts.listed(user)}
    assert len(left) == 8
    assert not any("Paris" in text for text in left)


async def test_whoever_forgets_a_summary_forgets_what_it_sums_up(local_world: LocalWorld) -> None:
    facts, user, ids = await events(local_world, 8)
    await local_world.elapse(31 * DAY_MS)
    await facts.run_upkeep(user)
    (summary,) = await facts.listed(user)
    would = await facts.forget(fact_id=summary.id, dry_run=True)
    report = await facts.forget(fact_id=summary.id)
    assert set(would.fact_ids) == set(report.fact_ids) == {summary.id, *ids}
    assert await facts.listed(user, include_superseded=True) == []
    assert await kept_words(local_world, user) == set()


async def test_a_rollback_takes_what_a_producer_added_to_a_summary(local_world: LocalWorld) -> None:
    facts, user, ids = await events(local_world, 8)
    shared = (await facts.get(ids[0])).evidence[0].reference
    bad = await facts.decided(
        "Visited the museum of mud", owner=user, channel=pb.CHANNEL_USER, memory_type=EPISODIC, producer="scraper/1",
        evidence=[pb.FactEvidence(reference=shared)],
    )  # fmt: skip
    assert bad.fact_id
    await local_world.elapse(31 * DAY_MS)
    await facts.run_upkeep(user)
    (summary,) = await facts.listed(user)
    report = await facts.forget(producer="scraper/1", owner=user)
    assert set(report.fact_ids) == {bad.fact_id, summary.id}
    assert {fact.id for fact in await facts.listed(user)} == set(ids)


async def test_words_that_no_decision_names_are_swept_once_they_are_old(local_world: LocalWorld) -> None:
    user = await Teller.begin(await local_world.agent())
    tea = await user.tells("Likes green tea")
    store = local_world.server.engine.facts.store
    (key,) = await kept_words(local_world, user.user)
    (content,) = await store.read((key,))
    assert content is not None
    orphans = [
        # A decision that was never committed: of a fact that is not there, and another version of one that is.
        content._replace(fact_id=f"{user.user}#{'0' * 24}"),
        content._replace(version=content.version + 1),
    ]
    await store.write(orphans)
    assert await user.finds("green tea") == ["Likes green tea"]
    await local_world.elapse(ORPHAN_AGE_MS - 1)
    assert told(await user.facts.run_upkeep(user.user)) == [], "it may be of a decision that is just being committed"
    await local_world.elapse(1)
    would = await user.facts.run_upkeep(user.user, dry_run=True)
    assert (
        told(would) == told(await user.facts.run_upkeep(user.user)) == sorted((one.fact_id, "sweep") for one in orphans)
    )
    assert {one.fact_id for one in await kept_words(local_world, user.user)} == {tea}
    assert await user.finds("green tea") == ["Likes green tea"]


async def test_a_round_that_fails_says_so_and_the_next_one_does_its_work(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, user, ids = await events(local_world, 8)
    await local_world.elapse(31 * DAY_MS)
    before = await facts.listed(user, include_superseded=True)
    with monkeypatch.context() as patched:

        async def full(contents: list[FactContent]) -> None:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the disk is full")

        patched.setattr(local_world.server.engine.facts.store, "write", full)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await facts.run_upkeep(user)
    assert await facts.listed(user, include_superseded=True) == before
    (failed,) = (await facts.upkeep(user)).rounds
    assert "the disk is full" in failed.failure
    assert dict(failed.changed) == {}
    assert told(await facts.run_upkeep(user)) == sorted((id, "compress") for id in ids)
    (newest,) = (await facts.upkeep(user)).rounds
    assert (newest.failure, dict(newest.changed)) == ("", {"compress": 8})


async def test_what_a_failed_round_would_have_compared_is_compared_by_the_next(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await Teller.begin(await local_world.agent())
    await user.facts.run_upkeep(user.user)
    older = await user.tells("Deploys really happen without a fuss")
    with monkeypatch.context() as patched:

        async def nothing(*_: object) -> tuple[()]:
            return ()

        patched.setattr(pipeline, "find_near", nothing)
        await local_world.elapse(1)
        newer = await user.tells("Deploys happen without a fuss")

        async def broken(*_: Any) -> tuple[()]:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the disk is away")

        patched.setattr(local_world.server.engine.facts.store, "by_keywords", broken)
        await local_world.elapse(1)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await user.facts.run_upkeep(user.user)
    await local_world.elapse(1)
    assert told(await user.facts.run_upkeep(user.user)) == [(newer, "merge")]
    assert [fact.id for fact in await user.facts.listed(user.user)] == [older]


async def test_what_one_round_has_no_room_to_compare_is_compared_by_the_next(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await Teller.begin(await local_world.agent())
    older = await user.tells("Deploys really happen without a fuss")
    with monkeypatch.context() as patched:

        async def nothing(*_: object) -> tuple[()]:
            return ()

        patched.setattr(pipeline, "find_near", nothing)
        await local_world.elapse(1)
        newer = await user.tells("Deploys happen without a fuss")
    monkeypatch.setattr(planning, "COMPARED_MAX", 1)
    await local_world.elapse(1)
    assert told(await user.facts.run_upkeep(user.user)) == [], "it compares the older one, with nothing"
    await local_world.elapse(1)
    assert told(await user.facts.run_upkeep(user.user)) == [(newer, "merge")]
    assert [fact.id for fact in await user.facts.listed(user.user)] == [older]


async def test_jobs_that_were_given_up_go_when_their_fate_is_no_longer_remembered(local_world: LocalWorld) -> None:
    operator = FactAgent(await local_world.agent("cli/anna"))
    queue = local_world.server.engine.facts.queue
    await queue.put([Job("shared/office#c" + "0" * 24, 2, b'{"kind": "unheard of"}', "shared/office#shared/office")])
    local_world.server.engine.facts.workers.wake()
    while not (await queue.stats()).dead:
        await operator.upkeep()
    await local_world.elapse(30 * DAY_MS - 60_000)
    await operator.run_upkeep()
    assert (await queue.stats()).dead == 1
    await local_world.elapse(60_000)
    await operator.run_upkeep(dry_run=True)
    assert (await queue.stats()).dead == 1
    await operator.run_upkeep()
    assert (await queue.stats()).dead == 0


@DIRECT
async def test_upkeep_of_one_scope_leaves_others_alone_and_all_are_the_operators(world: World) -> None:
    user, other = await Teller.begin(await world.agent()), FactAgent(await world.agent())
    own = f"agent/{user.facts.agent.actor.agent_id}"
    await user.tells("Likes green tea")
    run = await user.facts.run_upkeep(user.user, dry_run=True)
    assert (list(run.changes), run.looked_at) == ([], 1)
    for scope in ("", own):
        for call in (other.run_upkeep, other.upkeep):
            with refusal(Reason.PERMISSION_DENIED):
                await call(scope)
    with refusal(Reason.INVALID_FIELD):
        await user.facts.run_upkeep("nobody")
    await user.facts.run_upkeep(user.user)
    status = await FactAgent(await world.agent("cli/op")).upkeep()
    assert user.user in {one.scope for one in status.rounds}
    assert (status.leased, status.dead) == (0, 0)


@DIRECT
async def test_time_ends_facts_in_every_world(world: World) -> None:
    user = await Teller.begin(await world.agent())
    await user.facts.set_policy(user.user, ttl={"working": Duration(nanos=400_000_000)})
    tea = await user.tells("Drinks tea just now", memory_type=pb.MEMORY_TYPE_WORKING)
    lasting = await user.tells("Likes black tea always")
    await world.elapse(400)
    assert await seen(user, tea) == {"search": False, "list": False, "get": False}
    assert await seen(user, lasting) == {"search": True, "list": True, "get": True}
