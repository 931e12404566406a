"""Forgetting under adverse conditions: what waits, what is being decided, crashes half way, and every byte on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer
from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.sessions import space
from tests.support.statuses import refusal
from tests.support.toolcalls import finish, start
from tests.support.transport import Stream

from noosphere.consistency import Reason, Refusal
from noosphere.server.facts import selecting
from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2

Status = pb.CandidateStatus
CANARY = "Zanzibar-7411-Okapi"
SAID = f"The wine cellar opens with {CANARY}"


class Case:
    """An agent, a session in which the user speaks, and the user."""

    def __init__(self, facts: FactAgent, talk: Conversation, user: str) -> None:
        self.facts, self.talk, self.user = facts, talk, user

    @classmethod
    async def begin(cls, local: LocalServer) -> Case:
        """Opens the session."""
        agent = await local.api.agent("planner")
        return cls(FactAgent(agent), await Conversation.begin(agent), user_name())

    def candidate(self, text: str, *evidence: pb.FactEvidence, **fields: Any) -> pb.Candidate:
        """What the agent submits for the user."""
        return pb.Candidate(text=text, owner=self.user, channel=pb.CHANNEL_USER, evidence=evidence, **fields)

    async def texts(self) -> list[str]:
        """What is known."""
        return sorted(fact.text for fact in await self.facts.listed(self.user, include_superseded=True))


@asynccontextmanager
async def held_at(target: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """Holds callers of a method before it does anything, until the block ends; gives what tells that one has come."""
    method, come, go = getattr(target, name), asyncio.Event(), asyncio.Event()

    async def waits(*args: Any, **kwargs: Any) -> Any:
        come.set()
        await go.wait()
        return await method(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(target, name, waits)
        try:
            yield come
        finally:
            patched.setattr(target, name, method)
            go.set()


async def decisions(stream: Stream[pb.WatchCandidatesResponse], ids: set[str]) -> dict[str, pb.Decision]:
    """Reads a watch until it has told of so many candidates."""
    told: dict[str, pb.Decision] = {}
    while not ids <= told.keys():
        message = await anext(stream)
        if message.HasField("decision"):
            told[message.decision.candidate_id] = message.decision
    await stream.aclose()
    return told


HOWS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "query": lambda case: {"query": "forget the wine cellar", "owner": case.user},
    "producer": lambda case: {"producer": "scraper/1", "owner": case.user},
    "all": lambda case: {"all": True, "owner": case.user},
}


@pytest.mark.parametrize("how", HOWS)
async def test_what_waits_is_forgotten_and_what_else_waits_is_not(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    case = await Case.begin(local)
    tea = case.candidate("Likes green tea", await case.talk.hears("I like green tea"))
    cellar = case.candidate(SAID, await case.talk.hears(SAID), producer="scraper/1")
    asked, stream = HOWS[how](case), case.facts.watch(case.user)
    await anext(stream)
    async with held_at(local.engine.facts.pipeline, "decide", monkeypatch) as come:
        (waiting,) = (await case.facts.submit(cellar, wait=False)).candidate_ids
        (other,) = (await case.facts.submit(tea, wait=False)).candidate_ids
        await come.wait()
        would = {place.place: place.count for place in (await case.facts.forget(**asked, dry_run=True)).places}
        done = {place.place: place.count for place in (await case.facts.forget(**asked)).places}
        assert would["queue"] == done["queue"] == (2 if how == "all" else 1)
        # What became of it is known, though a worker still has it.
        known = await case.facts.candidate(waiting)
        assert known.decision.status == Status.CANDIDATE_STATUS_SUPPRESSED
        assert [why.reason for why in known.decision.reasons] == ["forgotten"]
        assert known.candidate.text == ""
    told = await decisions(stream, {waiting} if how == "all" else {waiting, other})
    assert told[waiting].status == Status.CANDIDATE_STATUS_SUPPRESSED
    assert (await case.facts.candidate(waiting)) == known, "the worker changes nothing about it"
    assert how == "all" or told[other].status == Status.CANDIDATE_STATUS_WRITTEN
    assert await case.texts() == ([] if how == "all" else ["Likes green tea"])
    await local.elapse(2)
    (again,) = (await case.facts.submit(case.candidate(SAID, await case.talk.hears(SAID)))).decisions
    assert again.status == Status.CANDIDATE_STATUS_WRITTEN, "a new statement teaches it"


@pytest.mark.parametrize("how", HOWS)
async def test_what_is_just_being_written_is_not_written(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The worker has decided that it becomes a fact, and is about to commit."""
    case = await Case.begin(local)
    cellar = case.candidate(SAID, await case.talk.hears(SAID), producer="scraper/1")
    stream = case.facts.watch(case.user)
    await anext(stream)
    async with held_at(local.engine.facts.store, "write", monkeypatch) as come:
        (late,) = (await case.facts.submit(cellar, wait=False)).candidate_ids
        await come.wait()
        await case.facts.forget(**HOWS[how](case))
    told = await decisions(stream, {late})
    assert told[late].status == Status.CANDIDATE_STATUS_SUPPRESSED
    assert (await case.facts.candidate(late)).candidate.text == ""
    assert await case.texts() == []


