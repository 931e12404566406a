"""Forgetting in a session that goes on meanwhile, or is cut off: nothing is brought back, and nothing else is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support import toolcalls
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.forgetting import WORD, Bench, S, forgetting, summaries_of
from tests.support.sessions import SessionAgent, said, space, text_of, texts

from noosphere.consistency import Reason, Refusal
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.server.ports.models import SourceMessage, SummaryText, Tokenizer
from noosphere.server.ports.sources import REDACTED
from noosphere.server.ports.store import Erased, NamespaceRef
from noosphere.server.sessions.summaries import Summaries
from noosphere.server.sessions.summary_bounds import on_request
from noosphere.v1 import context_service_pb2 as contexts
from noosphere.v1 import session_service_pb2 as pb

CUTS = 7
"""How many commits the test of a forgetting that is cut off has, and one."""

USER = pb.ROLE_USER


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    async with forgetting(tmp_path, monkeypatch) as made:
        yield made


class Held:
    """A summariser that has read everything and then waits."""

    name = "held/1"

    def __init__(self) -> None:
        self.has_read, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def summarise(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        """Returns the beginning of all that was said."""
        self.has_read.set()
        await self.may_go_on.wait()
        return SummaryText(narrative=" ".join(message.text for message in messages))


@pytest.mark.parametrize("forgotten", ["msg:long/m1", "session:long"], ids=["a source", "words"])
async def test_a_summary_that_is_being_made_meanwhile_does_not_bring_it_back(bench: Bench, forgotten: str) -> None:
    await bench.agent.open("long", settings=pb.SessionSettings(window_turns=1, window_steps=1))
    for number in range(12):
        await bench.say(
            USER, f"the code of number {number} is {WORD if number == 1 else 'unknown'}", f"m{number}", "long"
        )
    held = Held()
    summaries = Summaries(bench.server.engine.sessions.scribe, TokenizerRegistry(), held, held)
    making = asyncio.create_task(summaries.cover("long", on_request))
    await held.has_read.wait()
    await bench.forget(forgotten)
    held.may_go_on.set()
    assert await making
    (summary,) = await summaries_of(bench.agent, "long")
    assert "number 2" in summary
    assert bench.in_files() == set()


async def test_contexts_say_no_more_of_it_and_go_on(bench: Bench) -> None:
    await bench.say(USER, f"my code is {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/code", f"the code is {WORD}")
    context = ContextAgent(bench.agent, S)
    given = [contexts.Evidence(id="e", text="x", source=f"page about {WORD}")]
    assert "canary" in (await context.assemble("what is my code?", evidence=given)).text.lower()
    await bench.server.engine.contexts.book.settle()
    assert (await bench.forget(f"msg:{S}/m"))["contexts"] == 1
    assert "canary" not in (await context.assemble("what is my code?")).text.lower()
    assert bench.in_files() == set()


async def test_who_watches_is_told_what_is_left(bench: Bench) -> None:
    await bench.say(USER, f"remember {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/a", f"a {WORD}")
    head = (await bench.agent.agent.history(space(S)))[-1].revision
    stream = bench.agent.agent.watch(space(S), after=head)

    async def changed(count: int) -> dict[str, str]:
        seen: dict[str, str] = {}
        while len(seen) < count:
            changes = (await anext(stream)).changes.changes
            seen |= {change.record.key: str(change.record.values) for change in changes}
        return seen

    # Once it has heard of this one it is behind nothing.
    await bench.agent.agent.put(space(S), "notes/a", f"b {WORD}", blind=True)
    await changed(1)
    seen, _ = await asyncio.gather(changed(2), bench.forget(f"msg:{S}/m"))
    await stream.aclose()
    assert all("canary" not in values.lower() and "forgotten" in values for values in seen.values())


async def test_open_turns_and_pending_calls_go_on(bench: Bench) -> None:
    turn = await bench.agent.begin_turn(S)
    await bench.say(USER, f"look up {WORD}", "m")
    call = await toolcalls.start(bench.agent, S, "c", arguments=json.dumps({"q": WORD}), side_effects=True)
    await bench.forget(f"msg:{S}/m")
    done = await toolcalls.finish(bench.agent, call.ticket, "found", append_message=True)
    assert done.tool_call.status == pb.TOOL_CALL_STATUS_DONE
    await bench.say(USER, f"look up {WORD}", "m")
    assert texts(await bench.agent.messages(S)) == [REDACTED, "found"], "an id that is known stays known"
    await bench.agent.end_turn(S, turn)
    assert list((await bench.agent.get(S)).open_turns) == []


async def test_what_is_said_meanwhile_is_not_lost(bench: Bench) -> None:
    for number in range(40):
        await bench.say(USER, f"before {number} {WORD}", f"b{number}")

    async def talk(agent: SessionAgent, name: str) -> None:
        for number in range(30):
            await agent.append(S, said(f"{name} {number}", id=f"{name}{number}"))
            await agent.agent.put(space(S), f"notes/{name}", number, blind=True)

    await asyncio.gather(bench.forget(f"msg:{S}/b0"), talk(bench.agent, "x"), talk(bench.other, "y"))
    found = {m.id: text_of(m) for m in await bench.agent.messages(S)}
    assert len(found) == 100
    assert found["b0"] == REDACTED
    assert all(found[f"b{number}"] == f"before {number} {REDACTED}" for number in range(1, 40))
    assert all(found[f"{name}{number}"] == f"{name} {number}" for name in "xy" for number in range(30))
    assert await bench.agent.items(S) == {"notes/x": b"29", "notes/y": b"29"}
    assert bench.in_files() == set()


@pytest.mark.parametrize("commits", range(CUTS))
async def test_what_was_cut_off_anywhere_is_finished_by_the_same_call(
    bench: Bench, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.say(USER, f"remember {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/a", f"a {WORD}")
    await bench.agent.checkpoint(S)
    await bench.agent.agent.put(space(S), "notes/a", f"b {WORD}", blind=True)
    ticket = await bench.tool("c", [f"row {number} {WORD}" for number in range(3_000)])
    fork = (await bench.agent.fork(S)).id
    store = bench.server.engine.store
    left = commits
    commit = store.commit

    async def cut_off(*args: Any, **more: Any) -> Any:
        nonlocal left
        if not left:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "cut off")
        left -= 1
        return await commit(*args, **more)

    async def not_erased(namespace: NamespaceRef) -> Erased:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "cut off")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", cut_off)
        patch.setattr(store, "erase", not_erased)
        with pytest.raises(Refusal, match="cut off"):
            await bench.forget(f"msg:{S}/m")
    assert (left == 0) is (commits < CUTS - 1), "the last one is after all commits"
    await bench.server.crash()
    await bench.forget(f"msg:{S}/m")
    bench.server.clock.advance(2 * 3_600_000)
    await bench.server.sweep()
    await bench.forget(f"msg:{S}/m")
    assert bench.in_files() == set()
    api = bench.server.api
    agent = SessionAgent(Agent(api, await api.open_agent("c")))
    assert texts(await agent.messages(S))[0] == REDACTED
    assert texts(await agent.messages(fork))[0] == REDACTED
    rows = json.loads(b"".join(await toolcalls.raw(agent, ticket)))
    assert rows == [f"row {number} {REDACTED}" for number in range(3_000)]
    assert json.loads((await agent.items(S))["notes/a"]) == f"b {REDACTED}"
