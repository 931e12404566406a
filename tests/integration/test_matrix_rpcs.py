"""Every rpc, called by everybody: exactly those are let in who may, and nobody else learns what there is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from tests.support.closed import bearer, open_channel, serving
from tests.support.issuer import AUDIENCE, ISSUER, claims, crafted, jwk, key_set, signed, signed_with_the_public_key
from tests.support.matrix import PUT, REQUESTS, Caller, Outcome, Target, methods, send, shown

from noosphere.v1 import admin_grants_pb2 as grants_pb
from noosphere.v1 import fact_service_pb2 as facts_pb
from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as sessions_pb
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub
from noosphere.v1.session_service_pb2_grpc import SessionServiceStub

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNERS = ("olga", "olaf", "odin", "oda")
"""Each has the same: one calls, of one whoever was granted that, of one an administrator, of one who may not."""

PLAIN = frozenset({"read", "write", "delete", "watch", "resolve", "admin"})

ADMINISTRATORS = frozenset({
    "SetPolicy", "ListPolicies", "GetStats", "ListEpochs", "ListServers", "GetUsage", "GetOverview", "SetGrant",
    "ListGrants", "CheckGrant", "GetAgent", "FenceAgent", "UnfenceAgent", "RevertAgent",
    "CreateToken", "ListTokens", "RevokeToken", "Dump", "ReviewCandidate",
    "SetLimits", "ListLimits", "GetLimits",
})  # fmt: skip
"""For administrators only."""

GRANTED = frozenset({"ListNamespaces", "GetNamespace", "DeleteNamespace"})
"""For administrators, and those to whom that was granted: nobody does it in the name of an agent."""

OWNERS_ONLY = frozenset({"EraseOwner"})
"""For administrators, and whoever it is about."""

ANYBODY = frozenset({"GetServerInfo", "ListSessions", "CreateScopedToken"})
"""For whoever has a credential."""

TELLS = {"OpenSession": "names of sessions belong to whoever comes first, so opening a name tells that it is free"}
"""Calls of those who have nothing to do with it that differ by whether it is there, and why."""


class World(NamedTuple):
    """A server, and everybody who calls it."""

    channel: grpc.aio.Channel
    callers: dict[str, Caller]
    targets: dict[str, Target]


def now() -> float:
    return time.time()


def pattern(text: str) -> types_pb2.NamePattern:
    return types_pb2.NamePattern(prefix=text[:-1]) if text.endswith("*") else types_pb2.NamePattern(exact=text)


async def opened(channel: grpc.aio.Channel, agent_id: str, metadata: Any) -> Caller:
    request = memory_pb.OpenAgentRequest(agent_id=agent_id)
    actor = (await MemoryServiceStub(channel).OpenAgent(request, metadata=metadata)).actor
    return Caller(metadata, actor)


async def made(channel: grpc.aio.Channel, caller: Caller) -> Target:
    """Returns what an owner has: records, a session with a tool call, a fact."""
    agent = caller.actor.agent_id
    to: dict[str, Any] = {"metadata": caller.metadata}
    memory, sessions, facts = MemoryServiceStub(channel), SessionServiceStub(channel), FactServiceStub(channel)
    for key in ("k", "tasks/1"):
        fields: dict[str, Any] = PUT | {"key": key}
        put = memory_pb.PutOperation(**fields)
        await memory.Put(memory_pb.PutRequest(namespace=f"agents/{agent}", put=put, call=caller.call), **to)
    session = f"s-{agent}"
    await sessions.OpenSession(sessions_pb.OpenSessionRequest(session_id=session, call=caller.call), **to)
    started = await sessions.StartToolCall(
        sessions_pb.StartToolCallRequest(
            session_id=session, call_id="c", name="grep", arguments="{}", call=caller.call
        ),
        **to,
    )
    scope = f"agent/{agent}"
    policy = facts_pb.FactPolicy(trust_min=0, importance_min=0, confidence_min=0)
    await facts.SetFactPolicy(facts_pb.SetFactPolicyRequest(scope=scope, policy=policy, call=caller.call), **to)
    candidate = facts_pb.Candidate(owner=scope, text=f"{agent} likes mate", pinned=True)
    submitted = await facts.SubmitCandidates(
        facts_pb.SubmitCandidatesRequest(candidates=[candidate], wait=True, call=caller.call), **to
    )
    document = facts_pb.SourceDocument(id="d", text="Mate is hot.")
    extracted = await facts.ExtractFacts(
        facts_pb.ExtractFactsRequest(document=document, owner=scope, call=caller.call), **to
    )
    fact = submitted.decisions[0].fact_id
    assert fact, submitted
    return Target(
        agent, session, started.tool_call.ticket, fact, submitted.candidate_ids[0], extracted.job.id, caller.actor
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    data: Path = tmp_path_factory.mktemp("matrix") / "data"
    names = (*OWNERS, "greta", "otto", "ugo")
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_bytes(key_set(jwk("RS256", "k")))
    settings = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": str(keys), "jwt_admins": "root"}
    async with serving(data, tokens=True, **settings) as address, open_channel(address) as channel:
        admin = AdminServiceStub(channel)
        root = bearer(signed(claims(now(), sub="root")))

        async def grant(to: str, verbs: frozenset[str], *resources: str) -> None:
            for resource in resources:
                made = grants_pb.Grant(principal=pattern(to), resource=pattern(resource), verbs=sorted(verbs))
                await admin.SetGrant(grants_pb.SetGrantRequest(grant=made), metadata=root)

        for owner in OWNERS:
            await grant(owner, PLAIN, f"locks/l-{owner}*", f"groups/g-{owner}")
        await grant("greta", PLAIN | {"act"}, "agents/olaf*")
        await grant(
            "greta", PLAIN, "sessions/s-olaf", "facts/agent/olaf", "facts/agent/greta", "locks/l-olaf*", "groups/g-olaf"
        )
        # What is nearly what they ask for.
        for owner in (*OWNERS, "nobody"):
            beside = ("agents/{}x", "agents/{}/x", "sessions/s-{}x", "facts/agent/{}x", "locks/l-{}x", "groups/g-{}x")
            await grant("ugo", PLAIN, *(place.format(owner) for place in beside))
        callers = {name: await opened(channel, name, bearer(signed(claims(now(), sub=name)))) for name in names}
        callers["root"] = await opened(channel, "cli/root", root)
        targets = {owner: await made(channel, callers[owner]) for owner in OWNERS}
        yield World(channel, callers, targets)


async def all_of(
    world: World, target: Target, caller: Caller, only: Callable[[MethodDescriptor], bool] = lambda _: True
) -> dict[str, Outcome]:
    # One that cannot be called yet fails a test of its own.
    called = [method for method in methods() if method.name in REQUESTS[method.containing_service.name]]
    return {method.name: await send(world.channel, method, target, caller) for method in called if only(method)}


async def test_every_rpc_is_called() -> None:
    named = {(service, name) for service, rpcs in REQUESTS.items() for name in rpcs}
    assert {(method.containing_service.name, method.name) for method in methods()} == named


def forged(what: str) -> Any:
    """Returns metadata of an owner's that prove nothing."""
    mine = claims(now(), sub="oda")
    match what:
        case "no identity":
            return ()
        case "another scheme":
            return (("authorization", "Basic b2RhOm9kYQ=="),)
        case "unknown token":
            return bearer("noo_0123456789abcdef_" + "0" * 64)
        case "expired":
            return bearer(signed(mine | {"iat": now() - 900, "exp": now() - 600}))
        case "wrong audience":
            return bearer(signed(mine | {"aud": "elsewhere"}))
        case "wrong issuer":
            return bearer(signed(mine | {"iss": "https://evil.example"}))
        case "alg none":
            return bearer(crafted({"alg": "none", "kid": "k"}, mine))
        case "swapped key":
            return bearer(signed(mine, number=1))
        case _:
            return bearer(signed_with_the_public_key(mine))


