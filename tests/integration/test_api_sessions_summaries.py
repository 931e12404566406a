"""SummarizeSession in every world."""

from __future__ import annotations

from tests.support.sessions import caller, refusal, said, session_name
from tests.support.worlds import World

from noosphere.v1 import session_service_pb2 as pb


async def test_what_left_the_window_is_summarised_once(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    nothing = await a.summarise(s)
    assert (nothing.created, nothing.HasField("summary")) == (False, False)
    stored: list[pb.Message] = []
    for n in range(0, 48, 16):
        stored += (await a.append(s, *(said(f"Please check host-{n + i} now.") for i in range(16)))).messages
    response = await a.summarise(s)
    summary = response.summary
    assert response.created
    assert (summary.first, summary.last, summary.messages) == (stored[0].key, stored[17].key, 18)
    assert summary.goals[0] == "Please check host-0 now."
    assert "host-17" in summary.entities
    assert summary.producer == "extractive/1"
    assert 0 < summary.tokens <= 1_500
    again = await a.summarise(s)
    assert (again.created, again.summary) == (False, summary)
    assert again.head == response.head


async def test_who_may_not_write_may_not_have_it_summarised(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    with refusal("SESSION_NOT_FOUND"):
        await a.summarise(session_name(a, "other"))
    with refusal("INVALID_FIELD", "session_id"):
        await a.summarise("a/b")
    with refusal("INVALID_FIELD", "call"):
        await a.summarise(s, call=pb.SummarizeSessionRequest().call)
    await a.close(s)
    with refusal("SESSION_CLOSED"):
        await a.summarise(s)
