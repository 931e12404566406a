"""What comes between a decision about a tool call and its commit: the decision is made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.api import span
from tests.support.engine import LocalServer, local_server
from tests.support.meddling import meddle as put_between
from tests.support.meddling import once
from tests.support.sessions import SessionAgent, caller, refusal, session_name, space
from tests.support.toolcalls import as_bytes, begin, finish, get, listed, start, upload
from tests.support.worlds import LocalWorld

from noosphere.server.ports.store import NamespaceRef
from noosphere.server.sessions.keys import RAW, UPLOADS
from noosphere.v1 import session_service_pb2 as pb

HOUR_MS = 3_600_000


class Race:
    """A session, and what somebody else does in it just before a commit."""

    def __init__(self, local: LocalServer, a: SessionAgent, b: SessionAgent, session_id: str) -> None:
        self.local = local
        self.a = a
        self.b = b
        self.s = session_id

    def before_commit(self, meddle: Callable[[], Awaitable[object]], skip: int = 0) -> None:
        """Does something before the next commit, after letting ``skip`` pass."""
        put_between(self.local, once(meddle, skip=skip))

    async def records(self) -> list[str]:
        """Returns the internal keys of results."""
        store, ref = self.local.engine.store, NamespaceRef(space(self.s))
        return [entry.key for kind in (RAW, UPLOADS) for entry in (await store.scan(ref, kind, limit=1_000)).entries]

    async def an_hour_passes(self) -> None:
        """Lets uploads end and be swept."""
        self.local.clock.advance(HOUR_MS)
        await self.local.sweep()


@pytest.fixture(params=[1, 2], ids=["one server", "two replicas"])
async def race(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Race]:
    # Nothing is to be committed between a call and what comes before its commit.
    async with local_server(tmp_path, replicas=request.param, settles=False) as local:
        world = LocalWorld(local)
        a, b = await caller(world), await caller(world, "b")
        s = (await a.open(session_name(a))).id
        await a.agent.put(space(s), "goals/main", "fly")
        yield Race(local, a, b, s)


async def test_a_goal_that_changes_at_the_last_moment_is_noticed(race: Race) -> None:
    ticket = (await start(race.a, race.s, late_policy=pb.LATE_POLICY_PARK)).ticket
    race.before_commit(lambda: race.b.agent.put(space(race.s), "goals/main", "walk", blind=True))
    call = (await finish(race.a, ticket, append_message=True)).tool_call
    assert call.status == pb.TOOL_CALL_STATUS_PARKED
    assert [change.actor for change in call.changes] == [race.b.agent.name]
    assert await race.a.messages(race.s) == []


async def test_a_deadline_that_passes_at_the_last_moment_has_passed(race: Race) -> None:
    ticket = (await start(race.a, race.s, deadline=span(1_000))).ticket

    async def wait() -> None:
        race.local.clock.advance(1_000)

    race.before_commit(wait)
    call = (await finish(race.a, ticket)).tool_call
    assert call.overdue
    assert call.finish_time.ToMilliseconds() >= call.deadline.ToMilliseconds()


async def test_somebody_who_finishes_first_has_finished(race: Race) -> None:
    ticket = (await start(race.a, race.s)).ticket
    race.before_commit(lambda: finish(race.b, ticket, "theirs", append_message=True))
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(race.a, ticket, "mine", append_message=True)
    assert [message.author for message in await race.a.messages(race.s)] == [race.b.agent.actor.agent_id]


async def test_an_attempt_that_begins_first_supersedes(race: Race) -> None:
    ticket = (await start(race.a, race.s, "c1")).ticket
    race.before_commit(lambda: start(race.b, race.s, "c1", retry=True))
    with refusal("TOOL_RESULT_SUPERSEDED", "attempt 2"):
        await finish(race.a, ticket)
    assert (await get(race.a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_PENDING


async def test_a_call_that_starts_first_is_the_call(race: Race) -> None:
    race.before_commit(lambda: start(race.b, race.s, "c1"))
    found = await begin(race.a, race.s, "c1")
    assert (found.started, found.tool_call.author) == (False, race.b.agent.actor.agent_id)
    race.before_commit(lambda: start(race.b, race.s, "c2", name="other"))
    with refusal("INVALID_FIELD", "call_id", "'c2'", "'other'"):
        await begin(race.a, race.s, "c2")


async def test_two_attempts_that_begin_at_once_have_numbers_of_their_own(race: Race) -> None:
    await start(race.a, race.s, "c1")
    race.before_commit(lambda: start(race.b, race.s, "c1", retry=True))
    assert (await start(race.a, race.s, "c1", retry=True)).attempt == 3


async def test_a_review_that_comes_first_counts(race: Race) -> None:
    ticket = (await start(race.a, race.s, late_policy=pb.LATE_POLICY_PARK)).ticket
    await race.b.agent.put(space(race.s), "goals/main", "walk", blind=True)
    await finish(race.a, ticket)

    async def reviewed(by: SessionAgent, *, apply: bool) -> pb.ReviewToolCallResponse:
        request = pb.ReviewToolCallRequest(ticket=ticket, apply=apply)
        return await by.call("ReviewToolCall", request, pb.ReviewToolCallResponse)

    race.before_commit(lambda: reviewed(race.b, apply=False))
    with refusal("NOT_PARKED", "rejected"):
        await reviewed(race.a, apply=True)


async def test_closing_that_comes_first_fails_the_call(race: Race) -> None:
    ticket = (await start(race.a, race.s)).ticket
    race.before_commit(lambda: race.b.close(race.s))
    with refusal("SESSION_CLOSED"):
        await finish(race.a, ticket, append_message=True)
    assert (await get(race.a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_FAILED


async def test_an_upload_that_ends_at_the_last_moment_is_not_referred_to(race: Race) -> None:
    ticket = (await start(race.a, race.s)).ticket
    made = await upload(race.a, ticket, b"x" * 300_000)
    race.before_commit(race.an_hour_passes)
    with refusal("INVALID_FIELD", "upload_id", made.upload_id):
        await finish(race.a, ticket, result=as_bytes(b""), upload_id=made.upload_id)
    assert (await get(race.a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_PENDING
    assert await race.records() == []


@pytest.mark.parametrize("swept", [True, False], ids=["and was swept", "and was not"])
async def test_no_piece_is_added_to_an_upload_that_has_ended(race: Race, *, swept: bool) -> None:
    ticket = (await start(race.a, race.s)).ticket

    async def an_hour() -> None:
        race.local.clock.advance(HOUR_MS)
        if swept:
            await race.local.sweep()

    race.before_commit(an_hour, skip=2)
    with refusal("INVALID_FIELD", "upload"):
        await upload(race.a, ticket, b"x" * 2_000_000)
    await race.local.sweep()
    assert await race.records() == []


async def test_results_beside_each_other_do_not_contend(race: Race) -> None:
    """Thirty results commit once each: none is decided a second time because of another."""
    tickets = [(await start(race.a, race.s)).ticket for _ in range(30)]
    store = race.local.engine.memory.core.store
    commits = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def commit(self, *args: Any) -> Any:
            nonlocal commits
            commits += 1
            return await store.commit(*args)

    counting = Counting()
    for engine in race.local.engines:
        engine.memory.core.store = counting
    await asyncio.gather(*(finish(race.a, ticket, append_message=True) for ticket in tickets))
    assert commits == 30
    assert len(await listed(race.a, race.s, status=pb.TOOL_CALL_STATUS_DONE)) == 30
