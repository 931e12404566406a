"""A causal context belongs to the record that was read: nothing else in the client holds or moves one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.client_support import QUICK, ScriptedServer, got, live_record, put_applied, put_refused, scripted_server

from noosphere.client import Client, Conflict, InvalidArgument, connect
from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="planner-0", retry=QUICK) as connected:
        yield connected


async def test_two_tasks_on_one_key_cannot_use_what_the_other_read(server: ScriptedServer, client: Client) -> None:
    """Task 1 reads at 10 and thinks; task 2 reads at 20 and writes. Task 1 must still say 10."""
    server.script("Get", got("plan", b'"first"', dot=10), got("plan", b'"second"', dot=20))
    server.script("Put", put_applied(21), put_refused(Reason.CONFLICT, live_record("plan", b'"third"', dot=21)))
    key = client.shared("launch").key("plan", str)
    thinking, written = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        record = await key.read()
        thinking.set()
        await written.wait()
        with pytest.raises(Conflict) as caught:
            await record.replace(record.value + " and slow")
        assert caught.value.base is record
        assert caught.value.mine == "first and slow"
        theirs = caught.value.theirs
        assert theirs is not None
        assert theirs.value == "third"

    async def fast() -> None:
        await thinking.wait()
        record = await key.read()
        await record.replace(record.value + " and fast")
        written.set()

    await asyncio.gather(slow(), fast())
    sent = [request.put.precondition for request in server.requests["Put"]]
    assert [precondition.context.prefix for precondition in sent] == [20, 10]
    assert not any(precondition.HasField("expected_version") for precondition in sent)
    # A refusal then comes with the record as it is now, so nobody has to read again.
    assert all(request.return_current for request in server.requests["Put"])


async def test_a_put_without_a_record_claims_to_have_seen_nothing(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got("plan", b"1", dot=10))
    server.script("Put", put_applied(11), put_applied(12))
    key = client.shared("launch").key("plan")
    await key.read()
    await key.put(2)
    await key.put(3)
    assert not any(request.put.HasField("precondition") for request in server.requests["Put"])


async def test_a_written_record_has_the_context_of_its_acknowledgement(server: ScriptedServer, client: Client) -> None:
    server.script("Put", put_applied(11), put_applied(12))
    record = await client.shared("launch").put("plan", 1)
    assert (record.version, record.value, record.seen.prefix) == (11, 1, 11)
    await record.replace(2)
    assert server.requests["Put"][1].put.precondition.context.prefix == 11
    assert record.seen.prefix == 11


async def test_an_acknowledgement_without_a_version_gives_none(server: ScriptedServer, client: Client) -> None:
    """Other values remain that the writer has not read; a version would let it replace them."""
    applied = pb.Applied(revision=30, context=pb.CausalContext(prefix=10, extras=[30]))
    server.script("Put", ms.PutResponse(applied=applied, head=30), put_applied(31))
    record = await client.shared("launch").put("plan", 1)
    assert record.version is None
    await record.replace(2)
    sent = server.requests["Put"][1].put.precondition
    assert (sent.context.prefix, list(sent.context.extras), sent.HasField("expected_version")) == (10, [30], False)


async def test_the_context_of_an_absent_key_is_sent(server: ScriptedServer, client: Client) -> None:
    server.script("Get", ms.GetResponse(record=pb.Record(key="plan", context=pb.CausalContext(prefix=40)), head=40))
    server.script("Put", put_applied(41))
    record = await client.shared("launch").key("plan").read()
    assert not record.exists
    await record.replace("new")
    assert server.requests["Put"][0].put.precondition.context.prefix == 40


async def test_a_record_says_nothing_about_another_key(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got("plan", b"1"))
    space = client.shared("launch")
    record = await space.key("plan").read()
    for write in (space.put("other", 1, seen=record), client.shared("landing").delete("plan", seen=record)):
        with pytest.raises(InvalidArgument, match="seen: was read from 'plan' in shared/launch"):
            await write
    assert not server.requests["Put"]
    assert not server.requests["Delete"]


async def test_replace_keeps_attributes_unless_others_are_given(server: ScriptedServer, client: Client) -> None:
    record = live_record("plan", b"1")
    record.attributes["kind"].string_value = "crawl"
    server.script("Get", ms.GetResponse(record=record, head=7))
    server.script("Put", put_applied(11), put_applied(12))
    read = await client.shared("launch").key("plan").read()
    await read.replace(2)
    await read.replace(3, attributes={})
    sent = [dict(request.put.attributes) for request in server.requests["Put"]]
    assert sent == [{"kind": pb.Scalar(string_value="crawl")}, {}]


async def test_values_are_never_shared(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got("plan", b'{"steps":["a"]}'))
    server.script("Put", put_applied(11))
    record = await client.shared("launch").key("plan").read()
    record.value["steps"].append("b")
    assert record.value == {"steps": ["a"]}
    mine = {"steps": ["c"]}
    written = await record.replace(mine)
    mine["steps"].append("d")
    assert written.value == {"steps": ["c"]}


async def test_a_typed_record_is_replaced_with_its_version(server: ScriptedServer, client: Client) -> None:
    record = live_record("count", b"3", dot=9)
    record.merge_type = pb.MERGE_TYPE_COUNTER
    server.script("Get", ms.GetResponse(record=record, head=9))
    server.script("Put", put_applied(10))
    written = await (await client.shared("launch").key("count", int).read()).replace(5)
    assert server.requests["Put"][0].put.precondition.expected_version == 9
    assert written.merge_type.name == "COUNTER"


async def test_update_computes_every_value_from_what_it_replaces(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got("plan", b'["base"]', dot=10))
    theirs = live_record("plan", b'["base","theirs"]', dot=20)
    server.script("Put", put_refused(Reason.CONFLICT, theirs), put_applied(21))
    seen: list[tuple[object, object]] = []

    async def revise(current: list[str] | None, conflict: Conflict[list[str]] | None) -> list[str]:
        seen.append((current, None if conflict is None else conflict.mine))
        return [*(current or []), "mine"]

    record = await client.shared("launch").key("plan", list[str]).update(revise)
    assert seen == [(["base"], None), (["base", "theirs"], ["base", "mine"])]
    assert record.value == ["base", "theirs", "mine"]
    assert [request.put.precondition.context.prefix for request in server.requests["Put"]] == [10, 20]
    assert len(server.requests["Get"]) == 1


async def test_update_gives_up_after_its_attempts(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got("plan", b"1", dot=10))
    server.script("Put", *(put_refused(Reason.CONFLICT, live_record("plan", b"2", dot=20 + n)) for n in range(2)))
    with pytest.raises(Conflict):
        await client.shared("launch").key("plan", int).update(lambda current, _: (current or 0) + 1, attempts=2)
    assert len(server.requests["Put"]) == 2
