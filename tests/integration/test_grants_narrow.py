"""What one verb gives, and what it does not: what replies tell, what others left, calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from tests.integration.test_grants import SECONDS_MAX, World, code, world
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.matrix import PUT, Caller

from noosphere.consistency import NEVER_MS, KeySeen, NamespaceSeen, ReadSet, encode_read_set
from noosphere.server.ports.grants import Verb
from noosphere.server.security.minting import Wanted
from noosphere.v1 import admin_tokens_pb2 as tokens_pb
from noosphere.v1 import coordination_service_pb2 as locks_pb
from noosphere.v1 import fact_service_pb2 as facts_pb
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as sessions_pb
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceStub
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub
from noosphere.v1.session_service_pb2_grpc import SessionServiceStub

__all__ = ["world"]

CANARY = "xylograph-4711"
TEAM = "shared/team"

MERGES: dict[str, dict[str, Any]] = {
    "set": {"set_update": {"add": [f'"{CANARY}"']}},
    "map": {"map_update": {"set": {"field": f'"{CANARY}"'}}},
    "log": {"log_append": {"entries": [f'"{CANARY}"']}},
    "max": {"max": f'"{CANARY}"'},
    "min": {"min": f'"{CANARY}"'},
}
BLIND_MERGES: dict[str, dict[str, Any]] = {
    "set": {"set_update": {"add": ["1"]}},
    "map": {"map_update": {"set": {"other": "1"}}},
    "log": {"log_append": {"entries": ["1"]}},
    "max": {"max": '"a"'},
    "min": {"min": '"zz"'},
}
"""What changes little, so that the value shows."""


async def told(call: Awaitable[Any]) -> str:
    """Returns all that a call tells, whether it is answered or refused."""
    try:
        return f"OK\n{await call}"
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}\n{error.details()}\n{error.trailing_metadata()}"


async def merge(world: World, who: Caller, namespace: str, key: str, merge: dict[str, Any], **call: Any) -> str:
    operation = pb.MergeOperation(key=key, **merge)
    context = who.call
    context.MergeFrom(types_pb2.CallContext(**call))
    request = pb.MergeRequest(namespace=namespace, merge=operation, call=context)
    return await told(MemoryServiceStub(world.channel).Merge(request, metadata=who.metadata))


async def test_whoever_may_only_write_is_not_told_what_others_merged(world: World) -> None:
    await world.grant("alice", TEAM, "read", "write")
    await world.grant("bob", TEAM, "write")
    memory, bob = MemoryServiceStub(world.channel), world.bob
    for key, one in MERGES.items():
        assert CANARY in await merge(world, world.alice, TEAM, key, one)
    for key, one in BLIND_MERGES.items():
        again = {"request_id": types_pb2.RequestId(uuid=f"00000000-0000-4000-8000-{key.encode().hex():>012}")}
        found = [await merge(world, bob, TEAM, key, one, **again) for _ in range(2)]
        operations = [pb.Operation(merge=pb.MergeOperation(key=key, **one))]
        transact = pb.TransactRequest(namespace=TEAM, operations=operations, call=bob.call)
        found.append(await told(memory.Transact(transact, metadata=bob.metadata)))
        stream: Any = memory.Pipeline(metadata=bob.metadata)
        inside = pb.MergeRequest(namespace=TEAM, merge=operations[0].merge, call=bob.call)
        await stream.write(pb.PipelineRequest(calls=[pb.PipelineCall(id=1, merge=inside)]))
        found.append(f"OK\n{await stream.read()}")
        stream.cancel()
        assert all(text.startswith("OK") for text in found), found
        assert CANARY not in "".join(found)


async def test_a_read_set_of_the_namespace_that_is_written_needs_read_there(world: World) -> None:
    await world.grant("alice", TEAM, "read", "write")
    await world.grant("bob", TEAM, "write")
    memory = MemoryServiceStub(world.channel)
    fields: dict[str, Any] = PUT
    request = pb.PutRequest(namespace=TEAM, put=pb.PutOperation(**fields), call=world.alice.call)
    before, _ = [await memory.Put(request, metadata=world.alice.metadata) for _ in range(2)]
    seen = NamespaceSeen(before.head, {"k": KeySeen(before.head, NEVER_MS)})
    call = world.bob.call
    call.read_set_token = encode_read_set(ReadSet({TEAM: seen}))
    request = pb.PutRequest(namespace=TEAM, put=pb.PutOperation(**fields | {"key": "x"}), call=call)
    assert (await told(memory.Put(request, metadata=world.bob.metadata))).startswith("PERMISSION_DENIED")
    await world.grant("bob", TEAM, "read", "write")
    assert "alice" in await told(memory.Put(request, metadata=world.bob.metadata)), "what has changed, and who did it"


async def test_what_is_to_become_anothers_fact_is_changed_by_whoever_may_write_that_fact(world: World) -> None:
    await world.grant("alice", "facts/user/42", "write")
    session_id = await world.open(world.alice)
    namespace = f"sessions/{session_id}"
    handoff = sessions_pb.HandoffRequest(session_id=session_id, to="bob", note="go on", call=world.alice.call)
    await SessionServiceStub(world.channel).Handoff(handoff, metadata=world.alice.metadata)
    owned = {"attributes": {"owner": types_pb2.Scalar(string_value="user/42")}}
    memory = MemoryServiceStub(world.channel)

    ensure = pb.EnsureNamespaceRequest(
        namespace=namespace,
        policy=types_pb2.NamespacePolicy(conflict_policy=types_pb2.CONFLICT_POLICY_SIBLINGS),
        call=world.alice.call,
    )
    await memory.EnsureNamespace(ensure, metadata=world.alice.metadata)

    async def resolved(who: Caller) -> str:
        get = pb.GetRequest(namespace=namespace, key="notes/1", call=who.call)
        seen = (await memory.Get(get, metadata=who.metadata)).record
        assert len(seen.values) == 2
        value = types_pb2.Value(encoding=types_pb2.ENCODING_JSON, data=b'"bob says so"')
        request = pb.ResolveConflictRequest(
            namespace=namespace, key="notes/1", context=seen.context, value=value, call=who.call
        )
        return await code(memory.ResolveConflict(request, metadata=who.metadata))

    for _ in range(2):
        assert await world.put(world.alice, namespace, key="notes/1", precondition={"context": {}}, **owned) == "OK"
    assert await world.put(world.bob, namespace, key="notes/1", **owned) == "PERMISSION_DENIED"
    assert await resolved(world.bob) == "PERMISSION_DENIED"
    await world.grant("bob", "facts/user/42", "write")
    assert await resolved(world.bob) == "OK"


async def test_whoever_waits_is_refused_when_its_credential_ends(world: World) -> None:
    admin = AdminServiceStub(world.channel)
    made = await admin.CreateToken(tokens_pb.CreateTokenRequest(principal="carol"), metadata=world.root)
    metadata = bearer(made.token)
    memory = MemoryServiceStub(world.channel)
    actor = (await memory.OpenAgent(pb.OpenAgentRequest(agent_id="carol"), metadata=metadata)).actor
    carol = Caller(metadata, actor)
    for place in (TEAM, "locks/l"):
        await world.grant("carol", place, "read", "write")
        await world.grant("alice", place, "read", "write")
    wait = Duration(seconds=SECONDS_MAX)
    lock = locks_pb.AcquireLockRequest(name="l", lease=Duration(seconds=60), wait=wait, call=world.alice.call)
    locks = CoordinationServiceStub(world.channel)
    await locks.AcquireLock(lock, metadata=world.alice.metadata)
    waiting = locks_pb.AcquireLockRequest(name="l", lease=Duration(seconds=60), wait=wait, call=carol.call)
    claim = pb.ClaimNextRequest(
        namespace=TEAM, collection="tasks/", lease=Duration(seconds=30), wait=wait, call=carol.call
    )
    calls = [
        asyncio.ensure_future(told(memory.ClaimNext(claim, metadata=metadata))),
        asyncio.ensure_future(told(locks.AcquireLock(waiting, metadata=metadata))),
    ]
    # Answered after they have begun, on the same connection.
    await code(memory.Get(pb.GetRequest(namespace=TEAM, key="k", call=carol.call), metadata=metadata))
    await admin.RevokeToken(tokens_pb.RevokeTokenRequest(token_id=made.info.token_id), metadata=world.root)
    async with asyncio.timeout(SECONDS_MAX / 2):
        for text in await asyncio.gather(*calls):
            assert text.startswith("UNAUTHENTICATED"), text


async def test_an_administrator_by_a_narrowed_token_operates_no_further_than_that(tmp_path: Path) -> None:
    data = tmp_path / "data"
    reads = Wanted("root", admin=True, verbs=frozenset({Verb.READ}))
    minted = await mint_offline(data, reads, Wanted("root", admin=True, session="s"), Wanted("root", admin=True))
    async with serving(data, tokens=True) as address, open_channel(address) as channel:
        memory, facts = MemoryServiceStub(channel), FactServiceStub(channel)
        found = []
        for made in minted:
            metadata = bearer(made.text)
            actor = (
                await memory.OpenAgent(pb.OpenAgentRequest(agent_id="cli/root", takeover=True), metadata=metadata)
            ).actor
            call = types_pb2.CallContext(actor=actor)
            upkeep = facts_pb.RunFactUpkeepRequest(call=call)
            forget = facts_pb.ForgetFactsRequest(producer="someone", call=call)
            found.append(
                [
                    await code(facts.RunFactUpkeep(upkeep, metadata=metadata)),
                    await code(facts.ForgetFacts(forget, metadata=metadata)),
                ]
            )
    assert found == [["PERMISSION_DENIED"] * 2, ["PERMISSION_DENIED"] * 2, ["OK"] * 2]


async def test_a_fence_is_presented_by_whoever_may_take_the_lock(world: World) -> None:
    await world.grant("alice", TEAM, "read", "write")
    await world.grant("bob", TEAM, "write")
    await world.grant("alice", "locks/job", "write")
    locks, memory = CoordinationServiceStub(world.channel), MemoryServiceStub(world.channel)
    acquire = locks_pb.AcquireLockRequest(name="job", lease=Duration(seconds=30), call=world.alice.call)
    held = (await locks.AcquireLock(acquire, metadata=world.alice.metadata)).lock

    async def put(who: Caller, token: int) -> str:
        call, fields = types_pb2.CallContext(), dict[str, Any](PUT)
        call.CopyFrom(who.call)
        call.fences.add(lock="job", token=token)
        request = pb.PutRequest(namespace=TEAM, put=pb.PutOperation(**fields), call=call)
        return await code(memory.Put(request, metadata=who.metadata))

    assert await put(world.bob, 2**62) == "PERMISSION_DENIED"
    assert await put(world.alice, held.token) == "OK", "nobody has made it a former holder"


async def test_a_label_makes_no_session_one_that_its_writer_may_erase(world: World) -> None:
    session_id = await world.open(world.alice)
    await world.grant("bob", f"sessions/{session_id}", "read", "write")
    sessions, facts = SessionServiceStub(world.channel), FactServiceStub(world.channel)

    async def labelled(who: Caller, **labels: str) -> str:
        request = sessions_pb.UpdateSessionRequest(session_id=session_id, set_labels=labels, call=who.call)
        return await code(sessions.UpdateSession(request, metadata=who.metadata))

    assert await labelled(world.bob, note="x") == "OK"
    assert await labelled(world.bob, facts_owner="agent/bob") == "PERMISSION_DENIED"
    assert await labelled(world.alice, facts_owner="agent/bob") == "OK"
    erase = facts_pb.EraseOwnerRequest(owner="agent/bob", call=world.bob.call)
    assert await code(facts.EraseOwner(erase, metadata=world.bob.metadata)) == "OK"
    assert await world.session(world.alice, session_id) == "OK"


async def test_whoever_may_only_write_in_a_session_is_not_told_what_is_said_there(world: World) -> None:
    session_id = await world.open(world.alice, title=CANARY)
    said = sessions_pb.Message(id="m1", role=sessions_pb.ROLE_USER, parts=[sessions_pb.Part(text=CANARY)])
    sessions, ids = SessionServiceStub(world.channel), dict[str, Any](session_id=session_id)
    append = sessions_pb.AppendMessagesRequest(messages=[said], call=world.alice.call, **ids)
    await sessions.AppendMessages(append, metadata=world.alice.metadata)
    start: dict[str, Any] = ids | {"call_id": "c", "name": "grep"}
    request = sessions_pb.StartToolCallRequest(arguments=f'"{CANARY}"', call=world.alice.call, **start)
    ticket = (await sessions.StartToolCall(request, metadata=world.alice.metadata)).tool_call.ticket
    await world.grant("bob", f"sessions/{session_id}", "write")
    call = world.bob.call
    said.parts[0].text = "what was it?"
    asked: tuple[tuple[Any, Any], ...] = (
        (sessions.BeginTurn, sessions_pb.BeginTurnRequest(call=call, **ids)),
        (sessions.AppendMessages, sessions_pb.AppendMessagesRequest(messages=[said], call=call, **ids)),
        (sessions.StartToolCall, sessions_pb.StartToolCallRequest(arguments="{}", call=call, **start)),
        (sessions.FinishToolCall, sessions_pb.FinishToolCallRequest(ticket=ticket, failure="x", call=call)),
        (sessions.UpdateSession, sessions_pb.UpdateSessionRequest(set_labels={"a": "b"}, call=call, **ids)),
        (sessions.CloseSession, sessions_pb.CloseSessionRequest(call=call, **ids)),
    )
    found = [await told(stub(request, metadata=world.bob.metadata)) for stub, request in asked]
    assert [text.partition("\n")[0] for text in found] == ["OK", *["PERMISSION_DENIED"] * 5]
    assert CANARY not in "".join(found)