async def test_a_late_extraction_brings_nothing_back_of_somebody_who_was_forgotten(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await Case.begin(local)
    await case.talk.hears("My favourite colour is teal.")
    stream = case.facts.watch(case.user)
    await anext(stream)
    async with held_at(local.engine.facts.intake, "enqueue", monkeypatch) as come:
        job = asyncio.create_task(case.facts.extract(session_id=case.talk.id, owner=case.user))
        await come.wait()
        await local.elapse(5)
        await case.facts.forget(all=True, owner=case.user)
        await local.elapse(5)
    late = set((await job).candidate_ids)
    assert late, "it had found something"
    for decision in (await decisions(stream, late)).values():
        assert [why.reason for why in decision.reasons] == ["owner_forgotten"]
    assert await case.texts() == []
    stream = case.facts.watch(case.user)
    await anext(stream)
    await case.talk.hears("My favourite colour is green.")
    later = await case.facts.extract(session_id=case.talk.id, owner=case.user)
    await decisions(stream, set(later.candidate_ids))
    assert await case.texts() == ["The user's favourite colour is green."], "what is said since is learned"


@pytest.mark.parametrize("how", ["all", "the fact that it names"])
async def test_an_extraction_that_waits_is_forgotten_with_what_it_is_to_read(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    case = await Case.begin(local)
    (learned,) = (await case.facts.submit(case.candidate(SAID, await case.talk.hears(SAID)))).decisions
    document = pb.SourceDocument(id="manual", text=f"A manual. {SAID}. The end.")
    async with held_at(local.engine.facts.queue, "take", monkeypatch):
        job = await case.facts.extract(document=document, owner=case.user, wait=False)
        assert job.state == pb.EXTRACTION_STATE_QUEUED
        if how == "all":
            await case.facts.forget(all=True, owner=case.user)
        else:
            await case.facts.forget(fact_id=learned.fact_id)
        assert (await case.facts.extraction(job.id)).state == pb.EXTRACTION_STATE_SUPPRESSED
    assert files_with(local, CANARY) == []


async def test_somebody_who_waits_for_a_decision_hears_that_it_was_forgotten(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await Case.begin(local)
    cellar = case.candidate(SAID, await case.talk.hears(SAID))
    async with held_at(local.engine.facts.pipeline, "decide", monkeypatch) as come:
        submitting = asyncio.create_task(case.facts.submit(cellar))
        await come.wait()
        await case.facts.forget(all=True, owner=case.user)
        (decision,) = (await submitting).decisions
    assert decision.status == Status.CANDIDATE_STATUS_SUPPRESSED


async def test_a_crash_before_the_words_are_gone_brings_nothing_back_and_upkeep_goes_on(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await Case.begin(local)
    (learned,) = (await case.facts.submit(case.candidate(SAID, await case.talk.hears(SAID)))).decisions
    with monkeypatch.context() as patched:

        async def away(*_: object) -> tuple[()]:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the disk is away")

        patched.setattr(type(local.engine.facts.forgetting._removal._redaction), "redact", away)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await case.facts.forget(fact_id=learned.fact_id)
    assert await case.texts() == [], "the ledger has forgotten it"
    await local.crash()
    case = Case(FactAgent(await local.api.agent("cli/op")), case.talk, case.user)
    assert await case.texts() == []
    assert [one async for one in local.engine.facts.store.versions(case.user)], "its words are still there"
    await case.facts.run_upkeep(case.user)
    assert not [one async for one in local.engine.facts.store.versions(case.user)]
    assert files_with(local, CANARY) == []
    with refusal(Reason.ENTRY_NOT_FOUND):
        await case.facts.forget(fact_id=learned.fact_id)


@pytest.mark.parametrize("what", ["a fact", "what is kept apart"])
async def test_one_thing_that_is_forgotten_leaves_nothing_in_any_file(local: LocalServer, what: str) -> None:
    case = await Case.begin(local)
    said = SAID if what == "a fact" else f"The password of the wine cellar is {CANARY}"
    await case.facts.submit(case.candidate(said, await case.talk.hears(said)))
    assert files_with(local, CANARY)
    await case.facts.forget(query="wine cellar", owner=case.user)
    assert files_with(local, CANARY) == []


async def test_a_value_of_very_many_words_is_forgotten_wherever_it_is(local: LocalServer) -> None:
    case = await Case.begin(local)
    many = [f"w{number:03d}" for number in range(500)]
    value = types_pb2.Value(data=json.dumps(many).encode(), encoding=types_pb2.ENCODING_JSON)
    fields = {"subject": "user", "predicate": "words", "object": value}
    for text in ("Knows many words", "The password is hunter2-and-more, among many words"):
        heard = await case.talk.hears(f"{text}: {' '.join(many)}")
        await case.facts.submit(case.candidate(text, heard, **fields))
    await case.facts.forget(query="many words", owner=case.user)
    assert await case.texts() == []
    assert files_with(local, many[0]) == files_with(local, many[-1]) == []


async def test_nothing_of_it_is_in_any_file_once_it_is_forgotten(local: LocalServer) -> None:
    """In messages, results of tools, items, checkpoints, contexts, facts, candidates, the queue, indexes and logs."""
    case = await Case.begin(local)
    sessions, talk = case.talk.sessions, case.talk
    turn = await sessions.begin_turn(talk.id)
    heard = await talk.hears(SAID)
    await talk.hears(f"Once more: {SAID}.")
    call = await start(sessions, talk.id, name="note", arguments=json.dumps({"text": SAID}))
    await finish(sessions, call.ticket, {"stored": SAID, "filler": ["x"] * 4_000})
    await sessions.agent.put(f"sessions/{talk.id}", "notes/cellar", json.dumps(SAID).encode(), blind=True)
    await ContextAgent(sessions, talk.id).assemble()
    await sessions.end_turn(talk.id, turn)
    (fact,) = (await case.facts.submit(case.candidate(SAID, heard))).decisions
    assert fact.fact_id
    apart = case.candidate(f"The password of the wine cellar is {CANARY}", heard)
    (kept,) = (await case.facts.submit(apart)).decisions
    assert kept.status == Status.CANDIDATE_STATUS_QUARANTINED
    assert {"facts.sqlite3"} <= {name.removesuffix("-wal") for name in files_with(local, CANARY)}
    report = await case.facts.forget(query="forget the wine cellar", owner=case.user)
    places = {place.place: place.count for place in report.places}
    assert {"facts", "index", "candidates", "messages", "tool_results"} <= places.keys()
    assert files_with(local, CANARY) == []
    await local.crash()
    assert files_with(local, CANARY) == []


async def test_a_fact_that_entered_working_memory_elsewhere_is_forgotten_there_too(local: LocalServer) -> None:
    case = await Case.begin(local)
    said = f"The launch of Phoenix needs {CANARY} from legal"
    own = {"owner": "agent/planner", "channel": pb.CHANNEL_USER, "evidence": [await case.talk.hears(said)]}
    learned = await case.facts.decided(said, **own)
    sessions = case.talk.sessions
    for name in ("work", "other"):
        await sessions.open(name)
        await sessions.agent.put(
            space(name), "goals/main", json.dumps("Prepare the launch of Phoenix").encode(), blind=True
        )
    await sessions.turns("work")
    await sessions.say("other", said)
    assert any(CANARY.encode() in data for data in (await sessions.items("work")).values()), "it was promoted"
    report = await case.facts.forget(fact_id=learned.fact_id)
    assert not any(CANARY.encode() in data for data in (await sessions.items("work")).values())
    # What somebody said elsewhere is theirs; the report names it.
    (message,) = await sessions.messages("other")
    assert message.parts[0].text == said
    assert [text for text in report.remaining if "session" in text] == ["session 'other' still holds some of its words"]


def files_with(local: LocalServer, text: str) -> list[str]:
    """Names the files of the data folder that hold a text."""
    paths = [path for path in local.data.rglob("*") if path.is_file()]
    return sorted(path.name for path in paths if text.encode() in path.read_bytes())


async def test_what_is_kept_apart_of_one_owner_is_found_among_however_much_of_others(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selecting, "FOUND_MAX", 2)
    facts, mine, scope = FactAgent(await local.api.agent("planner")), user_name(), "shared/office"
    for owner in (*(user_name() for _ in range(20)), mine):
        decision = await facts.decided(SAID, owner=owner, scope=scope, channel=pb.CHANNEL_EXTERNAL)
        assert decision.status == Status.CANDIDATE_STATUS_REJECTED, decision
    report = await facts.forget(all=True, owner=mine, scope=scope)
    assert {place.place: place.count for place in report.places}["candidates"] == 1
    texts = [one.candidate.text for one in await facts.candidates(scope)]
    assert sorted(texts) == ["", *[SAID] * 20]
