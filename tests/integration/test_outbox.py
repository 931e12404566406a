"""The outbox is drained: what left working memory is handed over with what it is worth, once in effect."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.support import toolcalls
from tests.support.api import Agent
from tests.support.engine import LocalServer, local_server
from tests.support.resting import Resting
from tests.support.sessions import SessionAgent, said, space
from tests.support.waiting import SECONDS_MAX

from noosphere.consistency import Reason, Refusal
from noosphere.server import assembly
from noosphere.server.ports.candidates import HANDED_MAX, HandedCandidate
from noosphere.server.ports.factqueue import Job
from noosphere.server.sessions.draining import INTERVAL_MS_MIN, REST_MS, OutboxDrain
from noosphere.server.sessions.evidence import Evidence
from noosphere.server.sessions.keys import OUTBOX, PROCEDURE_IDS, id_key
from noosphere.server.sessions.outbox import Candidate, CandidateValue, propose
from noosphere.server.sessions.scribe import BACKGROUND, Intent, Scan
from noosphere.server.storage.facts import EmbeddedFactQueue
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

S = "s"


class Ended(BaseException):
    """The process ends here."""


class QueueSink:
    """Puts candidates into the real queue."""

    def __init__(self, queue: EmbeddedFactQueue) -> None:
        self._queue = queue
        self.refusals: list[Reason] = []
        self.disliked = ""
        self.ends_after_taking = False
        self.calls = 0

    async def take(self, candidates: Sequence[HandedCandidate]) -> None:
        """Queues them, or does what the test wants instead."""
        self.calls += 1
        assert 0 < len(candidates) <= HANDED_MAX
        if self.refusals:
            raise Refusal(self.refusals.pop(0), "not now")
        if self.disliked and any(self.disliked in candidate.text for candidate in candidates):
            raise Refusal(Reason.INVALID_FIELD, "text: disliked")
        await self._queue.put([Job(one.id, 5, msgspec.json.encode(one)) for one in candidates])
        if self.ends_after_taking:
            raise Ended

    async def queued(self) -> list[HandedCandidate]:
        """Returns what waits in the queue, by id."""
        leased = await self._queue.take("test", 1_024, 1)
        return sorted(msgspec.json.decode(one.job.body, type=HandedCandidate) for one in leased)


class Bench(NamedTuple):
    """A server, one open session, and its drain."""

    server: LocalServer
    agent: SessionAgent
    other: SessionAgent
    sink: QueueSink

    def drain(self) -> OutboxDrain:
        """Returns a drain of the present life; it has not begun."""
        scribe = self.server.engine.sessions.scribe
        clock = self.server.clock
        return OutboxDrain(scribe, Evidence(scribe), self.sink, clock=clock, interval_ms=INTERVAL_MS_MIN)

    async def drained(self) -> dict[str, HandedCandidate]:
        """Drains all sessions; returns what is queued by its text."""
        await self.drain().round()
        return {one.text: one for one in await self.sink.queued()}

    async def waiting(self, session_id: str = S) -> int:
        """Returns how many entries are in the outbox."""
        scribe = self.server.engine.sessions.scribe
        page = await scribe.scan(await scribe.living(session_id), Scan(OUTBOX, 1_024))
        return sum(entry.live_until_ms > page.view.now_ms for entry in page.entries)

    async def put(self, key: str, value: object, agent: SessionAgent | None = None, **attributes: str | float) -> None:
        """Writes an item as JSON."""
        writer = (agent or self.agent).agent
        await writer.put(space(S), key, json.dumps(value).encode(), attributes=attributes, blind=True)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A server, two agents, a session that the first has opened, and a real queue."""
    monkeypatch.setattr(assembly, "OutboxDrain", Resting)
    async with local_server(tmp_path) as server:
        queue = await EmbeddedFactQueue.open(tmp_path, clock=server.clock, durability="os")
        try:
            agents = [SessionAgent(Agent(server.api, await server.api.open_agent(name))) for name in ("a", "b")]
            await agents[0].open(S)
            yield Bench(server, agents[0], agents[1], QueueSink(queue))
        finally:
            await queue.close()


