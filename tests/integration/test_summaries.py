"""Rolling summaries on the real server: every message is in the window or covered, whatever the model does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.contexts import ContextAgent
from tests.support.endpoint import Asked, Endpoint, Script, answering, completion, open_endpoint, send
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, caller, refusal, said, space
from tests.support.worlds import LocalWorld

from noosphere.server.sessions.summary_record import StoredSummary
from noosphere.server.sessions.summary_worker import WAITING_MAX, SummaryWorker
from noosphere.server.sessions.types import SessionSettings
from noosphere.v1 import context_service_pb2 as context_pb
from noosphere.v1 import session_service_pb2 as pb

WINDOW = SessionSettings()


def answer(narrative: str) -> bytes:
    """What a model answers that summarises well."""
    lists: dict[str, Any] = {"goals": ["Build it"], "decisions": [], "open_questions": [], "entities": ["X-1"]}
    return completion(json.dumps({**lists, "narrative": narrative}))


class Model:
    """A scripted model: answers at once, or when it is told to."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Semaphore(0)
        self.calls = 0

    async def __call__(self, writer: asyncio.StreamWriter, asked: Asked) -> None:
        self.calls += 1
        number = self.calls
        self.asked.release()
        await self.gate.wait()
        send(writer, answer(f"By the model, {number}."))


class Lab:
    """A server, an agent and a session in it."""

    def __init__(self, server: LocalServer, agent: SessionAgent, session_id: str) -> None:
        self.server = server
        self.agent = agent
        self.id = session_id
        self._turns = 0

    @property
    def worker(self) -> SummaryWorker:
        return self.server.engine.sessions.summary_worker

    async def turns(self, count: int, *, idle: bool = True) -> None:
        """Plays turns of a question and an answer each."""
        for _ in range(count):
            self._turns += 1
            n = self._turns
            turn = await self.agent.begin_turn(self.id)
            await self.agent.append(
                self.id,
                said(f"Please build part {n} of X-{n}.", id=f"q{n}", turn=turn),
                said(f"Part {n} is built. SECRET-{n}", pb.ROLE_ASSISTANT, id=f"a{n}", turn=turn),
            )
            await self.agent.end_turn(self.id, turn)
            if idle:
                await self.worker.idle()

    async def summaries(self) -> tuple[StoredSummary, ...]:
        return await self.server.engine.sessions.summaries.recent(self.id)

    async def farthest(self) -> StoredSummary:
        return (await self.summaries())[0]

    async def check_covered(self) -> None:
        """Checks that what is not in the window is covered."""
        messages = [m for m in await self.agent.messages(self.id) if not m.retracted]
        turns = sorted({m.turn for m in messages})[-WINDOW.window_turns :]
        outside = [m for m in messages[: -WINDOW.window_steps] if m.turn not in turns] + [
            m for m in messages if m.turn not in turns
        ]
        if not outside:
            return
        reached = (await self.farthest()).data
        assert all(m.key <= reached.last for m in outside)
        assert reached.first == (await self.agent.messages(self.id))[0].key


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    script = Model()
    async with open_endpoint(script) as endpoint:
        script.endpoint = endpoint
        yield script


async def lab_on(server: LocalServer, **fields: Any) -> Lab:
    agent = await caller(LocalWorld(server))
    return Lab(server, agent, (await agent.open(**fields)).id)


@pytest.fixture
async def lab(local: LocalServer) -> Lab:
    return await lab_on(local)


def with_model(folder: Path, model: Model, **changes: Any) -> Any:
    assert model.endpoint is not None
    settings = {"summariser": "openai", "summariser_url": model.endpoint.url, "summariser_model": "tiny", **changes}
    return local_server(folder, **settings)


async def test_turns_that_will_leave_the_window_are_covered_before_they_do(lab: Lab) -> None:
    await lab.turns(4)
    assert await lab.summaries() == ()
    await lab.turns(1)
    messages = await lab.agent.messages(lab.id)
    summary = await lab.farthest()
    assert (summary.data.first, summary.data.last) == (messages[0].key, messages[3].key)
    assert summary.data.messages == 4
    assert summary.data.goals == ("Please build part 1 of X-1.", "Please build part 2 of X-2.")
    assert summary.data.producer == "extractive/1"
    assert not summary.data.stand_in
    # It is a record like others, for anybody to read.
    (record,) = await lab.agent.agent.listing(space(lab.id), "_session/summaries/")
    assert json.loads(record.values[0].value.data)["messages"] == 4
    await lab.turns(1)
    assert await lab.farthest() == summary
    await lab.turns(1)
    assert (await lab.farthest()).data.messages == 8


