"""The step that notes calls: which of them, and nothing of theirs that is not a name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.server.auditing import services
from noosphere.server.rpc.gate import Rpc
from noosphere.server.rpc.steps.audit import AuditStep
from noosphere.server.rpc.steps.audited import audited, kind_of
from noosphere.server.security import Principal, calling
from noosphere.server.security.audit import AuditLog, Entry, line_of
from noosphere.v1 import memory_service_pb2 as pb

METHODS = [method for service in services() for method in service.methods]
NAMES = frozenset(
    {"namespace", "prefix", "key", "keys", "collection", "session_id", "agent_id", "group", "scope", "name", "pattern"}
    | {"owner", "owners", "fact_owners", "fact_id", "candidate_id", "job_id", "call_id", "checkpoint_id", "message_id"}
    | {"ticket", "uuid", "exact"}
)
"""Fields whose texts are names or ids, as far as the log may tell them."""

_DEPTH_MAX = 4


class Notes(AuditLog):
    """An audit log that keeps its entries."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.broken = False

    @property
    def failing(self) -> bool:
        return self.broken

    def note(self, entry: Entry) -> None:
        self.entries.append(entry)


def step(notes: Notes, share: float = 1.0, *full: NamePattern, required: bool = False, rng: Any = None) -> AuditStep:
    return AuditStep(
        notes,
        services(),
        wall_ms=lambda: 1,
        share=share,
        full=full,
        required=required,
        rng=rng or (lambda: 0.999),
    )


