"""Merge types: records changed by operations that always apply, so nobody has to retry.

Each type has a *state* (what is stored, canonical JSON bytes) and a *rendering* (what readers see,
JSON bytes). Operations take no precondition and can fail only by type, size or limit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from .context import CausalContext
from .errors import LimitInfo, Reason, Refusal, invalid, too_large
from .limits import JSON_DEPTH_MAX

COUNTER_MAX = (1 << 63) - 1
_SURROGATE = re.compile("[\ud800-\udfff]|\\\\u[dD][89a-fA-F]")
# Possessive, and content to end at the end of the text, so that no input makes it search twice.
_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


class MergeType(IntEnum):
    """The type of a record that is changed by merge operations."""

    NONE = 0
    COUNTER = 1
    SET = 2
    MAX = 3
    MIN = 4
    MAP = 5
    LOG = 6


@dataclass(frozen=True, slots=True)
class CounterAdd:
    """Adds ``delta`` to a signed 64-bit counter."""

    delta: int


@dataclass(frozen=True, slots=True)
class SetUpdate:
    """Adds and removes JSON values; removal drops the adds that ``context`` covers (None: all)."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    context: CausalContext | None = None


@dataclass(frozen=True, slots=True)
class Extreme:
    """Raises a maximum or lowers a minimum; ``value`` is a JSON number or string."""

    value: str
    largest: bool


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """Sets fields to JSON values and removes fields."""

    set: Mapping[str, str]
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogAppend:
    """Appends JSON values; keeps the newest ``entries_max`` (0: as many as fit)."""

    entries: tuple[str, ...]
    entries_max: int = 0


MergeOp = CounterAdd | SetUpdate | Extreme | MapUpdate | LogAppend


class Merged(NamedTuple):
    """What a merge operation makes of a record.

    Attributes:
        state: what is stored; revision 0 in it stands for the present commit.
        rendered: what readers see.
        trimmed: how many entries a log ever dropped.
    """

    state: bytes
    rendered: bytes
    trimmed: int = 0


def type_of(op: MergeOp) -> MergeType:
    """Returns the record type that ``op`` works on."""
    match op:
        case CounterAdd():
            return MergeType.COUNTER
        case SetUpdate():
            return MergeType.SET
        case Extreme(largest=True):
            return MergeType.MAX
        case Extreme():
            return MergeType.MIN
        case MapUpdate():
            return MergeType.MAP
        case LogAppend():
            return MergeType.LOG


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond the range of a 64-bit float")
    return number


def _depth(text: str) -> int:
    """Returns how deeply arrays and objects are nested in JSON text, before anything recurses into it."""
    depth = deepest = 0
    for token in _NESTING.finditer(text):
        match token.group():
            case "[" | "{":
                depth += 1
                deepest = max(deepest, depth)
            case "]" | "}":
                depth -= 1
    return deepest


class _Element(NamedTuple):
    """An element of a set, with its newest add and the one before it (0: none is left).

    Two adds are enough: a context covers all revisions up to its prefix and a few single ones, so what
    covers the newest add by its prefix covers every earlier one. If it names the newest add alone, the
    add before it tells whether somebody else's is left; when in doubt the element stays.
    """

    value: Any
    dot: int
    before: int = 0

    def without(self, context: CausalContext | None) -> _Element | None:
        """Returns what is left once the adds that ``context`` covers are dropped; None: nothing is."""
        if context is None or self.dot <= context.prefix:
            return None
        before_covered = self.before <= context.prefix
        if context.covers(self.dot):
            # Of the adds before `before` nothing is known but that they are older.
            return None if before_covered else _Element(self.value, self.before, self.before)
        return _Element(self.value, self.dot) if before_covered else self


def parse_json(field: str, text: str | bytes) -> Any:
    """Parses JSON strictly (RFC 8259), so that whatever is stored can be read everywhere.

    Refuses what other parsers cannot take: bytes that are not UTF-8, ``NaN`` and infinities (``1e999``
    too), lone surrogates, and more than 128 levels of nesting.

    Raises:
        Refusal: INVALID_FIELD or (nesting) VALUE_TOO_LARGE, naming ``field``.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        # Nesting that just parses here would overflow the stack of a deeper caller that reads it back.
        if text.count("[") + text.count("{") > JSON_DEPTH_MAX and (depth := _depth(text)) > JSON_DEPTH_MAX:
            raise too_large(field, depth, JSON_DEPTH_MAX, "levels of nesting")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if _SURROGATE.search(text):
            dump_json(value)
    except UnicodeEncodeError:
        raise invalid(field, "is not JSON: contains half of a surrogate pair") from None
    except ValueError as error:
        raise invalid(field, f"is not JSON: {error}") from None
    return value


def dump_json(value: Any) -> bytes:
    """Returns compact JSON text in UTF-8, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _canonical(value: Any) -> str:
    # Only ever compared.
    return json.dumps(value, sort_keys=True)


def apply(op: MergeOp, state: bytes | None, bytes_max: int) -> Merged:
    """Applies an operation.

    Args:
        op: the operation; its type must be the record's.
        state: the record's state with real revisions, or None to start empty.
        bytes_max: limit for the rendering, in bytes.

    Raises:
        Refusal: INVALID_FIELD (malformed operand), MERGE_TYPE_MISMATCH (operand of another kind than
            the value), VALUE_TOO_LARGE (the result does not fit).
    """
    match op:
        case CounterAdd():
            merged = _counter(op, state)
        case SetUpdate():
            merged = _set(op, state)
        case Extreme():
            merged = _extreme(op, state)
        case MapUpdate():
            merged = _map(op, state)
        case LogAppend():
            return _log(op, state, bytes_max)
    rendered = render(type_of(op), merged)
    if len(rendered) > bytes_max:
        raise too_large("merge", len(rendered), bytes_max)
    return Merged(merged, rendered)


