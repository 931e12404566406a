"""From working memory to a fact and back to nothing, over every way to a server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support import toolcalls
from tests.support.facts import FactAgent, user_name
from tests.support.sessions import SessionAgent, caller, said, session_name, space, texts
from tests.support.worlds import World

from noosphere.server.ports.sources import REDACTED
from noosphere.v1 import fact_service_pb2 as facts
from noosphere.v1 import session_service_pb2 as pb

# As with the tests of forgetting: the server behind the socket is shared by all tests, and is looked through whole.
pytestmark = pytest.mark.parametrize("world", ["in process"], indirect=True)


@contextlib.asynccontextmanager
async def decision_after(a: SessionAgent, scope: str) -> AsyncIterator[Callable[[], Awaitable[facts.Decision]]]:
    """Yields what returns the next decision in a scope that is made from now on."""
    stream = FactAgent(a.agent).watch(scope)
    assert not (await anext(stream)).HasField("decision"), "at first it only says where it begins"

    async def following() -> facts.Decision:
        while True:
            response = await anext(stream)
            if response.HasField("decision"):
                return response.decision

    try:
        yield following
    finally:
        await stream.aclose()


async def test_an_archived_item_becomes_a_fact_of_the_owner_that_it_names(world: World) -> None:
    a = await caller(world)
    s, owner = session_name(a), user_name()
    await a.open(s)
    await a.append(s, said("I am allergic to hazelnuts, all of them.", id="m"))
    attributes: dict[str, str | float] = {"owner": owner, "importance": 0.9}
    await a.agent.put(space(s), "notes/allergy", "The user is allergic to hazelnuts.", attributes=attributes)
    await a.agent.put(space(s), "notes/other", "fine", attributes={"importance": 0.1})
    async with decision_after(a, owner) as following:
        await a.run(s, keys=["notes/allergy"], instruction=pb.TRANSITION_ACTION_ARCHIVE)
        decision = await following()
    assert decision.status == facts.CANDIDATE_STATUS_WRITTEN
    agent = FactAgent(a.agent)
    (fact,) = await agent.listed(owner)
    assert (fact.text, fact.trust, fact.importance) == ("The user is allergic to hazelnuts.", 0.5, 0.9)


async def test_what_was_seen_after_a_page_does_not_become_a_fact(world: World) -> None:
    a = await caller(world)
    s, owner = session_name(a), user_name()
    await a.open(s)
    await a.append(s, said("Look it up, please.", id="m"))
    call = await toolcalls.start(a, s, "c")
    await toolcalls.finish(a, call.ticket, "The user owns a red bicycle.", append_message=True)
    attributes: dict[str, str | float] = {"owner": owner, "importance": 0.9}
    await a.agent.put(space(s), "notes/bicycle", "The user owns a red bicycle.", attributes=attributes)
    async with decision_after(a, owner) as following:
        await a.close(s)
        decision = await following()
    assert decision.status in (facts.CANDIDATE_STATUS_REJECTED, facts.CANDIDATE_STATUS_QUARANTINED)
    assert await FactAgent(a.agent).listed(owner) == []


async def test_forgetting_a_fact_overwrites_what_its_user_said(world: World) -> None:
    a = await caller(world)
    s, owner = session_name(a), user_name()
    await a.open(s)
    await a.append(s, said("My badge number is zebra-4711.", id="m"), said("Thank you.", id="n"))
    await a.agent.put(space(s), "notes/badge", json.dumps({"badge": "My badge number is zebra-4711."}).encode())
    agent = FactAgent(a.agent)
    evidence = [facts.FactEvidence(reference=f"msg:{s}/m")]
    decision = await agent.decided(
        "My badge number is zebra-4711.", owner=owner, evidence=evidence, channel=facts.CHANNEL_USER
    )
    assert decision.status == facts.CANDIDATE_STATUS_WRITTEN
    await agent.forget(fact_id=decision.fact_id)
    assert texts(await a.messages(s)) == [REDACTED, "Thank you."]
    assert "4711" not in str(await a.items(s))
    assert await agent.listed(owner) == []
