"""What MemoryService may write in a session's namespace, on every path, in every world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.api import JSON, SEEN_NOTHING, counter, delete, merge, put, span
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space, text_of, texts
from tests.support.transport import Refused
from tests.support.worlds import World

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

KEPT = "is kept by the SessionService"

Attempt = Callable[[SessionAgent, str, str], Awaitable[object]]


async def _resolve(a: SessionAgent, namespace: str, key: str) -> None:
    value = types.Value(data=b"1", encoding=JSON)
    request = pb.ResolveConflictRequest(namespace=namespace, key=key, value=value, context=SEEN_NOTHING)
    request.call.CopyFrom(a.agent.call())
    await a.agent.api.resolve_conflict(request)


async def _commit(a: SessionAgent, namespace: str, key: str) -> None:
    read = pb.GetRequest(namespace=namespace, key="seen", call=a.agent.call())
    read.call.record_read_set = True
    request = pb.CommitRequest(namespace=namespace, operations=[put(key, 1)], call=a.agent.call())
    request.call.read_set_token = (await a.agent.api.get(read)).call.read_set_token
    await a.agent.api.commit(request)


async def _renew(a: SessionAgent, namespace: str, key: str) -> None:
    request = pb.RenewRequest(namespace=namespace, key=key, fence=1, lease=span(5_000), call=a.agent.call())
    await a.agent.api.renew(request)


async def _complete(a: SessionAgent, namespace: str, key: str) -> None:
    await a.agent.api.complete(pb.CompleteRequest(namespace=namespace, key=key, fence=1, call=a.agent.call()))


async def _release(a: SessionAgent, namespace: str, key: str) -> None:
    await a.agent.api.release(pb.ReleaseRequest(namespace=namespace, key=key, fence=1, call=a.agent.call()))


async def _reserve(a: SessionAgent, namespace: str, key: str) -> None:
    request = pb.ReserveRequest(namespace=namespace, key=key, lease=span(5_000), call=a.agent.call())
    await a.agent.api.reserve(request)


PATHS: dict[str, Attempt] = {
    "put": lambda a, n, k: a.agent.put(n, k, 1, blind=True),
    "delete": lambda a, n, k: a.agent.delete(n, k, blind=True),
    "merge": lambda a, n, k: a.agent.add(n, k),
    "transact": lambda a, n, k: a.agent.transact(n, put("item", 1), put(k, 1)),
    "transact-delete": lambda a, n, k: a.agent.transact(n, delete(k, blind=True)),
    "transact-merge": lambda a, n, k: a.agent.transact(n, merge(counter(k))),
    "commit": _commit,
    "resolve": _resolve,
    "claim": lambda a, n, k: a.agent.claim(n, k.rpartition("/")[0] + "/"),
    "renew": _renew,
    "release": _release,
    "complete": _complete,
    "reserve": _reserve,
}


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize("key", ["_session/info", "_session/messages/0000000000000001-0000", "_session/of my own"])
async def test_nobody_writes_what_the_session_keeps(world: World, path: str, key: str) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    before = await a.agent.get(space(s), "_session/info")
    with refusal("INVALID_FIELD", "key", repr(key) if path != "claim" else "_session/", KEPT):
        await PATHS[path](a, space(s), key)
    assert await a.agent.get(space(s), "_session/info") == before
    keys = [record.key for record in await a.agent.listing(space(s))]
    assert keys == ["_session/info", "_session/meta", "_session/turns"]


@pytest.mark.parametrize("namespace", ["never opened", "deeper/than a session"])
async def test_a_namespace_that_is_no_session_is_a_plain_one(world: World, namespace: str) -> None:
    a = await caller(world)
    name = space(f"{session_name(a)}{namespace}")
    await a.agent.put(name, "key", 1)
    assert [record.key for record in await a.agent.listing(name)] == ["key"]
    with refusal("INVALID_FIELD", KEPT):
        await a.agent.put(name, "_session/info", 1)
    append = pb.Operation(append=pb.AppendOperation(message=said("x")))
    reason = "INVALID_FIELD" if "/" in namespace else "SESSION_NOT_FOUND"
    with refusal(reason):
        await a.agent.transact(name, append)


async def test_what_was_there_before_a_session_opened_becomes_its_items(world: World) -> None:
    a = await caller(world)
    s = session_name(a)
    await a.agent.put(space(s), "note", "early")
    await a.open(s)
    keys = [record.key for record in await a.agent.listing(space(s))]
    assert keys == ["_session/info", "_session/meta", "_session/turns", "note"]


async def test_a_claimer_of_everything_is_not_given_what_the_session_keeps(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    assert await a.agent.claim(space(s)) is None
    await a.agent.put(space(s), "task/one", 1)
    found = await a.agent.claim(space(s))
    assert found is not None
    assert found.key == "task/one"
    await a.agent.complete(space(s), found)
    assert await a.agent.claim(space(s)) is None


async def test_a_session_has_room_for_256_items(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    for start in range(0, 250, 50):
        await a.agent.transact(space(s), *(put(f"{'AZ_az'[start // 50]}/{n}", n) for n in range(50)))
    await a.append(s, *(said("no item") for _ in range(16)))

    async def attempt(number: int) -> str:
        try:
            await a.agent.put(space(s), f"more/{number}", number)
        except Refused as error:
            return error.reason
        return "made"

    done = await asyncio.gather(*(attempt(number) for number in range(12)))
    assert sorted(done) == ["LIMIT_EXCEEDED"] * 6 + ["made"] * 6
    with refusal("LIMIT_EXCEEDED", "items: too many items in the session", "the limit is 256"):
        await a.agent.add(space(s), "counter")
    await a.agent.put(space(s), "A/1", "changed", blind=True)
    await a.agent.transact(space(s), delete("A/1", blind=True), put("in its place", 1))
    with refusal("LIMIT_EXCEEDED"):
        await a.agent.transact(space(s), delete("A/2", blind=True), put("two", 1), put("three", 1))
    await a.agent.delete(space(s), "A/3", blind=True)
    await a.agent.put(space(s), "A/3", "back")
    await a.say(s, "messages do not count")


async def test_a_transaction_appends_messages_with_what_it_writes(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    turn = await a.begin_turn(s)

    def append(text: str, **fields: Any) -> pb.Operation:
        return pb.Operation(append=pb.AppendOperation(message=said(text, **fields)))

    applied = await a.agent.transact(space(s), append("one", id="m"), put("task/plan", 1), append("two"))
    assert [result.version for result in applied.results] == [applied.revision] * 3
    one, two = await a.messages(s)
    assert (text_of(one), one.id, one.turn, one.author) == ("one", "m", turn, a.agent.actor.agent_id)
    assert text_of(two) == "two"
    assert (await a.agent.get(space(s), "task/plan")).version == applied.revision
    record = await a.agent.get(space(s), one.key)
    assert record.version == applied.revision
    again = await a.agent.transact(space(s), append("one", id="m"), put("task/other", 1))
    assert [result.version for result in again.results] == [applied.revision, again.revision]
    assert list((await a.append(s, said("one", id="m"))).messages) == [one]
    nothing = await a.agent.transact(space(s), append("one", id="m"))
    assert (nothing.revision, nothing.results[0].version) == (0, applied.revision)
    with refusal("VERSION_MISMATCH", "nothing was written"):
        await a.agent.transact(space(s), append("lost"), put("task/plan", 2, expected=0))
    with refusal("INVALID_FIELD", "operations.append.message.id", "'m' is used twice"):
        await a.agent.transact(space(s), append("x", id="m"), append("y", id="m"))
    with refusal("INVALID_FIELD", "operations[0].append.message.role"):
        await a.agent.transact(space(s), pb.Operation(append=pb.AppendOperation()))
    assert texts(await a.messages(s)) == ["one", "two"]


async def test_a_retried_transaction_appends_once(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    operation = pb.Operation(append=pb.AppendOperation(message=said("once")))
    call = a.agent.call(sequence=3)
    first = await a.agent.transact(space(s), operation, put("k", 1), call=call)
    again = await a.agent.transact(space(s), operation, put("k", 1), call=call)
    assert (again.replayed, again.revision) == (True, first.revision)
    assert [result.version for result in again.results] == [first.revision] * 2
    assert texts(await a.messages(s)) == ["once"]


async def test_a_decision_appends_and_its_read_set_goes_on(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    await a.agent.put(space(s), "goals/one", "ship")
    read = pb.ListRequest(namespace=space(s), collection="", call=a.agent.call())
    read.call.record_read_set = True
    token = (await a.agent.api.list_records(read)).call.read_set_token
    for number in range(3):
        request = pb.CommitRequest(namespace=space(s), call=a.agent.call())
        request.operations.append(pb.Operation(append=pb.AppendOperation(message=said(str(number)))))
        request.call.read_set_token = token
        token = (await a.agent.api.commit(request)).call.read_set_token
    assert texts(await a.messages(s)) == ["0", "1", "2"]
    request.call.read_set_token = token
    await a.agent.put(space(s), "goals/one", "do not ship", blind=True)
    with refusal("STALE_READ_SET"):
        await a.agent.api.commit(request)
    assert texts(await a.messages(s)) == ["0", "1", "2"]


async def test_a_decision_cannot_await_a_call_that_there_is_not(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    read = pb.GetRequest(namespace=space(s), key="goals/one", call=a.agent.call())
    read.call.record_read_set = True
    request = pb.CommitRequest(namespace=space(s), operations=[put("k", 1)], call=a.agent.call())
    request.call.read_set_token = (await a.agent.api.get(read)).call.read_set_token
    request.awaited_calls.append("c1")
    with refusal("ENTRY_NOT_FOUND", "awaited_calls", "'c1'"):
        await a.agent.api.commit(request)
    request.awaited_calls.extend(str(number) for number in range(64))
    with refusal("VALUE_TOO_LARGE", "awaited_calls has 65 entries, the limit is 64"):
        await a.agent.api.commit(request)
    del request.awaited_calls[:]
    request.namespace = world.space()
    request.awaited_calls.append("c1")
    with refusal("INVALID_FIELD", "awaited_calls"):
        await a.agent.api.commit(request)
