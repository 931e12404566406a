"""Requests of any method, filled by chance: what is content carries a canary, what is a name comes from a few."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

CONTENT = frozenset(
    {
        *(
            "add",
            "arguments",
            "claim",
            "data",
            "description",
            "entries",
            "fact_query",
            "failure",
            "input",
            "max",
            "min",
        ),
        *("note", "notes", "object", "parameters", "pending_interrupt", "predicate", "query", "quote", "reply"),
        *("string_value", "subject", "system", "text", "title", "value"),
    }
)
"""Fields that hold what agents say, remember or look for; everything else is a name, an id or a number."""

_DEPTH_MAX = 6
_NUMBERS = (0, 0, 1, 1, 2, 3, 100, 2**31 - 1)


class Filler:
    """Fills requests.

    Args:
        rng: decides.
        canary: what every content holds.
        names: for names of each field; those of "" for all others.
        known: whole messages that are put wherever one of their type belongs, such as the actor that calls.
    """

    def __init__(
        self, rng: random.Random, canary: str, names: dict[str, tuple[str, ...]], known: tuple[Message, ...] = ()
    ) -> None:
        self._rng = rng
        self._canary = canary
        self._names = names
        self._known = {message.DESCRIPTOR.full_name: message for message in known}

    def fill(self, message: Message, depth: int = 0) -> None:
        """Fills a message; about one field of six stays empty, and of a choice one is made."""
        chosen: set[str] = set()
        for oneof in list[Any](message.DESCRIPTOR.oneofs):
            chosen.add(self._rng.choice(oneof.fields).name)
        for field in message.DESCRIPTOR.fields:
            if field.containing_oneof is not None and field.name not in chosen:
                continue
            if self._rng.random() < 1 / 6:
                continue
            self._set(message, field, depth)

    def _set(self, message: Message, field: Any, depth: int) -> None:
        many = isinstance(getattr(type(message)(), field.name), (int, float, str, bytes, bool, Message)) is False
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            if kind.fields_by_name["value"].message_type is None:
                value = self._scalar(kind.fields_by_name["value"])
                getattr(message, field.name)[self._name(field.name)] = value
            else:
                self._message(getattr(message, field.name)[self._name(field.name)], depth)
        elif kind is not None and many:
            if depth < _DEPTH_MAX:
                for _ in range(self._rng.randrange(3)):
                    self._message(getattr(message, field.name).add(), depth)
        elif kind is not None:
            if depth < _DEPTH_MAX:
                getattr(message, field.name).SetInParent()
                self._message(getattr(message, field.name), depth)
        elif many:
            getattr(message, field.name).extend(self._scalar(field) for _ in range(self._rng.randrange(3)))
        else:
            setattr(message, field.name, self._scalar(field))

    def _message(self, message: Message, depth: int) -> None:
        name = message.DESCRIPTOR.full_name
        if name in self._known and self._rng.random() < 0.9:
            message.CopyFrom(self._known[name])
        elif name == "google.protobuf.Duration":
            message.seconds = self._rng.choice((0, 1, 3, 10**9, -1))  # type: ignore[attr-defined] # a Duration
        elif name != "google.protobuf.Timestamp":
            self.fill(message, depth + 1)

    def _scalar(self, field: Any) -> Any:
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return self._content(field.name) if field.name in CONTENT else self._name(field.name)
            case FieldDescriptor.TYPE_BYTES:
                if field.name in CONTENT:
                    return self._content(field.name).encode()
                # Tokens, most of which would be refused before anything else.
                return self._rng.randbytes(5) if self._rng.random() < 0.05 else b""
            case FieldDescriptor.TYPE_BOOL:
                return self._rng.random() < 0.5
            case FieldDescriptor.TYPE_ENUM:
                return self._rng.choice(field.enum_type.values).number
            case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
                return self._rng.choice((0.0, 0.5, -1.0, 1e300))
            case _:
                return self._rng.choice(_NUMBERS)

    def _content(self, field: str) -> str:
        # Some of it is JSON as it should be, some is not, and some is too long.
        return self._rng.choice(
            (
                self._canary,
                f'"{self._canary}"',
                f'{{"{field}": "{self._canary}"}}',
                f'{{"{self._canary}',
                self._canary * 3_000,
                f"{self._canary}\0\u202e\n",
            )
        )

    def _name(self, field: str) -> str:
        return self._rng.choice(self._names.get(field) or self._names[""])