async def test_every_message_is_in_the_window_or_covered_over_many_turns(lab: Lab) -> None:
    for _ in range(40):
        await lab.turns(1)
        await lab.check_covered()
    summary = await lab.farthest()
    assert summary.data.goals[0] == "Please build part 1 of X-1."
    assert summary.data.tokens <= 1_500


async def test_what_left_the_window_is_covered_on_request_once(lab: Lab) -> None:
    turn = await lab.agent.begin_turn(lab.id)
    assert not (await lab.agent.summarise(lab.id)).HasField("summary")
    for n in range(0, 40, 10):
        await lab.agent.append(lab.id, *(said(f"Step {n + i} of K-{n + i}.", turn=turn) for i in range(10)))
    response = await lab.agent.summarise(lab.id)
    assert response.created
    assert response.summary.messages == 10
    assert response.summary.producer == "extractive/1"
    assert response.summary.narrative
    again = await lab.agent.summarise(lab.id)
    assert (again.created, again.summary) == (False, response.summary)


async def test_a_long_history_is_covered_step_by_step(lab: Lab) -> None:
    for n in range(0, 640, 16):
        await lab.agent.append(lab.id, *(said(f"Line {n + i} about K-{n + i}.") for i in range(16)))
    response = await lab.agent.summarise(lab.id)
    assert response.summary.messages == 610
    assert [summary.data.messages for summary in await lab.summaries()] == [610, 512, 256]
    assert response.summary.tokens <= 1_500


async def test_what_a_context_had_no_room_for_is_covered_for_the_next_one(lab: Lab) -> None:
    turn = await lab.agent.begin_turn(lab.id)
    for n in range(8):
        await lab.agent.append(lab.id, said(f"Report {n} on K-{n}. " + "It is long. " * 60, turn=turn))
    contexts = ContextAgent(lab.agent, lab.id)
    budget = context_pb.ContextBudget(tokens=900)
    first = await contexts.assemble("What is K-0?", budget=budget)
    assert "SUMMARY_MISSING" in first.warnings
    await lab.worker.idle()
    assert (await lab.farthest()).data.messages == 7
    second = await contexts.assemble("What is K-0?", budget=budget)
    assert "SUMMARY_MISSING" not in second.warnings
    assert "Report 0 on K-0." in second.text
    # Nothing is due again.
    await contexts.assemble("What is K-0?", budget=budget)
    await lab.worker.idle()
    assert len(await lab.summaries()) == 1


async def test_a_model_makes_a_better_one_of_what_rules_made(tmp_path: Path, model: Model) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        await lab.turns(5)
        best, stand_in = await lab.summaries()
        assert (best.data.narrative, best.data.producer) == ("By the model, 1.", "tiny")
        assert (stand_in.data.producer, stand_in.data.stand_in) == ("extractive/1", True)
        assert best.data.last == stand_in.data.last
        await lab.turns(2)
        assert (await lab.farthest()).data.narrative == "By the model, 2."
    assert model.endpoint is not None
    # It goes on from its own words, not from those of rules.
    assert model.endpoint.asked[1].data["summary_so_far"]["narrative"] == "By the model, 1."
    assert len(model.endpoint.asked[1].data["messages"]) == 4


async def test_while_a_model_is_slow_rules_cover_everything_and_its_late_answer_is_built_on(
    tmp_path: Path, model: Model
) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        model.gate.clear()
        await lab.turns(5, idle=False)
        await model.asked.acquire()
        for _ in range(6):
            await lab.turns(1, idle=False)
            await _until_rules_are_idle(lab)
            await lab.check_covered()
        assert all(summary.data.stand_in for summary in await lab.summaries())
        model.gate.set()
        await lab.worker.idle()
        by_model = [s for s in await lab.summaries() if not s.data.stand_in]
        assert by_model[-1].data.messages == 4
        # What it was asked later it has read itself, in place of what rules had made meanwhile.
        assert (await lab.farthest()).data.producer == "tiny"
        await lab.turns(2, idle=False)
        await _until_rules_are_idle(lab)
        assert "By the model" in (await lab.farthest()).data.narrative


