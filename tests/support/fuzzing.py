"""Random messages of any type: structured as the descriptors say, of values that break things; or broken bytes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

DEPTH_MAX = 4
_TEXTS = (
    "",
    "a",
    "shared/fuzz",
    "agents/fuzz",
    "sessions/fuzz",
    "facts/agent/fuzz",
    "agent/fuzz",
    "user/1",
    "k",
    "a/b/c",
    "/",
    "//",
    "_session/x",
    "..",
    "../../etc/passwd",
    "\0",
    "\0incarnation",
    "\x7f\x1b[31m",
    "~servers",
    "cli/x",
    "x" * 129,
    "x" * 600,
    "x" * 5_000,
    "🙂" * 40,
    "\u202eabc",
    "%s%n{0}{}",
    "';--",
    "*",
    "[" * 300,
    "0" * 400,
    "-1",
    "1e400",
    "NaN",
)
_BYTES = (b"", b"1", b'"x"', b"{}", b"[" * 500, b"\xff\xfe", b"\0" * 64, b'{"a":' * 200, b"1" * 5_000, b"NaN", b"-0")
_NUMBERS = (0, 1, 2, 3, 7, 100, 1_000, 2**31 - 1, 2**31, 2**53, 2**63 - 1)
_DOUBLES = (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e308, 5e-324)

_UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1, FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1}
_SIGNED = {FieldDescriptor.CPPTYPE_INT32: 2**31, FieldDescriptor.CPPTYPE_INT64: 2**63}


def random_message(rng: random.Random, kind: Descriptor, known: Sequence[Message] = (), depth: int = 0) -> Message:
    """Returns a message of a type.

    Args:
        rng: the source of chance.
        kind: the type.
        known: messages that are put in the place of random ones of their types now and then, such as a valid caller.
        depth: how deep it is inside another one.
    """
    message: Message = GetMessageClass(kind)()
    for one in known:
        if one.DESCRIPTOR.full_name == kind.full_name and rng.random() < 0.8:
            message.CopyFrom(one)
            return message
    for field in kind.fields:
        if rng.random() < (0.25 if depth else 0.15):
            continue
        if field.message_type is not None and depth >= DEPTH_MAX:
            continue
        _fill(rng, message, field, known, depth)
    return message


def broken(rng: random.Random, data: bytes) -> bytes:
    """Returns bytes that were a message: cut, changed or made longer."""
    changed = bytearray(data or b"\x0a")
    for _ in range(rng.randint(1, 8)):
        match rng.randrange(3):
            case 0:
                del changed[rng.randrange(len(changed) + 1) :]
            case 1 if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            case _:
                changed[rng.randrange(len(changed) + 1) : 0] = rng.randbytes(rng.randrange(16))
    return bytes(changed)


def _fill(rng: random.Random, message: Message, field: FieldDescriptor, known: Sequence[Message], depth: int) -> None:
    if not field.is_repeated:
        _set_one(rng, message, field, known, depth)
        return
    count = rng.choice((0, 1, 1, 2, 3, 70 if depth < 2 else 1))
    # The generated classes are not known here.
    container: Any = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for _ in range(min(count, 3)):
            key = _scalar(rng, field.message_type.fields_by_name["key"])
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                container[key] = _scalar(rng, value)
            else:
                container[key].CopyFrom(random_message(rng, value.message_type, known, depth + 1))
        return
    for _ in range(count):
        if field.message_type is None:
            container.append(_scalar(rng, field))
        else:
            container.add().CopyFrom(random_message(rng, field.message_type, known, depth + 1))


def _set_one(
    rng: random.Random, message: Message, field: FieldDescriptor, known: Sequence[Message], depth: int
) -> None:
    if field.message_type is None:
        setattr(message, field.name, _scalar(rng, field))
    else:
        part: Any = getattr(message, field.name)
        part.CopyFrom(random_message(rng, field.message_type, known, depth + 1))
        part.SetInParent()


def _scalar(rng: random.Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(_BYTES) if field.type == FieldDescriptor.TYPE_BYTES else rng.choice(_TEXTS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return rng.choice(_DOUBLES)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([0, 1, 2, 3, 99])
    if kind in _UNSIGNED:
        return min(rng.choice((*_NUMBERS, _UNSIGNED[kind])), _UNSIGNED[kind])
    limit = _SIGNED[kind]
    return max(-limit, min(rng.choice((*_NUMBERS, -1, -limit)), limit - 1))