class Peer:
    """As much of gRPC's context as is looked at."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


def call(name: str, request: Message, **fields: Any) -> Rpc:
    context: Any = Peer()
    rpc = Rpc(name, context, request, streams=False)
    for field, value in fields.items():
        setattr(rpc, field, value)
    return rpc


def get(namespace: str, **fields: Any) -> Rpc:
    return call("/noosphere.v1.MemoryService/Get", pb.GetRequest(namespace=namespace, key="k"), **fields)


def put(**fields: Any) -> Rpc:
    request = pb.PutRequest(namespace="shared/x", put={"key": "plan"})  # type: ignore[arg-type]
    request.call.actor.agent_id, request.call.actor.incarnation = "planner", 7
    request.call.request_id.sequence.sequence = 12
    return call("/noosphere.v1.MemoryService/Put", request, **fields)


def filled(message: Any, path: str, depth: int = 0) -> Any:
    """Gives every text of a message a word of its own, which tells which field it is of."""
    for field in message.DESCRIPTOR.fields:
        inside = f"{path}.{field.name}"
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            if entry.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
                getattr(message, field.name)[f"secret:{inside}"] = f"secret:{inside}"
        elif entry is not None:
            if depth < _DEPTH_MAX:
                nested = getattr(message, field.name)
                filled(nested.add() if field.is_repeated else nested, inside, depth + 1)
                if not field.is_repeated:
                    nested.SetInParent()
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            word: Any = f"{'name' if field.name in NAMES else 'secret'}:{inside}"
            word = word if field.type == FieldDescriptor.TYPE_STRING else word.encode()
            if field.is_repeated:
                getattr(message, field.name).append(word)
            else:
                setattr(message, field.name, word)
    return message


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_nothing_of_a_call_is_noted_but_names(method: MethodDescriptor) -> None:
    notes = Notes()
    request = filled(GetMessageClass(method.input_type)(), "request")
    response = filled(GetMessageClass(method.output_type)(), "response")
    name = f"/{method.containing_service.full_name}/{method.name}"
    denied = call(name, request, response=response, code=grpc.StatusCode.PERMISSION_DENIED)
    denied.refusal = Refusal(Reason.PERMISSION_DENIED, "secret: words for the caller")
    step(notes).end(denied)
    (entry,) = notes.entries
    assert entry.method == f"{method.containing_service.name}/{method.name}"
    assert (entry.code, entry.reason) == ("PERMISSION_DENIED", "PERMISSION_DENIED")
    assert b"secret" not in line_of(entry)


def test_every_write_says_what_it_was_about() -> None:
    about_nothing = {
        method.name
        for method in METHODS
        if kind_of(method.containing_service.name, method.name) == "write"
        and not _target(method)
        and method.input_type.fields
    }
    assert about_nothing == {"SubmitCandidates", "CloseAgent", "ReviewCandidate", "EraseOwner"}


def _target(method: MethodDescriptor) -> str:
    return audited(method).target(filled(GetMessageClass(method.input_type)(), "request"))


def test_a_write_tells_who_what_and_which_version() -> None:
    notes = Notes()
    token = calling.set(Principal("team:planner", credential="token-3"))
    try:
        applied = pb.PutResponse(head=41, applied={"revision": 40})  # type: ignore[arg-type]
        step(notes, share=0).end(put(response=applied))
    finally:
        calling.reset(token)
    (entry,) = notes.entries
    assert entry == Entry(
        1,
        "team:planner",
        "token-3",
        "planner#7",
        "ipv4:127.0.0.1:1",
        "12",
        "MemoryService/Put",
        "write",
        "shared/x",
        ("plan",),
        versions=(40,),
        head=41,
    )


def test_a_write_that_is_answered_with_the_record_tells_why_it_was_none() -> None:
    notes = Notes()
    current = {"reason": "CONFLICT", "current": {"key": "plan", "version": 9}}
    answered = pb.PutResponse(head=9, not_applied=current)  # type: ignore[arg-type]
    step(notes).end(put(response=answered))
    assert (notes.entries[0].code, notes.entries[0].reason, notes.entries[0].versions) == ("OK", "CONFLICT", ())


def test_reads_are_sampled_but_those_of_some_namespaces_and_denied_ones_never() -> None:
    notes, numbers = Notes(), itertools.cycle((0.05, 0.95))
    one = step(notes, 0.5, NamePattern("facts/user/", False), NamePattern("agents/hr", True), rng=lambda: next(numbers))
    for _ in range(20):
        one.end(get("shared/x"))
        one.end(get("agents/hr/sub"))
    assert [entry.sampled for entry in notes.entries] == [0.5] * 20
    notes.entries.clear()
    one.end(get("facts/user/42"))
    one.end(get("agents/hr"))
    one.end(get("shared/x", code=grpc.StatusCode.PERMISSION_DENIED))
    assert [entry.sampled for entry in notes.entries] == [1, 1, 1]


def test_renewals_are_noted_only_if_they_are_denied_and_crowds_are_sampled() -> None:
    notes = Notes()
    one = step(notes, 0.1)
    keep = pb.KeepAgentRequest(actor={"agent_id": "a", "incarnation": 3})  # type: ignore[arg-type]
    one.end(call("/noosphere.v1.MemoryService/KeepAgent", keep))
    one.end(put(code=grpc.StatusCode.RESOURCE_EXHAUSTED))
    assert notes.entries == []
    one.end(call("/noosphere.v1.MemoryService/KeepAgent", keep, code=grpc.StatusCode.UNAUTHENTICATED))
    (entry,) = notes.entries
    assert (entry.kind, entry.agent) == ("keep", "a#3")


def test_calls_are_refused_while_they_cannot_be_noted_if_that_is_required() -> None:
    notes = Notes()
    notes.broken = True
    step(notes).begin(put())
    with pytest.raises(Refusal) as caught:
        step(notes, required=True).begin(put())
    assert caught.value.reason is Reason.ENGINE_UNAVAILABLE
    keep = pb.KeepAgentRequest()
    step(notes, required=True).begin(call("/noosphere.v1.MemoryService/KeepAgent", keep))


def test_many_keys_are_counted_and_long_names_are_cut() -> None:
    notes = Notes()
    request = pb.BatchGetRequest(namespace="x" * 5_000, keys=list(_many(40)))
    step(notes).end(call("/noosphere.v1.MemoryService/BatchGet", request))
    (entry,) = notes.entries
    assert entry.keys == tuple(itertools.islice(_many(40), 16))
    assert entry.more == 24
    assert len(entry.target) == 1_025


def _many(count: int) -> Iterator[str]:
    return (f"key/{number}" for number in range(count))