async def test_an_answer_that_others_have_overtaken_is_not_shown_but_built_on(tmp_path: Path, model: Model) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        model.gate.clear()
        await lab.turns(5, idle=False)
        await model.asked.acquire()
        await lab.turns(2, idle=False)
        await _until_rules_are_idle(lab)
        # Only the first call is answered; the next one hangs.
        model.gate.set()
        model.gate = asyncio.Event()
        await model.asked.acquire()
        farthest, by_model = [s.data for s in await lab.summaries()][:2]
        assert (farthest.producer, farthest.messages) == ("extractive/1", 8)
        assert (by_model.producer, by_model.messages) == ("tiny", 4)
        await lab.turns(2, idle=False)
        await _until_rules_are_idle(lab)
        summary = (await lab.farthest()).data
        assert (summary.messages, summary.stand_in) == (12, True)
        assert summary.goals[0] == "Build it"
        model.gate.set()
        await lab.worker.idle()


async def _wrong(writer: asyncio.StreamWriter, asked: Asked) -> None:
    send(writer, completion("I would rather talk about SECRET-1."))


async def _gone(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("script", [_wrong, _gone, answering(b"{}", status="500 No")], ids=["wrong", "gone", "500"])
async def test_a_model_that_fails_costs_nothing_but_its_summary(tmp_path: Path, model: Model, script: Script) -> None:
    assert model.endpoint is not None
    model.endpoint.script = script
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        with capture_logs() as logs:
            for _ in range(12):
                await lab.turns(1)
                await lab.check_covered()
        assert {s.data.producer for s in await lab.summaries()} == {"extractive/1"}
        warned = [entry for entry in logs if entry["log_level"] == "warning"]
        assert any("no summary" in entry["event"] for entry in warned)
        assert "SECRET" not in str(logs)
        # Once it has failed it rests; asking again and again would only wait again and again.
        assert len(model.endpoint.asked) == 1
        server.clock.advance(30_000)
        await lab.turns(4)
        assert len(model.endpoint.asked) == 2
        model.endpoint.script = model
        server.clock.advance(60_000)
        await lab.turns(2)
        assert (await lab.farthest()).data.producer == "tiny"


async def test_a_request_waits_for_the_model_and_does_without_it_if_it_fails(tmp_path: Path, model: Model) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        await lab.agent.append(lab.id, *(said(f"Line {n} of K-{n}.") for n in range(16)))
        await lab.agent.append(lab.id, *(said(f"Line {n} of K-{n}.") for n in range(16, 32)))
        assert (await lab.agent.summarise(lab.id)).summary.producer == "tiny"
        assert model.endpoint is not None
        model.endpoint.script = _gone
        await lab.agent.append(lab.id, said("One more."))
        response = await lab.agent.summarise(lab.id)
        assert (response.created, response.summary.producer, response.summary.messages) == (True, "extractive/1", 3)


async def test_what_an_ephemeral_session_says_reaches_no_model(tmp_path: Path, model: Model) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server, ephemeral=True)
        await lab.turns(8)
        assert (await lab.farthest()).data.producer == "extractive/1"
    assert model.calls == 0


async def test_a_message_that_is_taken_back_is_in_no_summary_any_more(lab: Lab) -> None:
    await lab.turns(12)
    everything = await lab.agent.agent.listing(space(lab.id), "_session/summaries/")
    assert any("SECRET-3" in str(record) or "X-3" in str(record) for record in everything)
    before = len(everything)
    for name in ("q3", "a3"):
        await lab.agent.retract(lab.id, name)
    left = await lab.agent.agent.listing(space(lab.id), "_session/summaries/")
    # Those that reach as far are gone in the same commit, those before it stay.
    assert 0 < len(left) < before
    assert "X-3" not in str(left)
    await lab.turns(1)
    await lab.check_covered()
    again = await lab.agent.agent.listing(space(lab.id), "_session/summaries/")
    assert len(again) > len(left)
    assert "X-3" not in str(again)
    assert "SECRET-3" not in str(again)


async def test_what_a_model_made_of_a_message_that_was_taken_back_meanwhile_is_not_kept(
    tmp_path: Path, model: Model
) -> None:
    async with with_model(tmp_path, model) as server:
        lab = await lab_on(server)
        model.gate.clear()
        await lab.turns(5, idle=False)
        await model.asked.acquire()
        await lab.agent.retract(lab.id, "a1")
        model.gate.set()
        await lab.worker.idle()
        assert await lab.summaries() == ()
        await lab.turns(1)
        assert (await lab.farthest()).data.narrative == "By the model, 2."
        assert model.endpoint is not None
        assert "SECRET-1" not in str(model.endpoint.asked[1].data)


