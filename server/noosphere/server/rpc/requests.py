"""What a request says of itself: in whose name it comes, and what it is about. Read, not checked."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from google.protobuf.message import Message

_ACTOR = "noosphere.v1.Actor"
_CALL = "noosphere.v1.CallContext"


def _nobody(_: Message) -> str:
    return ""


# As many as there are types of messages.
_agents: dict[type[Message], Callable[[Message], str]] = {}
_traceparents: dict[type[Message], Callable[[Message], str]] = {}
_namespaces: dict[type[Message], Callable[[Message], str]] = {}
_waits: dict[type[Message], Callable[[Message], bool]] = {}


def agent_of(request: Message) -> str:
    """Returns the agent in whose name a request comes, as it says; "" if in none."""
    read = _agents.get(type(request))
    if read is None:
        read = _agents[type(request)] = _agent_reader(type(request))
    return read(request)


def namespace_of(request: Message) -> str:
    """Returns the namespace that a request is about, as it says; "" if about none."""
    read = _namespaces.get(type(request))
    if read is None:
        read = _namespaces[type(request)] = _text_reader(type(request), "namespace")
    return read(request)


def waits(request: Message) -> bool:
    """Tells whether a request asks to wait for others, for as long as a minute."""
    read = _waits.get(type(request))
    if read is None:
        read = _waits[type(request)] = _wait_reader(type(request))
    return read(request)


def traceparent_of(request: Message) -> str:
    """Returns the span of its caller's trace, as a request says; "" if it says nothing."""
    read = _traceparents.get(type(request))
    if read is None:
        read = _traceparents[type(request)] = _traceparent_reader(type(request))
    return read(request)


def _traceparent_reader(kind: type[Message]) -> Callable[[Message], str]:
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.full_name == _CALL:
            return attrgetter(f"{field.name}.traceparent")
    return _nobody


def _agent_reader(kind: type[Message]) -> Callable[[Message], str]:
    for wanted, path in ((_CALL, "actor.agent_id"), (_ACTOR, "agent_id")):
        for field in kind.DESCRIPTOR.fields:
            if field.message_type is not None and field.message_type.full_name == wanted:
                return attrgetter(f"{field.name}.{path}")
    return _text_reader(kind, "agent_id")


def _wait_reader(kind: type[Message]) -> Callable[[Message], bool]:
    field = kind.DESCRIPTOR.fields_by_name.get("wait")
    if field is None:
        return lambda _: False
    if field.message_type is not None:
        return lambda request: request.HasField("wait")
    return attrgetter("wait")


def _text_reader(kind: type[Message], name: str) -> Callable[[Message], str]:
    return attrgetter(name) if isinstance(getattr(kind(), name, None), str) else _nobody
