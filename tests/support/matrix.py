"""A request for every rpc, about something that is there or something that never was, in anybody's name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from tests.support.statuses import refused

from noosphere.consistency import NEVER_MS, KeySeen, NamespaceSeen, ReadSet, encode_read_set
from noosphere.server.rpc.faces import SERVICES
from noosphere.server.sessions.tickets import Ticket
from noosphere.v1 import memory_service_pb2, types_pb2

SECONDS_MAX = 30
_DIGITS = "0123456789abcdef01234567"
_SLOT = "0000000000000005-0000"


@dataclass(frozen=True)
class Target:
    """What a request is about.

    Attributes:
        agent: whose private namespace and scope; a session, a lock and a group have names that end in its name.
        session: the session's id.
        ticket: of a tool call in the session.
        fact: a fact's id.
        candidate: a candidate's id.
        job: an extraction's id.
        actor: the agent's incarnation.
    """

    agent: str
    session: str
    ticket: str
    fact: str
    candidate: str
    job: str
    actor: types_pb2.Actor

    @classmethod
    def that_never_was(cls, agent: str) -> Target:
        """Returns one of whose parts nothing is there."""
        session, scope = f"s-{agent}", f"agent/{agent}"
        return cls(
            agent,
            session,
            str(Ticket(session, _SLOT, 1)),
            f"{scope}#{_DIGITS}",
            f"{scope}#c{_DIGITS}",
            f"{scope}#j{_DIGITS}",
            types_pb2.Actor(agent_id=agent, incarnation=1_000_000),
        )

    @property
    def namespace(self) -> str:
        """The private namespace."""
        return f"agents/{self.agent}"

    @property
    def scope(self) -> str:
        """The scope of facts."""
        return f"agent/{self.agent}"

    def named(self, text: str) -> str:
        """Returns a text without the names of what it is about: what is left must not depend on them."""
        for name in (self.fact, self.candidate, self.job, self.ticket, self.session, self.agent):
            text = text.replace(name, "<name>")
        return text


class Caller(NamedTuple):
    """Who calls: metadata with a credential, and an incarnation."""

    metadata: tuple[tuple[str, str], ...]
    actor: types_pb2.Actor

    @property
    def call(self) -> types_pb2.CallContext:
        """What a call says of who calls."""
        return types_pb2.CallContext(actor=self.actor)

    def reading(self, namespace: str) -> types_pb2.CallContext:
        """What a call says that presents what was seen of a namespace."""
        token = encode_read_set(ReadSet({namespace: NamespaceSeen(0, {"k": KeySeen(1, NEVER_MS)})}))
        return types_pb2.CallContext(actor=self.actor, read_set_token=token)


Make = Callable[[Target, Caller], Mapping[str, Any]]

PUT = {"key": "k", "value": {"encoding": types_pb2.ENCODING_JSON, "data": b"1"}, "precondition": {"blind": True}}


def _space(**fields: Any) -> Make:
    return lambda t, c: {"namespace": t.namespace, "call": c.call, **fields}


def _session(**fields: Any) -> Make:
    return lambda t, c: {"session_id": t.session, "call": c.call, **fields}


def _ticket(**fields: Any) -> Make:
    return lambda t, c: {"ticket": t.ticket, "call": c.call, **fields}


def _scope(**fields: Any) -> Make:
    return lambda t, c: {"scope": t.scope, "call": c.call, **fields}


def _lock(**fields: Any) -> Make:
    return lambda t, c: {"name": f"l-{t.agent}", "call": c.call, **fields}


def _group(**fields: Any) -> Make:
    return lambda t, c: {"group": f"g-{t.agent}", "call": c.call, **fields}


def _fact(**fields: Any) -> Make:
    return lambda t, c: {"fact_id": t.fact, "call": c.call, **fields}


def _nothing(**fields: Any) -> Make:
    return lambda t, c: fields


def _candidate(t: Target, c: Caller) -> Mapping[str, Any]:
    one = {"owner": t.scope, "text": f"{t.agent} prefers tea", "subject": t.agent, "predicate": "prefers"}
    return {"candidates": [one], "call": c.call}


REQUESTS: Mapping[str, Mapping[str, Make]] = {
    "MemoryService": {
        "Get": _space(key="k"),
        "BatchGet": _space(keys=["k"]),
        "List": _space(),
        "ListHistory": _space(key="k"),
        "Put": _space(put=PUT),
        "Delete": _space(delete={"key": "k", "precondition": {"blind": True}}),
        "Merge": _space(merge={"key": "n", "counter_add": {"delta": 1}}),
        "Transact": _space(operations=[{"put": PUT}, {"delete": {"key": "x", "precondition": {"blind": True}}}]),
        "Commit": lambda t, c: {
            "namespace": t.namespace,
            "operations": [{"put": PUT}],
            "call": c.reading(t.namespace),
        },
        "RefreshReadSet": lambda t, c: {"call": c.reading(t.namespace)},
        "Reserve": _space(key="k", lease={"seconds": 5}),
        "CancelReservation": _space(key="k", fence=1),
        "ListConflicts": _space(),
        "ResolveConflict": _space(key="k", context={"prefix": 1}, delete=True),
        "Pipeline": lambda t, c: {"calls": [{"id": 1, "get": {"namespace": t.namespace, "key": "k", "call": c.call}}]},
        "Watch": _space(snapshot=True),
        "ClaimNext": _space(collection="tasks/", lease={"seconds": 5}),
        "Renew": _space(key="k", fence=1, lease={"seconds": 5}),
        "Release": _space(key="k", fence=1),
        "Complete": _space(key="k", fence=1),
        "OpenAgent": lambda t, c: {"agent_id": t.agent},
        "KeepAgent": lambda t, c: {"actor": t.actor},
        "CloseAgent": lambda t, c: {"actor": t.actor},
        "EnsureNamespace": _space(),
        "GetServerInfo": _nothing(),
    },
    "SessionService": {
        "OpenSession": _session(allow_existing=True),
        "GetSession": _session(),
        "ListSessions": lambda t, c: {"call": c.call},
        "UpdateSession": _session(title="new"),
        "CloseSession": _session(),
        "PurgeSession": _session(),
        "ForkSession": _session(),
        "AppendMessages": _session(messages=[{"role": 1, "parts": [{"text": "hello"}]}]),
        "ListMessages": _session(),
        "RetractMessage": _session(message_id="m1"),
        "BeginTurn": _session(),
        "EndTurn": _session(turn=1),
        "GetControl": _session(),
        "SetControl": _session(control={"next_node": "n"}),
        "StartToolCall": lambda t, c: {
            "session_id": t.session,
            "call_id": f"call-{c.actor.agent_id}",
            "name": "grep",
            "arguments": "{}",
            "call": c.call,
        },
        "FinishToolCall": _ticket(result={"encoding": types_pb2.ENCODING_JSON, "data": b'"found"'}),
        "UploadToolResult": _ticket(data=b"found"),
        "ReviewToolCall": _ticket(apply=True),
        "GetToolCall": _ticket(),
        "ListToolCalls": _session(),
        "ReadToolResult": _ticket(),
        "CreateCheckpoint": _session(name="c"),
        "ListCheckpoints": _session(),
        "RestoreCheckpoint": _session(checkpoint_id=_SLOT),
        "SummarizeSession": _session(),
        "Handoff": lambda t, c: {"session_id": t.session, "to": t.agent, "note": "go on", "call": c.call},
        "RunTransitions": _session(dry_run=True),
        "ListTransitions": _session(),
        "GetSessionHealth": _session(),
    },
    "ContextService": {
        "AssembleContext": _session(input="what now", budget={"tokens": 2000}),
        "PlanContext": lambda t, c: {
            "context": {"session_id": t.session, "input": "what now", "budget": {"tokens": 2000}, "call": c.call}
        },
        "ReportUsage": _session(context_id="0" * 26),
        "ExplainContext": _session(context_id="0" * 26),
    },
    "FactService": {
        "SubmitCandidates": _candidate,
        "GetCandidate": lambda t, c: {"candidate_id": t.candidate, "call": c.call},
        "ListCandidates": _scope(),
        "WatchCandidates": _scope(),
        "ReviewCandidate": lambda t, c: {"candidate_id": t.candidate, "call": c.call},
        "SearchFacts": lambda t, c: {"query": "tea", "owners": [t.scope], "scopes": [t.scope], "call": c.call},
        "GetFact": _fact(),
        "ListFacts": _scope(),
        "ListFactHistory": _fact(),
        "ForgetFacts": _fact(dry_run=True),
        "ExplainFact": _fact(),
        "EraseOwner": lambda t, c: {"owner": t.scope, "call": c.call},
        "ExtractFacts": lambda t, c: {
            "document": {"id": "d", "text": "Tea is warm."},
            "owner": t.scope,
            "call": c.call,
        },
        "GetExtractionJob": lambda t, c: {"job_id": t.job, "call": c.call},
        "RunFactUpkeep": _scope(dry_run=True),
        "GetFactUpkeep": _scope(),
        "SetFactPolicy": _scope(policy={}),
        "GetFactPolicy": _scope(),
    },
    "CoordinationService": {
        "AcquireLock": _lock(lease={"seconds": 5}),
        "RenewLock": _lock(token=1),
        "ReleaseLock": _lock(token=1),
        "GetLock": _lock(),
        "ListLocks": lambda t, c: {"prefix": f"l-{t.agent}", "call": c.call},
        "JoinGroup": _group(lease={"seconds": 5}),
        "KeepMember": _group(number=1),
        "LeaveGroup": _group(number=1),
        "ListMembers": _group(),
        "WatchMembers": _group(),
    },
    "AdminService": {
        "ListNamespaces": lambda t, c: {"prefix": t.namespace},
        "GetNamespace": lambda t, c: {"namespace": t.namespace},
        "DeleteNamespace": lambda t, c: {"namespace": t.namespace},
        "SetPolicy": lambda t, c: {"pattern": {"exact": t.namespace}, "policy": {}},
        "ListPolicies": _nothing(),
        "SetGrant": lambda t, c: {
            "grant": {"principal": {"exact": "nobody"}, "resource": {"exact": t.namespace}, "verbs": ["read"]}
        },
        "ListGrants": _nothing(),
        "CheckGrant": lambda t, c: {"principal": "nobody", "resource": t.namespace, "verb": "read"},
        "GetStats": _nothing(),
        "ListEpochs": _nothing(),
        "ListServers": _nothing(),
        "GetOverview": _nothing(),
        "GetUsage": _nothing(by=1, top=5),
        "SetLimits": lambda t, c: {
            "rule": {"subject": 1, "pattern": {"exact": t.agent}, "limits": {"calls_per_second": 1_000}}
        },
        "ListLimits": _nothing(),
        "GetLimits": lambda t, c: {"subject": 1, "name": t.agent},
        "CreateToken": lambda t, c: {"principal": t.agent, "ttl": {"seconds": 60}},
        "CreateScopedToken": lambda t, c: {"verbs": ["read"], "ttl": {"seconds": 60}},
        "ListTokens": _nothing(),
        "RevokeToken": _nothing(token_id="0" * 16),
        "Dump": _nothing(),
        # An agent of nobody's: the others still have to call.
        "GetAgent": lambda t, c: {"agent_id": f"fenced/{t.agent}"},
        "FenceAgent": lambda t, c: {"agent_id": f"fenced/{t.agent}", "call": c.call},
        "UnfenceAgent": lambda t, c: {"agent_id": f"fenced/{t.agent}", "call": c.call},
        "RevertAgent": lambda t, c: {
            "agent_id": f"fenced/{t.agent}",
            "namespace": t.namespace,
            "since_revision": 1,
            "dry_run": True,
            "call": c.call,
        },
    },
}
"""How each rpc is called. One that is missing fails the matrix."""

LATE = ("CloseAgent", "CloseSession", "PurgeSession", "DeleteNamespace", "EraseOwner")
"""After these there is less to call."""


def methods() -> list[MethodDescriptor]:
    """Returns every rpc of ours, by the services' descriptors; those that take something away last."""
    pool = descriptor_pool.Default()
    found = [method for name in SERVICES for method in pool.FindServiceByName(name).methods]
    return sorted(found, key=lambda method: LATE.index(method.name) if method.name in LATE else -1)