async def test_a_restore_takes_up_the_summary_that_tells_of_what_it_keeps(lab: Lab) -> None:
    await lab.turns(5)
    early = await lab.farthest()
    checkpoint = await lab.agent.checkpoint(lab.id)
    await lab.turns(20)
    late = await lab.farthest()
    await lab.agent.restore(lab.id, checkpoint.id)
    # The later one that reaches no farther than what is kept counts, not those of what was left.
    taken_up = await lab.farthest()
    assert (early.data.messages, taken_up.data.messages, late.data.messages) == (4, 8, 44)
    await lab.turns(4)
    await lab.check_covered()
    summary = await lab.farthest()
    assert summary.key > late.key
    assert summary.data.messages < late.data.messages
    # Nothing of the branch that was left.
    assert "X-20" not in str(summary)


async def test_a_fork_goes_on_from_the_summary_of_its_parent(lab: Lab) -> None:
    await lab.turns(40)
    parent = await lab.farthest()
    fork = Lab(lab.server, lab.agent, (await lab.agent.fork(lab.id)).id)
    fork._turns = 100
    taken_over = await fork.farthest()
    assert taken_over.text == parent.text
    await fork.turns(6)
    summary = await fork.farthest()
    assert summary.data.messages > parent.data.messages
    assert summary.data.goals[0] == "Please build part 1 of X-1."
    assert await lab.farthest() == parent


async def test_a_crash_loses_no_coverage(lab: Lab) -> None:
    await lab.turns(9)
    image = lab.server.image()
    await lab.turns(6, idle=False)
    await lab.server.crash(image)
    agent = await caller(LocalWorld(lab.server))
    again = Lab(lab.server, agent, lab.id)
    again._turns = 50
    await again.turns(1)
    await again.check_covered()


async def test_several_sessions_at_once_are_all_covered(local: LocalServer) -> None:
    labs = [await lab_on(local) for _ in range(12)]
    await asyncio.gather(*(each.turns(8, idle=False) for each in labs))
    await labs[0].worker.idle()
    for each in labs:
        await each.check_covered()


async def test_requests_at_once_cover_everything_once(lab: Lab) -> None:
    for n in range(0, 48, 16):
        await lab.agent.append(lab.id, *(said(f"Line {n + i} of K-{n + i}.") for i in range(16)))
    responses = await asyncio.gather(*(lab.agent.summarise(lab.id) for _ in range(8)))
    assert {response.summary.messages for response in responses} == {18}
    assert len({response.summary.key for response in responses}) == 1
    assert sum(response.created for response in responses) == 1


async def test_a_closed_session_is_left_alone(lab: Lab) -> None:
    await lab.turns(4)
    await lab.agent.append(lab.id, *(said(f"Line {n}.") for n in range(16)))
    await lab.agent.close(lab.id)
    with refusal("SESSION_CLOSED"):
        await lab.agent.summarise(lab.id)
    lab.worker.nudge(lab.id, urgent=True)
    lab.worker.nudge("was-never-opened")
    lab.worker.nudge("no/session")
    await lab.worker.idle()
    assert await lab.summaries() == ()
    # What was refused ends nothing.
    another = await lab_on(lab.server)
    await another.turns(5)
    assert (await another.farthest()).data.messages == 4


async def test_old_summaries_are_let_go(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noosphere.server.sessions.summaries._KEPT_MAX", 4)
    monkeypatch.setattr("noosphere.server.sessions.summaries._PRUNE_EVERY", 2)
    await lab.turns(40)
    left = await lab.agent.agent.listing(space(lab.id), "_session/summaries/")
    assert 4 <= len(left) <= 7
    assert left[-1].key == (await lab.farthest()).key


async def test_sessions_that_wait_are_limited(lab: Lab) -> None:
    worker = SummaryWorker(lab.server.engine.sessions.summaries, lab.server.clock)
    with capture_logs() as logs:
        for number in range(WAITING_MAX + 3):
            worker.nudge(f"s{number}")
        worker.nudge("s1", urgent=True)
    assert len([entry for entry in logs if "left out" in entry["event"]]) == 3


async def _until_rules_are_idle(lab: Lab) -> None:
    await lab.worker._rules.idle()
