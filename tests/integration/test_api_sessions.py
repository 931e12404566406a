"""Opening, reading, listing and naming sessions, in every world."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.sessions import caller, session_name, space
from tests.support.transport import Refused
from tests.support.worlds import World

from noosphere.v1 import session_service_pb2 as pb


async def test_a_session_opens_with_defaults_filled_in(world: World) -> None:
    a = await caller(world)
    session = await a.open(session_name(a), title="Launch", labels={"team": "blue"})
    assert session.status == pb.SESSION_STATUS_OPEN
    assert session.owner == a.agent.actor.agent_id
    assert (session.title, dict(session.labels)) == ("Launch", {"team": "blue"})
    assert (session.settings.window_turns, session.settings.window_steps) == (5, 30)
    assert session.settings.tokenizer == "o200k_base"
    assert session.settings.idle_timeout == Duration(seconds=7 * 24 * 3600)
    assert (session.turn, session.branch, session.last_message, session.parent) == (0, 0, "", "")
    assert session.HasField("create_time")
    assert not session.HasField("close_time")
    assert await a.get(session.id) == session


async def test_an_existing_session_is_refused_unless_it_may_be_there(world: World) -> None:
    a, b = await caller(world), await caller(world, "b")
    session = await a.open(session_name(a))
    with pytest.raises(Refused) as refused:
        await b.open(session.id)
    assert refused.value.reason == "SESSION_EXISTS"
    request = pb.OpenSessionRequest(session_id=session.id, title="other", allow_existing=True)
    response = await b.call("OpenSession", request, pb.OpenSessionResponse)
    assert (response.created, response.session) == (False, session)


async def test_a_retry_finds_the_session_that_the_server_named(world: World) -> None:
    a = await caller(world)
    request = pb.OpenSessionRequest(title="one", call=a.agent.call(sequence=1))
    first = await a.call("OpenSession", request, pb.OpenSessionResponse)
    again = await a.call("OpenSession", request, pb.OpenSessionResponse)
    assert first.session.id
    assert (again.session, again.created) == (first.session, True)
    request = pb.OpenSessionRequest(title="one", call=a.agent.call(sequence=2))
    other = await a.call("OpenSession", request, pb.OpenSessionResponse)
    assert other.session.id != first.session.id


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"session_id": "a/b"}, "session_id: 'a/b' contains '/'"),
        ({"session_id": "x" * 129}, "session_id has 129 bytes, the limit is 128"),
        ({"session_id": "~x"}, "session_id: '~x' begins with '~'"),
        ({"session_id": "x", "ephemeral": True}, "session_id: must be empty for an ephemeral session"),
        ({"settings": {"window_turns": 101}}, "settings.window_turns: 101 is not between 1 and 100"),
        ({"settings": {"tool_result_tokens_max": 15}}, "settings.tool_result_tokens_max: 15 is not between 16"),
        ({"settings": {"tokenizer": "klingon"}}, "settings.tokenizer: 'klingon' is unknown"),
        ({"settings": {"checkpoint_policy": 9}}, "settings.checkpoint_policy: 9 is not a checkpoint policy"),
        ({"settings": {"purge_after": Duration(seconds=-1)}}, "settings.purge_after: -1000 ms is not between"),
        ({"title": "x" * 257}, "title has 257 bytes, the limit is 256"),
        ({"labels": {"": "x"}}, "labels name: must not be empty"),
        ({"labels": {str(n): "" for n in range(17)}}, "labels has 17 entries, the limit is 16"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_what_cannot_be_is_refused_by_field_value_and_limit(
    world: World, fields: dict[str, Any], said: str
) -> None:
    a = await caller(world)
    request = pb.OpenSessionRequest(**{"session_id": session_name(a), **fields})
    if fields.keys() & {"session_id"} == set():
        request.session_id = session_name(a)
    with pytest.raises(Refused) as refused:
        await a.call("OpenSession", request, pb.OpenSessionResponse)
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert said in refused.value.message


async def test_a_session_that_was_never_opened_is_not_found(world: World) -> None:
    a = await caller(world)
    for attempt in (a.get(session_name(a)), a.update(session_name(a), title="x")):
        with pytest.raises(Refused) as refused:
            await attempt
        assert refused.value.reason == "SESSION_NOT_FOUND"
        assert refused.value.code.name == "NOT_FOUND"


async def test_title_and_labels_change_apart_from_the_rest(world: World) -> None:
    a = await caller(world)
    session = await a.open(session_name(a), title="one", labels={"team": "blue", "stage": "draft"})
    before = await a.agent.get(space(session.id), "_session/info")
    changed = await a.update(session.id, title="two", set_labels={"stage": "final"}, remove_labels=["team"])
    assert (changed.title, dict(changed.labels)) == ("two", {"stage": "final"})
    kept = await a.update(session.id, set_labels={"team": "red"})
    assert (kept.title, dict(kept.labels)) == ("two", {"stage": "final", "team": "red"})
    assert (await a.agent.get(space(session.id), "_session/info")).version == before.version
    with pytest.raises(Refused) as refused:
        await a.update(session.id, set_labels={"team": "x"}, remove_labels=["team"])
    assert "remove_labels: 'team' is also to be set" in refused.value.message
    for wrong, said in (["x" * 65], "remove_labels name has 65"), ([str(n) for n in range(17)], "remove_labels has 17"):
        with pytest.raises(Refused) as refused:
            await a.update(session.id, remove_labels=wrong)
        assert said in refused.value.message


async def test_sessions_are_listed_by_pages_and_filters(world: World) -> None:
    a, b = await caller(world), await caller(world, "b")
    mine = [session_name(a, name) for name in "abcde"]
    for number, name in enumerate(mine):
        await a.open(name, labels={"parity": str(number % 2)})
    await b.open(session_name(b))
    await a.agent.put(space(session_name(a, "plain")), "key", "no session")
    owner = a.agent.actor.agent_id
    assert [s.id for s in await a.listed(page_size=2, owner=owner)] == mine
    assert [s.id for s in await a.listed(owner=owner, labels={"parity": "1"})] == mine[1::2]
    assert await a.listed(owner=owner, status=pb.SESSION_STATUS_CLOSED) == []
    request = pb.ListSessionsRequest(page_size=2, owner=owner)
    page = await a.call("ListSessions", request, pb.ListSessionsResponse)
    request = pb.ListSessionsRequest(page_token=page.next_page_token, owner="somebody else")
    with pytest.raises(Refused) as refused:
        await a.call("ListSessions", request, pb.ListSessionsResponse)
    assert refused.value.reason == "INVALID_PAGE_TOKEN"
