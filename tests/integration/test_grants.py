"""Grants in force: at once, on streams that go on, in the name of others, and on whatever names hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.matrix import PUT, Caller

from noosphere.consistency import NamePattern
from noosphere.server.ports.grants import Verb
from noosphere.server.security.minting import Wanted
from noosphere.v1 import admin_grants_pb2 as grants_pb
from noosphere.v1 import context_service_pb2 as contexts_pb
from noosphere.v1 import fact_service_pb2 as facts_pb
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as sessions_pb
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.context_service_pb2_grpc import ContextServiceStub
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub
from noosphere.v1.session_service_pb2_grpc import SessionServiceStub

SECONDS_MAX = 30

STRANGE = ("a_b", "a%b", "a*b", "a-b", "a|b", "a:b", "a{b}", "a..b", "..", "مرحبا", "שלום", "日本語", "a b", "é́", "🦉")


class World(NamedTuple):
    """A server that asks who calls, and whoever calls it."""

    channel: grpc.aio.Channel
    alice: Caller
    bob: Caller
    narrow: Caller
    root: Any

    async def grant(self, to: str, resource: str, *verbs: str) -> None:
        """Grants; a resource or principal that ends in * is a prefix."""
        grant = grants_pb.Grant(principal=pattern(to), resource=pattern(resource), verbs=verbs)
        await AdminServiceStub(self.channel).SetGrant(grants_pb.SetGrantRequest(grant=grant), metadata=self.root)

    async def put(self, who: Caller, namespace: str, **fields: Any) -> str:
        """Writes; returns the code."""
        operation: dict[str, Any] = PUT | fields
        put = pb.PutOperation(**operation)
        request = pb.PutRequest(namespace=namespace, put=put, call=who.call)
        return await code(MemoryServiceStub(self.channel).Put(request, metadata=who.metadata))

    async def get(self, who: Caller, namespace: str) -> str:
        """Reads; returns the code."""
        request = pb.GetRequest(namespace=namespace, key="k", call=who.call)
        return await code(MemoryServiceStub(self.channel).Get(request, metadata=who.metadata))

    async def open(self, who: Caller, session_id: str = "", **fields: Any) -> str:
        """Opens a session; returns its id."""
        request = sessions_pb.OpenSessionRequest(session_id=session_id, call=who.call, **fields)
        reply = await SessionServiceStub(self.channel).OpenSession(request, metadata=who.metadata)
        found: str = reply.session.id
        return found

    async def session(self, who: Caller, session_id: str) -> str:
        """Reads a session; returns the code."""
        request = sessions_pb.GetSessionRequest(session_id=session_id, call=who.call)
        return await code(SessionServiceStub(self.channel).GetSession(request, metadata=who.metadata))


def pattern(text: str) -> types_pb2.NamePattern:
    return types_pb2.NamePattern(prefix=text[:-1]) if text.endswith("*") else types_pb2.NamePattern(exact=text)


async def code(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def drained(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    data = tmp_path / "data"
    reader = Wanted(
        "alice",
        agents=(NamePattern("agents/alice/reader", True),),
        owners=("user/42",),
        verbs=frozenset({Verb.READ}),
    )
    minted = await mint_offline(data, Wanted("alice"), Wanted("bob"), reader, Wanted("root", admin=True))
    alice, bob, narrow, root = (bearer(made.text) for made in minted)
    async with serving(data, tokens=True) as address, open_channel(address) as channel:

        async def opened(agent_id: str, metadata: Any) -> Caller:
            request = pb.OpenAgentRequest(agent_id=agent_id)
            reply = await MemoryServiceStub(channel).OpenAgent(request, metadata=metadata)
            return Caller(metadata, reply.actor)

        yield World(
            channel, await opened("alice", alice), await opened("bob", bob), await opened("alice/reader", narrow), root
        )


async def test_a_grant_is_in_force_at_once_for_the_verbs_that_it_names(world: World) -> None:
    assert await world.put(world.alice, "shared/team") == "PERMISSION_DENIED"
    await world.grant("alice", "shared/team", "write")
    assert await world.put(world.alice, "shared/team") == "OK"
    assert await world.get(world.alice, "shared/team") == "PERMISSION_DENIED"
    assert await world.put(world.bob, "shared/team") == "PERMISSION_DENIED"
    await world.grant("*", "shared/*", "read")
    assert await world.get(world.bob, "shared/team") == "OK"
    await world.grant("alice", "shared/team")
    assert await world.put(world.alice, "shared/team") == "PERMISSION_DENIED"


async def test_a_stream_ends_when_its_grant_is_taken_back(world: World) -> None:
    await world.grant("bob", "agents/alice", "watch")
    await world.grant("bob", "shared/other", "watch")
    memory = MemoryServiceStub(world.channel)
    request = pb.WatchRequest(namespace="agents/alice", call=world.bob.call)
    watch: Any = memory.Watch(request, metadata=world.bob.metadata, timeout=SECONDS_MAX)
    other: Any = memory.Watch(
        pb.WatchRequest(namespace="shared/other", call=world.bob.call), metadata=world.bob.metadata, timeout=SECONDS_MAX
    )
    for stream in (watch, other):
        await stream.read()
    await world.grant("bob", "agents/alice", "read")
    assert await code(drained(watch)) == "PERMISSION_DENIED"
    assert not other.done()
    other.cancel()


async def test_a_grant_of_act_lets_a_principal_call_in_the_name_of_an_agent(world: World) -> None:
    request = pb.OpenAgentRequest(agent_id="worker/1")
    memory = MemoryServiceStub(world.channel)
    assert await code(memory.OpenAgent(request, metadata=world.bob.metadata)) == "PERMISSION_DENIED"
    await world.grant("bob", "agents/worker/*", "act")
    actor = (await memory.OpenAgent(request, metadata=world.bob.metadata)).actor
    worker = Caller(world.bob.metadata, actor)
    assert await world.put(worker, "agents/worker/1") == "OK"
    assert await world.put(world.bob, "agents/worker/1") == "PERMISSION_DENIED", "it acts as itself here"
    assert await world.get(Caller(world.alice.metadata, actor), "agents/worker/1") == "PERMISSION_DENIED"


async def test_a_session_is_for_those_who_opened_it_and_those_it_was_handed_to(world: World) -> None:
    session_id = await world.open(world.alice)
    assert await world.session(world.bob, session_id) == "PERMISSION_DENIED"
    assert await world.get(world.bob, f"sessions/{session_id}") == "PERMISSION_DENIED"
    assert await world.session(world.narrow, session_id) == "OK", "an agent below the one that opened it"
    handoff = sessions_pb.HandoffRequest(session_id=session_id, to="bob", note="go on", call=world.alice.call)
    await SessionServiceStub(world.channel).Handoff(handoff, metadata=world.alice.metadata)
    assert await world.session(world.bob, session_id) == "OK"
    assert await world.put(world.bob, f"sessions/{session_id}") == "OK"
    for who, listed in ((world.alice, [session_id]), (world.bob, [session_id])):
        request = sessions_pb.ListSessionsRequest(call=who.call)
        reply = await SessionServiceStub(world.channel).ListSessions(request, metadata=who.metadata)
        assert [session.id for session in reply.sessions] == listed
    of_bob = await world.open(world.bob)
    assert await world.session(world.alice, of_bob) == "PERMISSION_DENIED"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.open(world.alice, of_bob, allow_existing=True)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "bob" not in (refused.value.details() or "").replace(of_bob, "")


async def test_a_narrowed_credential_does_less(world: World) -> None:
    assert await world.put(world.narrow, "agents/alice/reader") == "PERMISSION_DENIED"
    assert await world.get(world.narrow, "agents/alice/reader") == "OK"
    await world.grant("alice", "shared/team", "read", "write")
    assert await world.get(world.narrow, "shared/team") == "OK"
    assert await world.put(world.narrow, "shared/team") == "PERMISSION_DENIED"


async def test_facts_of_users_are_for_credentials_and_grants(world: World) -> None:
    facts = FactServiceStub(world.channel)

    async def search(who: Caller, scope: str) -> str:
        request = facts_pb.SearchFactsRequest(query="tea", owners=[scope], call=who.call)
        return await code(facts.SearchFacts(request, metadata=who.metadata))

    assert await search(world.narrow, "user/42") == "OK"
    assert await search(world.narrow, "user/43") == "PERMISSION_DENIED"
    assert await search(world.alice, "user/42") == "PERMISSION_DENIED", "another credential of the same principal"
    await world.grant("alice", "facts/user/4*", "read")
    assert await search(world.alice, "user/43") == "OK"
    assert await search(world.bob, "user/43") == "PERMISSION_DENIED"
    assert await search(world.bob, "agent/bob") == "OK"
    assert await search(world.bob, "agent/alice") == "PERMISSION_DENIED"


async def test_nobody_gets_at_anothers_facts_by_way_of_sessions(world: World) -> None:
    session_id = await world.open(world.bob, labels={"facts_owner": "user/42"})
    contexts = ContextServiceStub(world.channel)
    request = contexts_pb.AssembleContextRequest(session_id=session_id, input="tea?", call=world.bob.call)
    assert await code(contexts.AssembleContext(request, metadata=world.bob.metadata)) == "OK"
    request.fact_owners.append("user/42")
    assert await code(contexts.AssembleContext(request, metadata=world.bob.metadata)) == "PERMISSION_DENIED"
    item = {"key": "notes/1", "attributes": {"owner": types_pb2.Scalar(string_value="user/42")}}
    assert await world.put(world.bob, f"sessions/{session_id}", **item) == "PERMISSION_DENIED"
    await world.grant("bob", "facts/user/42", "write")
    assert await world.put(world.bob, f"sessions/{session_id}", **item) == "OK"


async def test_what_others_saw_is_no_evidence_for_whoever_may_not_see_it(world: World) -> None:
    session_id = await world.open(world.alice)
    said = sessions_pb.Message(id="m1", role=sessions_pb.ROLE_USER, parts=[sessions_pb.Part(text="The code is 4711.")])
    append = sessions_pb.AppendMessagesRequest(session_id=session_id, messages=[said], call=world.alice.call)
    await SessionServiceStub(world.channel).AppendMessages(append, metadata=world.alice.metadata)
    facts = FactServiceStub(world.channel)
    found = []
    for who in (world.alice, world.bob):
        owner = f"agent/{who.actor.agent_id}"
        evidence = [facts_pb.FactEvidence(reference=f"msg:{session_id}/m1")]
        candidate = facts_pb.Candidate(owner=owner, text="The code is 4711.", evidence=evidence)
        submit = facts_pb.SubmitCandidatesRequest(candidates=[candidate], wait=True, call=who.call)
        (candidate_id,) = (await facts.SubmitCandidates(submit, metadata=who.metadata)).candidate_ids
        request = facts_pb.GetCandidateRequest(candidate_id=candidate_id, call=who.call)
        kept = (await facts.GetCandidate(request, metadata=who.metadata)).candidate
        found.append((kept.trust, kept.evidence[0].content_hash != b""))
    assert found[0][0] > found[1][0], found
    assert [hashed for _, hashed in found] == [True, False]


@pytest.mark.parametrize("name", STRANGE)
async def test_names_are_data(world: World, name: str) -> None:
    await world.grant("alice", f"shared/{name}", "read", "write")
    await world.grant("bob", f"shared/{name}/*", "read", "write")
    assert await world.put(world.alice, f"shared/{name}") == "OK"
    assert await world.put(world.alice, f"shared/{name}/x") == "PERMISSION_DENIED"
    assert await world.put(world.bob, f"shared/{name}/x") == "OK"
    for other in {*STRANGE, "ab", "axb", "a"} - {name}:
        assert await world.get(world.alice, f"shared/{other}") == "PERMISSION_DENIED"
        assert await world.get(world.bob, f"shared/{other}/x") == "PERMISSION_DENIED"
    for bad in (f"shared/{name}\0", f"shared//{name}", f"shared/{name}/", "\0"):
        assert await world.get(world.alice, bad) in ("PERMISSION_DENIED", "INVALID_ARGUMENT")
