"""Several sets of services on one set of drivers: what one has in memory, the others must not need, nor contradict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.interleaving import interleave
from tests.support.meddling import meddle, once
from tests.support.sessions import SessionAgent, refusal, space

from noosphere.consistency import Reason, Refusal
from noosphere.server.context.shown import ContextsShown
from noosphere.server.sessions.draft import Draft, Look
from noosphere.server.sessions.scribe import BACKGROUND, Intent, Need
from noosphere.server.sessions.summary_bounds import on_request
from noosphere.server.sessions.summary_worker import SummaryWorker
from noosphere.server.transitions.noting import GATHER_MS
from noosphere.v1 import context_service_pb2 as contexts

S = "s"


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, replicas=2) as server:
        yield server


async def both(replicas: LocalServer) -> tuple[SessionAgent, SessionAgent]:
    """Returns one agent as it calls each replica, with a session open."""
    first = await replicas.apis[0].agent("a")
    here, there = SessionAgent(first), SessionAgent(Agent(replicas.apis[1], first.actor))
    await here.open(S)
    return here, there


async def test_an_item_that_is_read_here_stays_though_turns_end_elsewhere(replicas: LocalServer) -> None:
    here, there = await both(replicas)
    for key in ("notes/read", "notes/left"):
        await here.agent.put(space(S), key, 0)
    for turn in range(20):
        if turn % 5 == 0:
            await here.agent.get(space(S), "notes/read")
            await replicas.elapse(GATHER_MS)
        await there.turns(S)
    assert set(await there.items(S)) == {"notes/read"}


async def test_what_is_heard_while_it_is_counted_counts_the_next_time(replicas: LocalServer) -> None:
    here, _ = await both(replicas)
    mine, other = (engine.transitions.notes for engine in replicas.engines)
    await here.agent.put(space(S), "notes/early", 0)
    await mine.settle()
    heard = await other.of(S)
    assert heard.keys == {"notes/early"}
    await here.agent.put(space(S), "notes/late", 0)
    await mine.settle()

    def decide(look: Look, draft: Draft) -> None:
        heard.take(look, draft)

    intent = Intent("count", keys=tuple(heard.stored), need=Need.ANY, background=True)
    await replicas.engines[1].sessions.scribe.write(BACKGROUND, S, intent, decide)
    assert (await other.of(S)).keys == {"notes/late"}


async def test_what_was_heard_is_written_when_a_replica_ends(tmp_path: Path) -> None:
    async with local_server(tmp_path, replicas=2) as replicas:
        here, _ = await both(replicas)
        await here.agent.put(space(S), "notes/a", 0)
        await replicas.restart()
        assert (await replicas.engines[1].transitions.notes.of(S)).keys == {"notes/a"}


async def test_a_context_is_known_everywhere_as_soon_as_it_is_handed_out(replicas: LocalServer) -> None:
    here, there = await both(replicas)
    await here.agent.put(space(S), "notes/seat", {"seat": "aisle"}.__repr__())
    made = await ContextAgent(here, S).assemble("Hello")
    elsewhere = ContextAgent(there, S)
    assert await elsewhere.explain(made.id) == made.manifest
    assert (await elsewhere.explain()).context_id == made.id
    assert await elsewhere.report(made.id, used=["item:notes/seat"]) == (1, 1)
    assert list((await ContextAgent(here, S).explain(made.id)).used) == ["item:notes/seat"]


async def test_a_context_that_cannot_be_made_known_is_not_handed_out(replicas: LocalServer) -> None:
    here, _ = await both(replicas)

    async def fail() -> NoReturn:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "for now")

    meddle(replicas, once(fail))
    with refusal("ENGINE_UNAVAILABLE"):
        await ContextAgent(here, S).assemble("Hello")
    await ContextAgent(here, S).assemble("Hello")


async def test_what_a_context_shows_counts_at_a_replica_that_has_looked_before(replicas: LocalServer) -> None:
    here, there = await both(replicas)
    shown = ContextsShown(replicas.engines[1].contexts.book)
    assert await shown.shown(S) == ()
    for n, trust in enumerate((0.9, 0.4)):
        await replicas.elapse(60_000)
        evidence = contexts.Evidence(id=f"e{n}", text="It is said that.", trust=trust)
        await ContextAgent((here, there)[n], S).assemble("Hello", evidence=[evidence])
        assert [one.trust for one in await shown.shown(S)] == pytest.approx((0.9, 0.4)[: n + 1])
    # One that was begun before these, and took longer.
    book = replicas.engines[0].contexts.book
    (first, _) = await book.recent(S, 2)
    (entry,) = (entry for entry in first.entries if entry.id == "evidence:e0")
    slow = msgspec.structs.replace(
        first,
        context_id=f"{first.created_ms - 1_000:011x}" + "0" * 10,
        entries=(entry._replace(trust=0.1),),
    )
    book.note(slow)
    await book.kept(slow)
    assert sorted(one.trust for one in await shown.shown(S)) == pytest.approx((0.1, 0.4, 0.9))


async def test_two_that_ask_at_once_what_contexts_showed_both_hear_of_all(replicas: LocalServer) -> None:
    here, _ = await both(replicas)
    evidence = contexts.Evidence(id="e", text="It is said that.", trust=0.2)
    await ContextAgent(here, S).assemble("Hello", evidence=[evidence])
    book = replicas.engines[1].contexts.book
    gate = asyncio.Event()
    recent = book.recent

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await recent(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(book, "recent", slow)
        shown = ContextsShown(book)
        asked = [asyncio.ensure_future(shown.shown(S)) for _ in range(2)]
        await replicas.elapse(0)
        gate.set()
        first, second = await asyncio.gather(*asked)
    assert len(first) == len(second) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_replicas_that_cover_the_same_messages_at_once_make_one_summary_of_them(
    replicas: LocalServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Nothing is covered on the way.
    monkeypatch.setattr(SummaryWorker, "nudge", lambda *_, **__: None)
    here, _ = await both(replicas)
    for turn in range(40):
        await here.begin_turn(S)
        await here.say(S, f"In step {turn} I saw number {turn * 37} on the board.")
        await here.end_turn(S)
    interleave(replicas, random.Random(seed))
    made = await asyncio.gather(*(engine.sessions.summaries.cover(S, on_request) for engine in replicas.engines))
    assert any(made)
    summaries = await replicas.engine.sessions.summaries.recent(S)
    ends = [summary.data.last for summary in summaries]
    assert len(set(ends)) == len(ends)
    assert [summary.data.messages for summary in summaries] == sorted(
        {summary.data.messages for summary in summaries}, reverse=True
    )