def _counter(op: CounterAdd, state: bytes | None) -> bytes:
    total = op.delta + (json.loads(state) if state is not None else 0)
    if abs(total) > COUNTER_MAX:
        raise Refusal(
            Reason.VALUE_TOO_LARGE,
            f"merge.counter_add.delta: {op.delta} would take the counter to {total}, its limit is ±{COUNTER_MAX}",
            LimitInfo("merge.counter_add.delta", op.delta, COUNTER_MAX),
        )
    return dump_json(total)


def _set(op: SetUpdate, state: bytes | None) -> bytes:
    elements = {_canonical(e[0]): _Element(*e) for e in json.loads(state)} if state is not None else {}
    for text in op.remove:
        name = _canonical(parse_json("merge.set_update.remove", text))
        if (found := elements.get(name)) is not None:
            if (left := found.without(op.context)) is not None:
                elements[name] = left
            else:
                del elements[name]
    for text in op.add:
        value = parse_json("merge.set_update.add", text)
        earlier = elements.pop(name := _canonical(value), None)
        elements[name] = _Element(value, 0, (earlier.dot or earlier.before) if earlier is not None else 0)
    return dump_json(list(elements.values()))


def _extreme(op: Extreme, state: bytes | None) -> bytes:
    field = "merge.max" if op.largest else "merge.min"
    value = parse_json(field, op.value)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise invalid(field, "must be a JSON number or string")
    if state is None:
        return dump_json(value)
    current = json.loads(state)
    if isinstance(current, str) is not isinstance(value, str):
        raise Refusal(Reason.MERGE_TYPE_MISMATCH, f"{field}: the record holds a {_kind(current)}, not a {_kind(value)}")
    better = value > current if op.largest else value < current
    return dump_json(value if better else current)


def _kind(value: object) -> str:
    return "string" if isinstance(value, str) else "number"


def _map(op: MapUpdate, state: bytes | None) -> bytes:
    fields: dict[str, Any] = json.loads(state) if state is not None else {}
    for name in op.remove:
        fields.pop(name, None)
    for name, text in op.set.items():
        fields[name] = parse_json(f"merge.map_update.set[{name!r}]", text)
    return dump_json(fields)


def _log(op: LogAppend, state: bytes | None, bytes_max: int) -> Merged:
    held: dict[str, Any] = json.loads(state) if state is not None else {"e": [], "t": 0}
    fresh = [parse_json("merge.log_append.entries", text) for text in op.entries]
    entries = [dump_json(value) for value in (*held["e"], *fresh)]
    for entry in entries[len(held["e"]) :]:
        if (size := len(entry) + 2) > bytes_max:
            raise too_large("merge.log_append.entries", size, bytes_max)
    keep = len(entries) if op.entries_max == 0 else min(op.entries_max, len(entries))
    size, fitting = 1, 0
    for entry in reversed(entries[len(entries) - keep :]):
        size += len(entry) + 1
        if size > bytes_max:
            break
        fitting += 1
    rendered = b"[" + b",".join(entries[len(entries) - fitting :]) + b"]"
    trimmed = held["t"] + len(entries) - fitting
    return Merged(b'{"e":%b,"t":%d}' % (rendered, trimmed), rendered, trimmed)


def render(merge_type: MergeType, state: bytes) -> bytes:
    """Returns what readers see of a state, as JSON bytes."""
    match merge_type:
        case MergeType.SET:
            return dump_json([element[0] for element in json.loads(state)])
        case MergeType.LOG:
            return dump_json(json.loads(state)["e"])
        case _:
            return state


def state_at(merge_type: MergeType, state: bytes, revision: int) -> bytes:
    """Returns the state with revision 0 replaced by that of the commit that wrote it."""
    if merge_type is not MergeType.SET:
        return state
    return dump_json([[value, dot or revision, before] for value, dot, before in json.loads(state)])


def _all_elements(value: object) -> bool:
    return isinstance(value, list)


_SHAPES: dict[MergeType, tuple[str, Callable[[Any], bool]]] = {
    MergeType.COUNTER: (
        "a 64-bit whole number",
        lambda v: isinstance(v, int) and not isinstance(v, bool) and abs(v) <= COUNTER_MAX,
    ),
    MergeType.SET: ("an array", _all_elements),
    MergeType.MAX: ("a number or string", lambda v: isinstance(v, (int, float, str)) and not isinstance(v, bool)),
    MergeType.MIN: ("a number or string", lambda v: isinstance(v, (int, float, str)) and not isinstance(v, bool)),
    MergeType.MAP: ("an object", lambda v: isinstance(v, dict)),
    MergeType.LOG: ("an array", _all_elements),
}


def state_from_value(merge_type: MergeType, data: bytes) -> bytes:
    """Returns the state for a plain put on a typed record.

    Raises:
        Refusal: INVALID_FIELD if ``data`` is not JSON, MERGE_TYPE_MISMATCH if it has another shape.
    """
    value = parse_json("value", data)
    wanted, fits = _SHAPES[merge_type]
    if not fits(value):
        raise Refusal(Reason.MERGE_TYPE_MISMATCH, f"value: a {merge_type.name} record holds {wanted}")
    match merge_type:
        case MergeType.SET:
            unique = {_canonical(element): element for element in value}
            return dump_json([_Element(element, 0) for element in unique.values()])
        case MergeType.LOG:
            return dump_json({"e": value, "t": 0})
        case _:
            return dump_json(value)
