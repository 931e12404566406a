"""What merge operations add up to, worked out anew for the checkers."""

from __future__ import annotations

import json
from typing import Any

from .history import Context, WriteKind


def canonical(value: Any) -> str:
    """Returns JSON text that is equal for equal values."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def merge(kind: WriteKind, content: Any, operand: Any, revision: int, context: Context | None) -> Any:
    """Returns the content after one operation.

    Args:
        kind: the operation.
        content: what the key held, None if it had no live value. A set is a dict from the canonical text
            of an element to the revision of its newest add; a log is everything ever appended.
        operand: as in :class:`~noosphere.server.checking.history.Write`.
        revision: of the commit.
        context: removal from a set spares adds that this does not cover.
    """
    match kind:
        case WriteKind.ADD:
            return (content or 0) + operand
        case WriteKind.MAX:
            return operand if content is None else max(content, operand)
        case WriteKind.MIN:
            return operand if content is None else min(content, operand)
        case WriteKind.MAP:
            fields = dict(content or {})
            for name in operand.get("remove", ()):
                fields.pop(name, None)
            fields.update(operand.get("set", {}))
            return fields
        case WriteKind.SET:
            elements: dict[str, int] = dict(content or {})
            for value in operand.get("remove", ()):
                name = canonical(value)
                if name in elements and (context is None or context.covers(elements[name])):
                    del elements[name]
            for value in operand.get("add", ()):
                elements[canonical(value)] = revision
            return elements
        case WriteKind.LOG:
            return [*(content or ()), *operand]
        case _:
            raise AssertionError(f"{kind} is no merge operation")


def reads_as(kind: str, content: Any, read: Any) -> bool:
    """Tells whether a reader of ``content`` may have got ``read``."""
    match kind:
        case WriteKind.SET:
            return isinstance(read, list) and sorted(map(canonical, read)) == sorted(content)
        case WriteKind.LOG:
            # Old entries are dropped to make room, so any non-empty end will do.
            return isinstance(read, list) and bool(read) and content[-len(read) :] == read
        case _:
            return bool(canonical(content) == canonical(read))


def show(kind: str, content: Any) -> str:
    """Returns content for people, shortened."""
    text = ", ".join(sorted(content)) if kind == WriteKind.SET else canonical(content)
    return text if len(text) <= 80 else f"{text[:77]}…"
