"""Results of tools in every world: made smaller on arrival, kept whole beside that, uploaded in pieces if large."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, caller, refusal, session_name, space, text_of
from tests.support.toolcalls import as_bytes, as_json, finish, get, raw, send, start, upload
from tests.support.worlds import LocalWorld, World

from noosphere.server.context.compaction import expand
from noosphere.server.models import TokenizerRegistry
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.sessions.keys import RAW, UPLOADS
from noosphere.v1 import session_service_pb2 as pb

MIB = 1024 * 1024
PIECE_MAX = 48 * 1024
LIMIT = 200


async def opened(world: World, **settings: object) -> tuple[SessionAgent, str]:
    """Opens a session whose results are small."""
    a = await caller(world)
    chosen: Any = {"tool_result_tokens_max": LIMIT, **settings}
    return a, (await a.open(session_name(a), settings=pb.SessionSettings(**chosen))).id


def tokens(text: str) -> int:
    """Counts as the session does."""
    return TokenizerRegistry().named("o200k_base").count(text)


def flights(count: int) -> list[dict[str, object]]:
    """Returns a result that gets long."""
    return [{"flight": f"NA{number:03}", "seats": number % 9, "price": 100 + number} for number in range(count)]


async def records(server: LocalServer, session_id: str) -> list[str]:
    """Returns the internal keys of results in a session, as the store holds them."""
    store, ref = server.engine.store, NamespaceRef(space(session_id))
    return [entry.key for kind in (RAW, UPLOADS) for entry in (await store.scan(ref, kind, limit=1_000)).entries]


async def test_what_fits_enters_as_it_arrived(world: World) -> None:
    a, s = await opened(world)
    text = json.dumps(flights(3), indent=2)
    call = (await finish(a, (await start(a, s)).ticket, result=as_bytes(text.encode()))).tool_call
    assert (call.content, call.compaction, call.tokens) == (text, pb.COMPACTION_NONE, tokens(text))


async def test_json_that_says_much_twice_is_written_shorter_without_loss(world: World) -> None:
    a, s = await opened(world)
    value = flights(16)
    ticket = (await start(a, s)).ticket
    call = (await finish(a, ticket, value, append_message=True)).tool_call
    assert call.compaction == pb.COMPACTION_LOSSLESS
    assert call.tokens == tokens(call.content) <= LIMIT
    assert json.loads(expand(call.content)) == value
    assert b"".join(await raw(a, ticket)) == json.dumps(value).encode()
    assert call.raw_bytes == len(json.dumps(value))
    (message,) = await a.messages(s)
    assert (text_of(message), message.tokens) == (call.content, call.tokens)


async def test_what_does_not_fit_is_chosen_by_what_came_before(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "goals/main", "How many seats has flight NA444?")
    await a.say(s, "And what about NA333, please?")
    await a.agent.put(space(s), "goals/past", "Flight NA111", attributes={"status": "done"})
    ticket = (await start(a, s, arguments='{"also":"NA222"}')).ticket
    call = (await finish(a, ticket, flights(600))).tool_call
    assert call.compaction == pb.COMPACTION_RELEVANT
    assert call.tokens == tokens(call.content) <= LIMIT
    for named in ("NA222", "NA333", "NA444"):
        assert named in call.content
    assert "NA111" not in call.content
    assert "left out" in call.content
    assert json.loads(b"".join(await raw(a, ticket))) == flights(600)


async def test_equal_results_after_equal_pasts_are_equal_whatever_follows(world: World) -> None:
    contents = []
    for later in ("NA111", "NA555"):
        a, s = await opened(world)
        await a.say(s, "What does NA444 cost?")
        ticket = (await start(a, s)).ticket
        contents.append((await finish(a, ticket, flights(600))).tool_call.content)
        await a.say(s, f"And {later}?")
        assert (await get(a, ticket)).tool_call.content == contents[-1]
    assert contents[0] == contents[1]


async def test_named_fields_are_kept(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    call = (await finish(a, ticket, {"items": flights(40), "next": "x"}, keep=["items[*].flight"])).tool_call
    assert call.compaction == pb.COMPACTION_FIELDS
    for row in flights(40):
        assert str(row["flight"]) in call.content
    assert "seats" not in call.content


async def test_a_long_text_is_no_json_and_fits_too(world: World) -> None:
    a, s = await opened(world)
    text = "\n".join(f"line {number}: nothing to see here" for number in range(2_000))
    ticket = (await start(a, s)).ticket
    call = (await finish(a, ticket, result=as_bytes(text.encode()))).tool_call
    assert call.compaction in {pb.COMPACTION_RELEVANT, pb.COMPACTION_CUT}
    assert call.tokens == tokens(call.content) <= LIMIT
    assert b"".join(await raw(a, ticket)) == text.encode()


async def test_a_json_string_enters_as_its_text(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    call = (await finish(a, ticket, 'say "hello"\nto the world')).tool_call
    assert (call.content, call.compaction) == ('say "hello"\nto the world', pb.COMPACTION_NONE)
    assert b"".join(await raw(a, ticket)) == json.dumps(call.content).encode(), "kept as it arrived"


async def test_bytes_that_are_no_text_are_kept_and_named(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    data = bytes(range(256)) * 300
    call = (await finish(a, ticket, result=as_bytes(data), append_message=True)).tool_call
    assert (call.content, call.compaction) == ("[76800 bytes that are no text]", pb.COMPACTION_CUT)
    pieces = await raw(a, ticket)
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_MAX


async def test_an_empty_result_is_a_result(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    done = await finish(a, ticket, result=as_bytes(b""), append_message=True)
    assert (done.tool_call.status, done.tool_call.content) == (pb.TOOL_CALL_STATUS_DONE, "")
    assert (await a.messages(s))[0].tool_call_id == done.tool_call.call_id
    assert await raw(a, ticket) == []


async def test_a_long_failure_is_made_smaller_too(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    trace = "\n".join(f'  File "tool.py", line {number}, in step_{number}' for number in range(1_000))
    call = (await finish(a, ticket, failure=trace + "\nValueError: no such airport")).tool_call
    assert call.status == pb.TOOL_CALL_STATUS_FAILED
    assert call.tokens <= LIMIT
    assert call.content.rstrip().endswith("no such airport") or "no such airport" in call.content
    assert b"".join(await raw(a, ticket)).decode().startswith(trace)


@pytest.mark.parametrize("last", [0, 10, 700 * 1024], ids=["nothing left", "a little left", "much left"])
async def test_a_large_result_is_uploaded_before(world: World, last: int) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    text = json.dumps(flights(30_000))
    first, rest = text[: len(text) - last].encode(), text[len(text) - last :].encode()
    made = await upload(a, ticket, first, piece=800_000)
    assert made.bytes == len(first)
    call = (await finish(a, ticket, upload_id=made.upload_id, **_value(rest))).tool_call
    assert call.status == pb.TOOL_CALL_STATUS_DONE
    assert call.raw_bytes == len(text)
    assert call.tokens <= LIMIT
    pieces = await raw(a, ticket)
    assert b"".join(pieces) == text.encode()
    assert max(map(len, pieces)) <= PIECE_MAX


def _value(data: bytes) -> dict[str, Any]:
    value = as_json(0)
    value.data = data
    return {"result": value}


async def test_a_result_in_one_message_may_have_900_kib(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    data = b"x" * (900 * 1024)
    with refusal("VALUE_TOO_LARGE", "result.data", "921601", "921600"):
        await finish(a, ticket, result=as_bytes(data + b"x"))
    await finish(a, ticket, result=as_bytes(data))
    assert b"".join(await raw(a, ticket)) == data


async def test_a_small_upload_is_a_result_like_any(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    made = await upload(a, ticket, b'{"fare": ', piece=3)
    call = (await finish(a, ticket, upload_id=made.upload_id, **_value(b"7}"))).tool_call
    assert (call.content, call.compaction, call.raw_bytes) == ('{"fare": 7}', pb.COMPACTION_NONE, 11)
    assert await raw(a, ticket) == [b'{"fare": 7}']


async def test_an_upload_belongs_to_its_call(world: World) -> None:
    a, s = await opened(world)
    one, two = (await start(a, s)).ticket, (await start(a, s)).ticket
    made = await upload(a, one, b"x" * 10)
    with refusal("INVALID_FIELD", "upload_id", made.upload_id, "another tool call"):
        await finish(a, two, upload_id=made.upload_id)
    for unknown in ("ab" * 12, "no-id", "x" * 5000, "../" + made.upload_id):
        with refusal("INVALID_FIELD", "upload_id"):
            await finish(a, one, upload_id=unknown)
    with refusal("INVALID_FIELD", "upload_id", "failure"):
        await finish(a, one, failure="no", upload_id=made.upload_id)
    assert (await get(a, one)).tool_call.status == pb.TOOL_CALL_STATUS_PENDING
    await finish(a, one, result=as_bytes(b"y"), upload_id=made.upload_id)
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await upload(a, one, b"x")
    await a.close(s)
    with refusal("SESSION_CLOSED", s):
        await upload(a, two, b"x")
    await a.purge(s)
    with refusal("SESSION_NOT_FOUND", s):
        await upload(a, two, b"x")


@pytest.mark.parametrize(
    ("requests", "reason", "words"),
    [
        ([b"x" * (900 * 1024 + 1)], "VALUE_TOO_LARGE", ("data", "921601", "921600")),
        ([b"x" * (900 * 1024)] * 10, "VALUE_TOO_LARGE", ("data", "8388608")),
    ],
    ids=["a piece", "all together"],
)
async def test_an_upload_has_its_limits(world: World, requests: Sequence[bytes], reason: str, words: list[str]) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    with refusal(reason, *words):
        await send(a, ticket, [pb.UploadToolResultRequest(data=data) for data in requests])
    await finish(a, ticket)


async def test_upload_and_rest_together_have_the_limit(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    made = await upload(a, ticket, b"x" * (8 * MIB), piece=900_000)
    with refusal("VALUE_TOO_LARGE", "result", str(8 * MIB + 1), str(8 * MIB)):
        await finish(a, ticket, result=as_bytes(b"x"), upload_id=made.upload_id)
    call = (await finish(a, ticket, result=as_bytes(b""), upload_id=made.upload_id)).tool_call
    assert call.raw_bytes == 8 * MIB
    assert call.tokens <= LIMIT
    assert sum(map(len, await raw(a, ticket))) == 8 * MIB


async def test_a_result_that_is_not_what_it_says_is_refused(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    for data, words in (
        (b'{"a":', ("result.data", "not JSON")),
        (b"\xff", ("result.data", "not JSON")),
        (b"[" * 200 + b"]" * 200, ("result.data", "200", "128")),
    ):
        with refusal("VALUE_TOO_LARGE" if b"[[" in data else "INVALID_FIELD", *words):
            await finish(a, ticket, **_value(data))
    value = as_bytes(b"x")
    value.ClearField("encoding")
    with refusal("INVALID_FIELD", "result.encoding"):
        await finish(a, ticket, result=value)
    with refusal("VALUE_TOO_LARGE", "keep", "33", "32"):
        await finish(a, ticket, 1, keep=["a"] * 33)
    with refusal("INVALID_FIELD", "keep[1]", "a["):
        await finish(a, ticket, 1, keep=["ok", "a["])
    assert (await get(a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_PENDING


async def test_content_has_a_limit_in_bytes_as_well(world: World) -> None:
    """A token can be a long run of one character."""
    a, s = await opened(world, tool_result_tokens_max=16_384)
    ticket = (await start(a, s)).ticket
    done = await finish(a, ticket, result=as_bytes(b" " * 800_000), append_message=True)
    assert len(done.tool_call.content.encode()) <= 64 * 1024
    ticket = (await start(a, s)).ticket
    done = await finish(a, ticket, result=as_bytes(b"\x01" * 60_000), append_message=True)
    record = await a.agent.get(space(s), done.tool_call.key)
    assert len(record.values[0].value.data) <= 65 * 1024
    assert b"".join(await raw(a, ticket)) == b"\x01" * 60_000


async def test_results_of_any_bytes_come_back_as_they_were(world: World) -> None:
    a, s = await opened(world)
    chance = random.Random(11)
    sizes = [1, PIECE_MAX - 1, PIECE_MAX, PIECE_MAX + 1, 256 * 1024, 256 * 1024 + 1, 5 * PIECE_MAX]
    results = [chance.randbytes(size) for size in sizes]
    tickets = [(await start(a, s)).ticket for _ in results]
    await asyncio.gather(*(finish(a, t, result=as_bytes(data)) for t, data in zip(tickets, results, strict=True)))
    for ticket, data in zip(tickets, results, strict=True):
        pieces = await raw(a, ticket)
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) <= PIECE_MAX


async def test_orphans_are_swept_and_nothing_else(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, s = await opened(world)
    kept, left = (await start(a, s)).ticket, (await start(a, s)).ticket
    made = await upload(a, kept, b"k" * MIB)
    await finish(a, kept, result=as_bytes(b""), upload_id=made.upload_id)
    inline = (await start(a, s)).ticket
    await finish(a, inline, result=as_bytes(b"i" * 100_000))
    before = await records(local, s)
    orphan = await upload(a, left, b"o" * MIB)
    assert len(await records(local, s)) > len(before) + 20
    await world.elapse(3_600_000 - 1)
    await local.sweep()
    assert len(await records(local, s)) > len(before) + 20, "an upload has an hour"
    await world.elapse(1)
    with refusal("INVALID_FIELD", orphan.upload_id, "1 hour"):
        await finish(a, left, upload_id=orphan.upload_id)
    await local.sweep()
    assert await records(local, s) == before
    assert b"".join(await raw(a, kept)) == b"k" * MIB
    assert b"".join(await raw(a, inline)) == b"i" * 100_000
    await local.restart()
    assert b"".join(await raw(await caller(world, "b"), kept)) == b"k" * MIB


async def test_pieces_of_a_refused_result_are_orphans(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    made = await upload(a, ticket, b"x" * MIB)
    await finish(a, ticket, 1)
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(a, ticket, result=as_bytes(b""), upload_id=made.upload_id)
    await world.elapse(3_600_000)
    await local.sweep()
    assert await records(local, s) == []


async def test_a_session_has_room_for_so_many_uploads(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, s = await opened(world)
    ticket = (await start(a, s)).ticket
    for _ in range(64):
        await upload(a, ticket, b"x")
    with refusal("LIMIT_EXCEEDED", "uploads", "65", "64"):
        await upload(a, ticket, b"x")
    await world.elapse(3_600_000)
    await upload(a, ticket, b"x")


async def test_a_session_has_room_for_so_many_pending_calls(local: LocalServer) -> None:
    a, s = await opened(LocalWorld(local))
    results = await asyncio.gather(*(start(a, s) for _ in range(1_010)), return_exceptions=True)
    started = [result for result in results if isinstance(result, pb.ToolCall)]
    assert len(started) == 1_000
    with refusal("LIMIT_EXCEEDED", "tool_calls", "1001", "1000"):
        await start(a, s)
    assert (await start(a, s, started[7].call_id)).call_id == started[7].call_id, "what is known is no new one"
    await finish(a, started[0].ticket)
    await start(a, s)