@contextlib.asynccontextmanager
async def running(drain: OutboxDrain) -> AsyncIterator[asyncio.Task[None]]:
    """Runs a drain for a while."""
    task = asyncio.create_task(drain.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Lets others run until a condition holds."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():  # noqa: ASYNC110 # what is waited for has no event
            await asyncio.sleep(0)


async def test_what_closing_archives_is_handed_over_and_leaves_the_outbox(bench: Bench) -> None:
    await bench.agent.say(S, "I do not eat meat")
    await bench.put("notes/diet", "The user does not eat meat.", importance=0.8)
    await bench.put("results/trip", {"text": "Booked a train.", "to": "Bern", "legs": [1, 2], "paid": True})
    await bench.agent.close(S)
    assert await bench.waiting() == 2
    found = await bench.drained()
    assert await bench.waiting() == 0
    diet = found["The user does not eat meat."]
    assert (diet.owner, diet.memory_type, diet.importance, diet.trust) == ("agent/a", "semantic", 0.8, 0.5)
    assert diet.producer == "working-memory/session_closed"
    assert diet.id.startswith(f"outbox:{S}/")
    trip = found["trip:\nBooked a train.\nto: Bern\nlegs: 1, 2\npaid: true"]
    assert (trip.memory_type, trip.importance) == ("episodic", None)


async def test_a_crash_after_the_hand_over_makes_no_second_candidate(bench: Bench) -> None:
    await bench.put("notes/a", "one thing to remember")
    await bench.put("notes/b", "another thing to remember")
    await bench.agent.close(S)
    bench.sink.ends_after_taking = True
    with pytest.raises(Ended):
        await bench.drain().round()
    before = await bench.sink.queued()
    bench.sink.ends_after_taking = False
    await bench.server.crash()
    bench.server.clock.advance(2)
    await bench.drain().round()
    bench.server.clock.advance(2)
    assert await bench.sink.queued() == before
    assert len(before) == 2
    assert await bench.waiting() == 0


@pytest.mark.parametrize("reason", [Reason.LIMIT_EXCEEDED, Reason.ENGINE_UNAVAILABLE])
async def test_what_is_not_taken_stays_and_is_handed_over_after_a_rest(bench: Bench, reason: Reason) -> None:
    await bench.put("notes/a", "one thing to remember")
    await bench.agent.close(S)
    bench.sink.refusals = [reason, reason]
    async with running(bench.drain()):
        for calls, rest_ms in ((1, REST_MS), (2, 2 * REST_MS)):
            await until(partial(_called, bench, calls))
            await bench.server.elapse(rest_ms - 1)
            assert (bench.sink.calls, await bench.waiting()) == (calls, 1)
            await bench.server.elapse(1)
        await until(partial(_is_empty, bench))
    assert [one.text for one in await bench.sink.queued()] == ["one thing to remember"]


async def test_a_queue_that_is_away_for_long_is_told_of_once(bench: Bench) -> None:
    await bench.put("notes/a", "one thing to remember")
    await bench.agent.close(S)
    bench.sink.refusals = [Reason.ENGINE_UNAVAILABLE] * 5
    with capture_logs() as logged:
        async with running(bench.drain()):
            for calls in range(1, 6):
                await until(partial(_called, bench, calls))
                await bench.server.elapse(REST_MS << (calls - 1))
            await until(partial(_is_empty, bench))
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == [
        "handing candidates over is refused"
    ]


async def test_a_mistake_about_one_session_holds_up_no_other_and_stops_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.agent.open("t")
    for session_id in (S, "t"):
        await bench.agent.agent.put(space(session_id), "notes/a", json.dumps(f"remember {session_id}").encode())
        await bench.agent.close(session_id)
    drain = bench.drain()
    drained = drain._drain

    async def fails_at_one(session_id: str) -> None:
        if session_id == S:
            raise LookupError("planted by the test")
        await drained(session_id)

    monkeypatch.setattr(drain, "_drain", fails_at_one)
    with capture_logs() as logged:
        async with running(drain) as task:
            await until(partial(_called, bench, 1))
            await bench.server.elapse(INTERVAL_MS_MIN)
            assert not task.done()
            monkeypatch.setattr(drain, "_drain", drained)
            await bench.server.elapse(INTERVAL_MS_MIN)
            await until(partial(_is_empty, bench))
    assert {line["session"] for line in logged if line["log_level"] == "error"} == {S}
    assert [one.text for one in await bench.sink.queued()] == ["remember s", "remember t"]


async def test_a_candidate_that_is_refused_for_what_it_says_holds_up_no_other(bench: Bench) -> None:
    for text in ("before it comes this", "this one is bad in itself", "after it comes that"):
        value = CandidateValue(json=msgspec.Raw(json.dumps(text).encode()))
        await _propose(bench, S, Candidate(f"notes/{text[:4]}", 1, value))
    bench.sink.disliked = "bad"
    drain = bench.drain()
    await drain.round()
    assert sorted(one.text for one in await bench.sink.queued()) == ["after it comes that", "before it comes this"]
    assert await bench.waiting() == 1
    calls = bench.sink.calls
    await bench.agent.update(S, title="moves the head")
    await drain.round()
    assert bench.sink.calls == calls


async def test_a_commit_that_archives_wakes_the_drain(bench: Bench) -> None:
    drain = bench.drain()
    async with running(drain):
        await bench.put("notes/a", "one thing to remember")
        await bench.agent.close(S)
        await until(partial(_is_empty, bench))
    assert [one.text for one in await bench.sink.queued()] == ["one thing to remember"]


async def test_what_was_there_before_the_process_is_drained_when_it_begins(bench: Bench) -> None:
    await bench.put("notes/a", "one thing to remember")
    await bench.agent.close(S)
    await bench.server.restart()
    async with running(bench.drain()):
        await until(partial(_called, bench, 1))
    assert [one.text for one in await bench.sink.queued()] == ["one thing to remember"]


async def test_an_ephemeral_session_hands_nothing_over(bench: Bench) -> None:
    session = await bench.agent.open(ephemeral=True)
    drain = bench.drain()
    candidate = Candidate("notes/a", 1, CandidateValue(json=msgspec.Raw(b'"off the record, for once"')))
    await _propose(bench, session.id, candidate)
    drain.nudge(session.id)
    await drain.settle()
    await drain.round()
    assert bench.sink.calls == 0


async def test_an_item_is_worth_what_its_writer_had_seen_when_it_wrote_it(bench: Bench) -> None:
    await bench.agent.say(S, "hello there")
    await bench.put("notes/a", "written before the page was read")
    call = await toolcalls.start(bench.agent, S, "c")
    await toolcalls.finish(bench.agent, call.ticket, "a page")
    await bench.put("notes/b", "written after the page was read")
    await bench.agent.close(S)
    found = await bench.drained()
    assert {text: one.trust for text, one in found.items()} == {
        "written before the page was read": 0.5,
        "written after the page was read": 0.0,
    }


async def test_an_item_of_an_agent_that_has_taken_no_part_is_worth_nothing(bench: Bench) -> None:
    await bench.agent.say(S, "hello there")
    await bench.put("notes/a", "said by nobody whom we know", bench.other)
    stranger = await bench.server.api.open_agent("stranger")
    await bench.other.append(S, said("I take part in this", role=pb.ROLE_USER))
    await bench.put("notes/b", "said by one who takes part", bench.other)
    assert stranger.agent_id == "stranger"
    await bench.agent.close(S)
    found = await bench.drained()
    assert {text: (one.owner, one.trust) for text, one in found.items()} == {
        "said by nobody whom we know": ("agent/b", 0.0),
        "said by one who takes part": ("agent/b", 0.5),
    }


async def test_an_evidence_that_is_named_decides_and_is_handed_on_by_reference(bench: Bench) -> None:
    await bench.agent.append(S, said("I live in Bern", id="m1"))
    slot = (await bench.agent.say(S, "hello there")).id
    call = await toolcalls.start(bench.agent, S, "c")
    await toolcalls.finish(bench.agent, call.ticket, "a page")
    value = CandidateValue(json=msgspec.Raw(b'"The user lives in Bern."'), actor="a#1")
    by_user = (f"msg:{S}/m1", f"_session/messages/{slot}")
    await _propose(bench, S, Candidate("notes/x", 1, value, evidence=by_user))
    value = CandidateValue(json=msgspec.Raw(b'"The user is rich, says a page."'), actor="a#1")
    await _propose(bench, S, Candidate("notes/y", 1, value, evidence=(*by_user, f"tool:{S}/c")))
    found = await bench.drained()
    by_users, by_page = found["The user lives in Bern."], found["The user is rich, says a page."]
    assert (by_users.trust, by_users.evidence) == (0.5, (f"msg:{S}/m1", f"msg:{S}/{slot}"))
    assert (by_page.trust, by_page.evidence) == (0.0, (f"msg:{S}/m1", f"msg:{S}/{slot}", f"tool:{S}/c"))


async def test_what_the_server_has_learned_itself_is_trusted_though_tools_were_called(bench: Bench) -> None:
    call = await toolcalls.start(bench.agent, S, "c")
    await toolcalls.finish(bench.agent, call.ticket, "a page")
    value = CandidateValue(json=msgspec.Raw(b'{"text": "First search, then read.", "steps": [{"tool": "search"}]}'))
    learned = Candidate("procedures/0a", 0, value, evidence=(f"tool:{S}/c",), memory_type="procedural")
    await _propose(bench, S, learned)
    found = (await bench.drained())["First search, then read."]
    assert (found.memory_type, found.trust, found.owner) == ("procedural", 0.5, "agent/a")


@pytest.mark.parametrize(
    ("said_owner", "owner"),
    [
        ("user/42", "user/42"),
        ("shared/team", "shared/team"),
        ("agent/a", "agent/a"),
        ("agent/b", "agent/a"),
        ("nonsense", "agent/a"),
        ("user/", "agent/a"),
        ("user/4#2", "agent/a"),
        ("user/" + "x" * 240, "agent/a"),
    ],
)
async def test_an_items_attribute_says_whose_fact_it_is_unless_its_writer_may_not(
    bench: Bench, said_owner: str, owner: str
) -> None:
    await bench.put("notes/a", "one thing to remember", owner=said_owner)
    await bench.agent.close(S)
    assert (await bench.drained())["one thing to remember"].owner == owner


async def test_each_value_of_an_item_that_had_several_is_a_candidate(bench: Bench) -> None:
    policy = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
    await bench.agent.agent.ensure(space(S), policy)
    for agent, city in ((bench.agent, "Bern"), (bench.other, "Rome")):
        await agent.agent.put(space(S), "notes/city", f"The user lives in {city}.", context=types.CausalContext())
    await bench.agent.close(S)
    found = await bench.drained()
    assert {text: one.owner for text, one in found.items()} == {
        "The user lives in Bern.": "agent/a",
        "The user lives in Rome.": "agent/b",
    }
    first, second = sorted(one.id for one in found.values())
    assert second == f"{first}/1"


async def test_what_is_no_text_claims_nothing_and_leaves_the_outbox(bench: Bench) -> None:
    await bench.put("notes/a", None)
    await bench.agent.agent.put(space(S), "notes/b", b"\xff\xfe\x00", encoding=types.ENCODING_BYTES, blind=True)
    await bench.agent.close(S)
    assert await bench.drained() == {}
    assert (await bench.waiting(), bench.sink.calls) == (0, 0)


async def test_many_entries_are_handed_over_in_several_calls(bench: Bench) -> None:
    for number in range(70):
        await bench.put(f"notes/n{number}", f"this is the thing with number {number}")
    await bench.agent.close(S)
    assert len(await bench.drained()) == 70
    assert bench.sink.calls > 1
    assert await bench.waiting() == 0


async def _propose(bench: Bench, session_id: str, candidate: Candidate) -> None:
    entry_id = (PROCEDURE_IDS, candidate.item)
    intent = Intent("propose", keys=(id_key(*entry_id),), background=True)

    def decide(look: object, draft: object) -> None:
        propose(draft, candidate, entry_id=entry_id)  # type: ignore[arg-type]

    await bench.server.engine.sessions.scribe.write(BACKGROUND, session_id, intent, decide)


async def _called(bench: Bench, times: int) -> bool:
    return bench.sink.calls == times


async def _is_empty(bench: Bench) -> bool:
    return await bench.waiting() == 0
