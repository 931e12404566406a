"""Merge types as the model sees them: contents are Python objects, rendered only to be shown and measured.

A counter or extreme is its value, a set a tuple of (element, dots of its adds), a map one of (field, value), a
log is (entries, how many were dropped).
"""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.calls import Add, Append, Extreme, Fields, Merge, Update, refuse


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def name_of(element: Any) -> str:
    """Returns what tells elements of a set apart: 1, 1.0 and true are three, the order of fields does not count."""
    return json.dumps(element, sort_keys=True)


def render(kind: str, content: Any) -> bytes:
    """Returns what readers see of a content."""
    match kind:
        case "":
            plain: bytes = content
            return plain
        case "SET":
            return dump([element for element, _ in content])
        case "MAP":
            return dump(dict(content))
        case "LOG":
            return dump(list(content[0]))
        case _:
            return dump(content)


def typed(kind: str, data: bytes, revision: int, bytes_max: int) -> Any:
    """Returns the content that a plain put at ``revision`` gives a typed record."""
    value = json.loads(data)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "COUNTER": number and isinstance(value, int) and abs(value) < 2**63,
        "SET": isinstance(value, list),
        "MAX": number or isinstance(value, str),
        "MIN": number or isinstance(value, str),
        "MAP": isinstance(value, dict),
        "LOG": isinstance(value, list),
    }
    if not fits[kind]:
        refuse("MERGE_TYPE_MISMATCH")
    content: Any = value
    if kind == "SET":
        content = tuple({name_of(e): (e, (revision,)) for e in value}.values())
    elif kind == "MAP":
        content = tuple(value.items())
    elif kind == "LOG":
        content = (tuple(value), 0)
    if len(render(kind, content)) > bytes_max:
        refuse("VALUE_TOO_LARGE")
    return content


def merged(call: Merge, before: Any, revision: int, bytes_max: int) -> Any:
    """Returns the content after a merge at ``revision``; None stands for no content before."""
    match call:
        case Add():
            total = (before or 0) + call.delta
            if abs(total) >= 2**63:
                refuse("VALUE_TOO_LARGE")
            return total
        case Update():
            return _updated(call, before or (), revision)
        case Extreme():
            value = json.loads(call.value)
            if before is None:
                return value
            if isinstance(value, str) != isinstance(before, str):
                refuse("MERGE_TYPE_MISMATCH")
            return max(before, value) if call.largest else min(before, value)
        case Fields():
            fields = dict(before or ())
            for field in call.remove:
                fields.pop(field, None)
            fields.update((field, json.loads(text)) for field, text in call.fields)
            return tuple(fields.items())
        case Append():
            entries, dropped = before or ((), 0)
            return _appended(call, entries, dropped, bytes_max)


def _updated(call: Update, before: Any, revision: int) -> Any:
    """Removal drops the adds that its context covers; what has no add left is gone. The newest add comes last."""
    elements = {name_of(element): (element, dots) for element, dots in before}
    for text in call.remove:
        name = name_of(json.loads(text))
        if name in elements:
            element, dots = elements[name]
            left = tuple(dot for dot in dots if call.seen is not None and not call.seen.covers(dot))
            if left:
                elements[name] = (element, left)
            else:
                del elements[name]
    for text in call.add:
        element = json.loads(text)
        _, dots = elements.pop(name_of(element), (element, ()))
        elements[name_of(element)] = (element, (*dots, revision))
    return tuple(elements.values())


def _appended(call: Append, before: tuple[Any, ...], dropped: int, bytes_max: int) -> Any:
    fresh = [json.loads(text) for text in call.entries]
    if any(len(dump([value])) > bytes_max for value in fresh):
        refuse("VALUE_TOO_LARGE")
    entries = [*before, *fresh]
    while entries and (len(dump(entries)) > bytes_max or 0 < call.keep < len(entries)):
        del entries[0]
        dropped += 1
    return tuple(entries), dropped
