"""Transcripts in every world: appends, ids, order, branches of a page, taking back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.sessions import (
    SessionAgent,
    caller,
    refusal,
    said,
    session_name,
    space,
    text_of,
    texts,
)
from tests.support.transport import Refused
from tests.support.worlds import World

from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


async def opened(world: World) -> tuple[SessionAgent, str]:
    """Opens a session."""
    a = await caller(world)
    return a, (await a.open(session_name(a))).id


async def test_messages_are_read_back_as_they_were_said(world: World) -> None:
    a, s = await opened(world)
    asked = pb.Message(
        id="m1",
        role=pb.ROLE_ASSISTANT,
        parts=[pb.Part(text="Zahlen bitte: 🧮"), pb.Part(blob=pb.Blob(media_type="image/png", data=b"\x00\xff"))],
        tool_calls=[pb.ToolUse(call_id="c1", name="add", arguments='{"a": 1}')],
        author="somebody else",
        tokens=99,
        key="x",
        retracted=True,
    )
    answer = pb.Message(role=pb.ROLE_TOOL, parts=[pb.Part(text="3")], tool_call_id="c1", name="add")
    reply = await a.append(s, asked, answer)
    first, second = reply.messages
    assert first.parts == asked.parts
    assert first.tool_calls == asked.tool_calls
    assert (first.id, first.author, first.turn, first.retracted) == ("m1", a.agent.actor.agent_id, 0, False)
    assert (second.tool_call_id, second.name) == ("c1", "add")
    assert second.id == second.key.rpartition("/")[2]
    assert first.key < second.key
    assert first.HasField("create_time")
    assert 0 < first.tokens < 99
    assert list(await a.messages(s)) == [first, second]
    assert (await a.get(s)).last_message == second.key
    assert reply.revision == reply.head > 0


async def test_an_id_is_appended_once_and_for_ever(world: World) -> None:
    a, s = await opened(world)
    first = await a.say(s, "one", id="m")
    again = await a.append(s, said("other words", id="m"))
    assert list(again.messages) == [first]
    assert (again.revision, again.replayed) == (0, False)
    mixed = await a.append(s, said("new"), said("one", id="m"), said("last", id="n"))
    assert texts(mixed.messages) == ["new", "one", "last"]
    assert texts(await a.messages(s)) == ["one", "new", "last"]


async def test_an_id_of_the_servers_form_is_the_message_that_it_named(world: World) -> None:
    a, s = await opened(world)
    first = await a.say(s, "one")
    own = await a.say(s, "two", id="mine")
    again = await a.append(s, said("one", id=first.id))
    assert (list(again.messages), again.revision) == ([first], 0)
    place = own.key.rpartition("/")[2]
    with refusal("INVALID_FIELD", "id", repr(place)):
        await a.say(s, "three", id=place)
    with refusal("INVALID_FIELD", "0123456789abcdef-0000"):
        await a.say(s, "three", id="0123456789abcdef-0000")


async def test_a_retry_is_answered_with_the_same_messages(world: World) -> None:
    a, s = await opened(world)
    known = await a.say(s, "known", id="k")
    request = pb.AppendMessagesRequest(
        session_id=s, messages=[said("known", id="k"), said("one"), said("two")], call=a.agent.call(sequence=5)
    )
    first = await a.call("AppendMessages", request, pb.AppendMessagesResponse)
    await a.say(s, "in between")
    again = await a.call("AppendMessages", request, pb.AppendMessagesResponse)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.messages == first.messages
    assert first.messages[0] == known
    assert again.revision == first.revision
    assert texts(await a.messages(s)) == ["known", "one", "two", "in between"]


async def test_a_writer_may_ask_to_be_refused_if_it_has_not_seen_the_newest(world: World) -> None:
    a, s = await opened(world)
    first = (await a.append(s, said("one"), expected_last="")).messages[0]
    second = (await a.append(s, said("two", id="m2"), expected_last=first.id)).messages[0]
    with refusal("TRANSCRIPT_MOVED", "'m2'", first.id):
        await a.append(s, said("late"), expected_last=first.id)
    with refusal("TRANSCRIPT_MOVED", "none"):
        await a.append(s, said("late"), expected_last="")
    # What is known already is no append, whatever has come after it.
    again = await a.append(s, said("two", id="m2"), expected_last=first.id)
    assert list(again.messages) == [second]
    assert texts(await a.messages(s)) == ["one", "two"]


async def test_of_writers_that_expect_the_same_last_message_one_wins(world: World) -> None:
    a, s = await opened(world)
    last = (await a.say(s, "start")).id

    async def attempt(number: int) -> str:
        try:
            await a.append(s, said(str(number)), expected_last=last)
        except Refused as error:
            return error.reason
        return "appended"

    done = await asyncio.gather(*(attempt(number) for number in range(8)))
    assert sorted(done) == ["TRANSCRIPT_MOVED"] * 7 + ["appended"]
    assert texts(await a.messages(s)) == ["start", str(done.index("appended"))]


async def test_a_transcript_is_read_from_both_ends_by_pages(world: World) -> None:
    a, s = await opened(world)
    for start in range(0, 40, 10):
        await a.append(s, *(said(str(number)) for number in range(start, start + 10)))
    expected = [str(number) for number in range(40)]
    assert texts(await a.messages(s, page_size=7)) == expected
    assert texts(await a.messages(s, page_size=7, reverse=True)) == expected[::-1]
    assert texts(await a.messages(s, branch=0)) == expected
    with refusal("ENTRY_NOT_FOUND", "branch: 1"):
        await a.messages(s, branch=1)
    page = await a.call("ListMessages", pb.ListMessagesRequest(session_id=s, page_size=3), pb.ListMessagesResponse)
    turned = pb.ListMessagesRequest(session_id=s, page_token=page.next_page_token, reverse=True)
    with refusal("INVALID_PAGE_TOKEN"):
        await a.call("ListMessages", turned, pb.ListMessagesResponse)


async def test_large_messages_end_a_page_early(world: World) -> None:
    a, s = await opened(world)
    for _ in range(6):
        await a.append(s, *(said("x" * 60_000) for _ in range(4)))
    page = await a.call("ListMessages", pb.ListMessagesRequest(session_id=s), pb.ListMessagesResponse)
    assert 0 < len(page.messages) < 24
    assert len(await a.messages(s)) == 24


async def test_what_is_taken_back_leaves_a_mark(world: World) -> None:
    a, b = await caller(world), await caller(world, "b")
    s = (await a.open(session_name(a))).id
    call = pb.ToolUse(call_id="c", name="send", arguments='{"to": "canary"}')
    secret = pb.Message(id="m", role=pb.ROLE_ASSISTANT, parts=[pb.Part(text="canary")], tool_calls=[call])
    stored = (await a.append(s, secret)).messages[0]
    named = await a.say(s, "canary too")
    left = await b.retract(s, "m")
    assert (left.retracted, text_of(left), left.author) == (True, "", a.agent.actor.agent_id)
    assert (left.key, left.create_time, left.id) == (stored.key, stored.create_time, "m")
    assert [(use.call_id, use.name, use.arguments) for use in left.tool_calls] == [("c", "send", "{}")]
    assert await b.retract(s, "m") == left
    assert (await a.retract(s, named.id)).retracted
    assert b"canary" not in (await a.agent.get(space(s), stored.key)).values[0].value.data
    assert texts(await a.messages(s)) == ["", ""]
    assert list((await a.append(s, secret)).messages) == [left]
    for unknown in ("other", stored.key.rpartition("/")[2], "0123456789abcdef-0000"):
        with refusal("ENTRY_NOT_FOUND", "message_id", unknown):
            await a.retract(s, unknown)


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("role", {"role": 0}, "INVALID_FIELD", "messages[0].role: 0 is not a role"),
    ("id", {"role": 2, "id": "x" * 129}, "VALUE_TOO_LARGE", "messages[0].id has 129 bytes, the limit is 128"),
    ("control", {"role": 2, "id": "a\nb"}, "INVALID_FIELD", "messages[0].id: contains the control character U+000A"),
    ("empty", {"role": 2, "parts": [pb.Part()]}, "INVALID_FIELD", "messages[0].parts[0]: has no content"),
    ("blob", {"role": 2, "parts": [pb.Part(blob=pb.Blob(data=b"x"))]}, "INVALID_FIELD", "blob.media_type"),
    ("size", {"role": 2, "parts": [pb.Part(text="x" * 65_537)]}, "VALUE_TOO_LARGE", "65537 bytes, the limit is 65536"),
    ("user calls", {"role": 2, "tool_calls": [pb.ToolUse(call_id="c", name="n")]}, "INVALID_FIELD", "tool_calls"),
    ("no call", {"role": 4}, "INVALID_FIELD", "messages[0].tool_call_id: must not be empty"),
    ("not tool", {"role": 2, "tool_call_id": "c"}, "INVALID_FIELD", "messages[0].tool_call_id"),
    ("nameless", {"role": 3, "tool_calls": [pb.ToolUse(call_id="c")]}, "INVALID_FIELD", "tool_calls[0].name"),
    (
        "twice",
        {"role": 3, "tool_calls": [pb.ToolUse(call_id="c", name="n")] * 2},
        "INVALID_FIELD",
        "messages[0].tool_calls[1].call_id: 'c' is used twice",
    ),
    ("turn", {"role": 2, "turn": 3}, "TURN_NOT_OPEN", "turn 3"),
]


@pytest.mark.parametrize(("fields", "reason", "words"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
async def test_a_malformed_message_appends_nothing(
    world: World, fields: dict[str, Any], reason: str, words: str
) -> None:
    a, s = await opened(world)
    with refusal(reason, words):
        await a.append(s, pb.Message(**fields), said("fine"))
    assert await a.messages(s) == []


async def test_a_call_has_its_limits(world: World) -> None:
    a, s = await opened(world)
    with refusal("INVALID_FIELD", "messages: must not be empty"):
        await a.append(s)
    with refusal("VALUE_TOO_LARGE", "messages has 17 entries, the limit is 16"):
        await a.append(s, *(said("x") for _ in range(17)))
    with refusal("VALUE_TOO_LARGE", "messages has 262145 bytes, the limit is 262144"):
        await a.append(s, *(said("x" * 65_536) for _ in range(4)), said("x"))
    with refusal("INVALID_FIELD", "messages.id: 'm' is used twice"):
        await a.append(s, said("x", id="m"), said("y", id="m"))
    with refusal("SESSION_NOT_FOUND"):
        await a.append(session_name(a, "other"), said("x"))


async def test_messages_are_records_that_anybody_lists_and_watches(world: World) -> None:
    a, s = await opened(world)
    watch = a.agent.watch(space(s), "_session/messages/")
    await anext(watch)
    stored = await a.say(s, "hello", id="m")
    async for message in watch:
        if message.HasField("changes"):
            assert [change.key for change in message.changes.changes] == [stored.key]
            break
    await watch.aclose()
    where = {"role": types.Scalar(string_value="user")}
    listed = await a.agent.listing(space(s), "_session/messages/", where=where)
    assert [record.key for record in listed] == [stored.key]
    assert b'"text":"hello"' in listed[0].values[0].value.data
    keys = [record.key for record in await a.agent.listing(space(s))]
    assert keys == ["_session/info", stored.key, "_session/meta", "_session/turns"]


async def test_an_appended_message_advances_the_read_set_of_its_author(world: World) -> None:
    a, s = await opened(world)
    other = await caller(world, "b")
    request = memory_pb.ListRequest(namespace=space(s), collection="", call=a.agent.call())
    request.call.record_read_set = True
    token = (await a.agent.api.list_records(request)).call.read_set_token

    def with_token(token: bytes) -> types.CallContext:
        call = a.agent.call()
        call.read_set_token = token
        return call

    mine = await a.append(s, said("mine"), call=with_token(token))
    again = await a.append(s, said("mine too"), call=with_token(mine.call.read_set_token))
    await other.say(s, "not mine")
    with refusal("STALE_READ_SET", other.agent.name):
        await a.append(s, said("late"), call=with_token(again.call.read_set_token))


async def test_an_id_that_many_append_at_once_is_appended_once(world: World) -> None:
    a, s = await opened(world)
    b = await caller(world, "b")
    appends = (agent.append(s, said(str(number), id="m")) for number, agent in enumerate((a, b) * 4))
    replies = await asyncio.gather(*appends)
    (stored,) = await a.messages(s)
    assert [list(reply.messages) for reply in replies] == [[stored]] * 8
    assert sorted(bool(reply.revision) for reply in replies) == [False] * 7 + [True]


async def test_who_asks_for_it_has_the_transcript_in_the_read_set(world: World) -> None:
    a, s = await opened(world)
    await a.say(s, "one", id="m")

    async def seen(record: bool) -> types.CallContext:
        request = pb.ListMessagesRequest(session_id=s, call=a.agent.call())
        request.call.record_read_set = record
        call = a.agent.call()
        call.read_set_token = (await a.call("ListMessages", request, pb.ListMessagesResponse)).call.read_set_token
        return call

    call = await seen(record=True)
    # Taking back changes what a message says, not which there are.
    await a.retract(s, "m")
    call.read_set_token = (await a.append(s, said("two"), call=call)).call.read_set_token
    await a.say(s, "behind my back")
    with refusal("STALE_READ_SET", "_session/messages/"):
        await a.append(s, said("three"), call=call)
    assert not (await seen(record=False)).read_set_token
