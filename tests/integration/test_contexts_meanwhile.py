"""Contexts that are assembled while somebody keeps writing: what they miss makes a decision stale."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.contexts import ContextAgent, against
from tests.support.engine import LocalServer
from tests.support.sessions import caller, refusal, said, space
from tests.support.worlds import LocalWorld

from noosphere.server.context.gathering import Gatherer
from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as session_pb


async def test_a_goal_that_comes_while_the_session_is_read_makes_the_decision_stale(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await caller(LocalWorld(local)), await caller(LocalWorld(local), "b")
    await a.open("s")
    await a.say("s", "Hello")
    read = Gatherer._items
    count = 0

    async def read_and_write(self: Gatherer, *args: Any) -> Any:
        nonlocal count
        count += 1
        items = await read(self, *args)
        await b.agent.put(space("s"), f"goals/{count}", "another")
        return items

    monkeypatch.setattr(Gatherer, "_items", read_and_write)
    context = await ContextAgent(a, "s").assemble()
    assert f"item:goals/{count}" not in context.fates()
    append = memory_pb.AppendOperation(message=said("done", session_pb.ROLE_ASSISTANT))
    request = memory_pb.CommitRequest(
        namespace=space("s"), operations=[memory_pb.Operation(append=append)], call=against(a, context.token)
    )
    with refusal("STALE_READ_SET"):
        await a.agent.api.commit(request)