def request_of(method: MethodDescriptor, target: Target, caller: Caller) -> Message:
    """Returns the request of a call."""
    make = REQUESTS[method.containing_service.name][method.name]
    made: Message = GetMessageClass(method.input_type)(**make(target, caller))
    return made


class Outcome(NamedTuple):
    """How a call has ended: its status, reason and words, or with its (first) answer."""

    code: str
    reason: str = ""
    text: str = ""
    answer: Message | None = None

    @property
    def let_in(self) -> bool:
        """Whether the caller was let in, however the call ended then."""
        return self.code not in ("PERMISSION_DENIED", "UNAUTHENTICATED")


async def send(channel: grpc.aio.Channel, method: MethodDescriptor, target: Target, caller: Caller) -> Outcome:
    """Makes a call, and takes its first answer."""
    request = request_of(method, target, caller)
    streams = "stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary"
    opened: Any = getattr(channel, "_".join(streams))(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    sent = _Only(request, and_wait=method.server_streaming) if method.client_streaming else request
    made = opened(sent, timeout=SECONDS_MAX, metadata=caller.metadata)
    try:
        answer = await (anext(aiter(made), None) if method.server_streaming else made)
    except grpc.aio.AioRpcError as error:
        return _failed(error.code(), error.details(), error.trailing_metadata())
    finally:
        made.cancel()
    if isinstance(answer, memory_service_pb2.PipelineResponse) and answer.replies[0].WhichOneof("response") == "status":
        inside = status_pb2.Status.FromString(answer.replies[0].status)
        code = next(code for code in grpc.StatusCode if code.value[0] == inside.code)
        return Outcome(code.name, "", inside.message)
    return Outcome("OK", answer=answer)


class _Only:
    """A stream of one request, which stays open where its caller waits for answers."""

    def __init__(self, request: Message, *, and_wait: bool) -> None:
        self._left: Message | None = request
        self._waits = and_wait

    def __aiter__(self) -> _Only:
        return self

    async def __anext__(self) -> Message:
        request, self._left = self._left, None
        if request is not None:
            return request
        if self._waits:
            # A Pipeline whose caller has no more to say ends before it answers.
            await asyncio.Event().wait()
        raise StopAsyncIteration


def _failed(code: grpc.StatusCode, details: str | None, trailing: Any) -> Outcome:
    found = refused(code, details, trailing)
    return Outcome(code.name, str(found.reason), details or "")


def shown(answer: Message | None) -> str:
    """Returns what an answer says, as text in which names can be looked for."""
    return "" if answer is None else json.dumps(str(answer), ensure_ascii=False)
