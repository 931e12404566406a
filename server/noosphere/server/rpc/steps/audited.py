"""What the audit log tells of each method: found out once, from the descriptors of its request and its response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message

KEYS_MAX = 16
TEXT_CHARS_MAX = 1_024
"""Longer names are refused, but what is refused is noted, too."""


class Kind(StrEnum):
    """What a call does, as far as it matters for how much is noted of it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    KEEP = "keep"


_READS = ("Get", "List", "BatchGet", "Search", "Explain", "Read", "Watch", "Plan", "Refresh", "Assemble")
_KEEPS = frozenset({"Pipeline", "GetServerInfo", "KeepAgent", "KeepMember", "RenewLock", "Renew"})
_ROOTS = {"namespace": "", "session_id": "sessions/", "agent_id": "agents/", "group": "groups/", "scope": "facts/"}
_KEY_FIELDS = ("key", "collection", "fact_id", "candidate_id", "job_id", "call_id", "checkpoint_id", "message_id")
_OWNER_FIELDS = ("owner", "owners", "fact_owners")
_OPERATION_FIELDS = ("put", "delete", "merge")
_COUNTED = ("records", "messages", "facts", "hits", "namespaces", "sessions", "batches", "fact_ids")


class Audited(NamedTuple):
    """One method.

    Attributes:
        method: as ``MemoryService/Put``.
        kind: what it does.
        target: what a request is about.
        keys: of what in it.
        owners: whose facts.
        versions: which versions a response tells of.
        head: the head that a response tells, 0 for none.
        count: how many entries a response has.
        call: whether a request has a ``call``.
        actor: whether it has an ``actor`` instead.
    """

    method: str
    kind: Kind
    target: Callable[[Any], str]
    keys: Callable[[Any], Iterable[str]]
    owners: Callable[[Any], Iterable[str]]
    versions: Callable[[Any], Iterable[int]]
    head: Callable[[Any], int]
    count: Callable[[Any], int]
    call: bool
    actor: bool


def audited(method: MethodDescriptor) -> Audited:
    """Returns what is told of a method."""
    service = method.containing_service.name
    takes, gives = method.input_type, method.output_type
    return Audited(
        f"{service}/{method.name}",
        kind_of(service, method.name),
        _target(service, takes),
        _keys(takes),
        _owners(takes),
        _versions(gives),
        (lambda response: response.head) if "head" in gives.fields_by_name else _zero,
        _count(gives),
        "call" in takes.fields_by_name,
        "actor" in takes.fields_by_name,
    )


def kind_of(service: str, name: str) -> Kind:
    """Returns what a method does. What is not known to read only counts as a write."""
    if service == "AdminService":
        return Kind.ADMIN
    if name in _KEEPS:
        return Kind.KEEP
    return Kind.READ if name.startswith(_READS) else Kind.WRITE


def _zero(_: Message) -> int:
    return 0


def _nothing(_: Message) -> tuple[()]:
    return ()


def _target(service: str, takes: Descriptor) -> Callable[[Any], str]:
    fields = takes.fields_by_name
    if "ticket" in fields:
        return lambda request: "sessions/" + request.ticket.split(":", 1)[0]
    if rooted := [_rooted(field, root) for field, root in _ROOTS.items() if field in fields]:
        return lambda request: next(filter(None, (found(request) for found in rooted)), "")
    if service == "CoordinationService":
        field = "name" if "name" in fields else "prefix"
        return _rooted(field, "locks/") if field in fields else lambda _: ""
    if "pattern" in fields:
        return lambda request: request.pattern.exact or request.pattern.prefix + "*"
    return _rooted("prefix", "") if "prefix" in fields else lambda _: ""


def _rooted(field: str, root: str) -> Callable[[Any], str]:
    def found(request: Any) -> str:
        name = getattr(request, field)
        return root + name if name else ""

    return found


def _keys(takes: Descriptor) -> Callable[[Any], Iterable[str]]:
    fields = takes.fields_by_name
    for field in _OPERATION_FIELDS:
        if field in fields and fields[field].message_type is not None:
            return lambda request: (getattr(request, field).key,)
    if "operations" in fields:
        return lambda request: map(_operation_key, request.operations)
    if "keys" in fields:
        return lambda request: request.keys
    if "ticket" in fields:
        # Without its check it is the name of a call, and no longer what may finish it.
        return lambda request: ("tools/" + request.ticket.rpartition(":")[0].partition(":")[2],)
    present = [field for field in _KEY_FIELDS if field in fields]
    if not present:
        return _nothing
    return lambda request: [text for field in present if (text := getattr(request, field))]


def _operation_key(operation: Any) -> str:
    kind = operation.WhichOneof("kind")
    return str(getattr(operation, kind).key) if kind in _OPERATION_FIELDS else "messages/"


def _owners(takes: Descriptor) -> Callable[[Any], Iterable[str]]:
    for field in _OWNER_FIELDS:
        if field in takes.fields_by_name:
            if takes.fields_by_name[field].is_repeated:
                return lambda request: getattr(request, field)
            return lambda request: (getattr(request, field),) if getattr(request, field) else ()
    return _nothing


def _versions(gives: Descriptor) -> Callable[[Any], Iterable[int]]:
    fields = gives.fields_by_name
    if "applied" in fields:
        return lambda response: (response.applied.revision,) if response.HasField("applied") else ()
    if "record" in fields:
        return lambda response: (response.record.version,) if response.HasField("record") else ()
    if "records" in fields and fields["records"].is_repeated and _has_version(fields["records"].message_type):
        return lambda response: (record.version for record in response.records)
    for field in ("revision", "version"):
        if field in fields and fields[field].message_type is None and fields[field].type != fields[field].TYPE_STRING:
            return lambda response: (getattr(response, field),)
    return _nothing


def _has_version(record: Descriptor | None) -> bool:
    return record is not None and "version" in record.fields_by_name


def _count(gives: Descriptor) -> Callable[[Any], int]:
    for field in _COUNTED:
        if field in gives.fields_by_name and gives.fields_by_name[field].is_repeated:
            return lambda response: len(getattr(response, field))
    return _zero