FORGED = (
    "no identity", "another scheme", "unknown token", "expired", "wrong audience", "wrong issuer", "alg none",
    "swapped key", "public key as secret",
)  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
async def test_whoever_proves_nothing_is_let_in_nowhere(world: World, what: str) -> None:
    caller = Caller(forged(what), world.callers["oda"].actor)
    for name, outcome in (await all_of(world, world.targets["oda"], caller)).items():
        assert outcome.code == "UNAUTHENTICATED", (name, outcome)


@pytest.mark.parametrize("who", ["otto", "ugo"])
async def test_others_are_denied_and_learn_nothing(world: World, who: str) -> None:
    caller, there, nowhere = world.callers[who], world.targets["oda"], Target.that_never_was("nobody")
    found = await all_of(world, there, caller)
    missed = await all_of(world, nowhere, caller, lambda method: method.name not in TELLS)
    for name, outcome in found.items():
        assert outcome.let_in is (name in ANYBODY), (name, outcome)
        assert there.session not in shown(outcome.answer), name
        if name in TELLS:
            continue
        one, other = outcome._replace(answer=None), missed[name]._replace(answer=None)
        assert one._replace(text=there.named(one.text)) == other._replace(text=nowhere.named(other.text)), name


async def test_owners_are_let_in_to_what_is_theirs(world: World) -> None:
    found = await all_of(world, world.targets["olga"], world.callers["olga"])
    denied = {name for name, outcome in found.items() if not outcome.let_in}
    assert denied == ADMINISTRATORS | GRANTED, {name: found[name] for name in denied ^ (ADMINISTRATORS | GRANTED)}


async def test_what_is_granted_is_let_in(world: World) -> None:
    found = await all_of(world, world.targets["olaf"], world.callers["greta"])
    denied = {name for name, outcome in found.items() if not outcome.let_in}
    wanted = ADMINISTRATORS | OWNERS_ONLY
    assert denied == wanted, {name: found[name] for name in denied ^ wanted}


async def test_administrators_are_let_in_everywhere(world: World) -> None:
    found = await all_of(world, world.targets["odin"], world.callers["root"])
    denied = {name: outcome for name, outcome in found.items() if not outcome.let_in}
    assert not denied
    worked = [name for name, outcome in found.items() if outcome.code == "OK"]
    assert len(worked) > 70, sorted(set(found) - set(worked))
