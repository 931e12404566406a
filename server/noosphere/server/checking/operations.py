"""Turns a history into operations on registers, without looking at a revision.

A register is a key with plain values, or one field of a map. A write that depends on what its writer
had read becomes a compare-and-set from the value read to the value written; versions and contexts are
not used. Keys that one transaction writes together form one group and are searched together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .history import MERGES, Call, Op, Outcome, Result, Seen, Write, WriteKind, value_id
from .merged import canonical

NOTHING = ""
"""The value of a register without a live value."""

GROUP_KEYS_MAX = 64

_FIELD = "\x00"


class Condition(NamedTuple):
    """A register holds a value, by index of the register in its group."""

    register: int
    value: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One atomic step on the registers of a group.

    Attributes:
        call: whose it is.
        start_ns: it takes effect after this.
        end_ns: and before this; infinite if the outcome is unknown.
        requires: what must hold just before.
        differs: what must not hold just before.
        sets: what holds just after.
        optional: it may never take effect.
    """

    call: Call
    start_ns: int
    end_ns: float
    requires: tuple[Condition, ...] = ()
    differs: tuple[Condition, ...] = ()
    sets: tuple[Condition, ...] = ()
    optional: bool = False


@dataclass(slots=True)
class Group:
    """Registers that are searched together, and the operations on them by start time."""

    registers: tuple[str, ...]
    operations: list[Operation] = field(default_factory=list)


def register_name(register: str) -> str:
    """Returns a register's name for people."""
    key, _, part = register.partition(_FIELD)
    return f"{key}[{part}]" if part else key


def group_registers(calls: Sequence[Call]) -> tuple[list[Group], dict[str, str]]:
    """Returns the groups of one namespace, and the keys that are not registers with the reason."""
    uncovered, maps = _classify(calls)
    roots = _Union()
    fields: dict[str, set[str]] = defaultdict(set)
    for call in calls:
        plain = [key for key in _plain_keys(call) if key not in uncovered and key not in maps]
        for key in plain:
            roots.join(plain[0] if call.op is Op.TRANSACT else key, key)
        for write in call.writes:
            if write.key in maps and write.key not in uncovered:
                fields[write.key].update((*write.merge.get("set", {}), *write.merge.get("remove", ())))
    groups: dict[str, Group] = {}
    index: dict[str, tuple[Group, int]] = {}
    for keys in roots.sets():
        if len(keys) > GROUP_KEYS_MAX:
            uncovered.update(dict.fromkeys(keys, f"more than {GROUP_KEYS_MAX} keys linked by transactions"))
            continue
        groups[keys[0]] = Group(tuple(keys))
        index.update({key: (groups[keys[0]], position) for position, key in enumerate(keys)})
    for key, names in fields.items():
        for name in sorted(names):
            register = key + _FIELD + name
            groups[register] = Group((register,))
            index[register] = (groups[register], 0)
    once = _written_once(calls)
    for call in calls:
        for group, operation in _operations(call, index, fields, once):
            group.operations.append(operation)
    return list(groups.values()), uncovered


def _classify(calls: Sequence[Call]) -> tuple[dict[str, str], set[str]]:
    """Returns keys that no register can model with the reason, and the keys that are maps."""
    uncovered: dict[str, str] = {}
    kinds: dict[str, set[WriteKind]] = defaultdict(set)
    for call in calls:
        results = _results(call)
        for write, result in zip(call.writes, results, strict=True):
            kinds[write.key].add(write.kind)
            if write.expires:
                uncovered[write.key] = "its values expire"
            if result is not None and write.kind not in MERGES and result.version is None:
                uncovered[write.key] = "it holds siblings"
            if result is not None and result.overwritten and write.context is not None:
                uncovered[write.key] = "the last writer wins there"
        for seen in call.reply.seen if call.reply is not None else ():
            if len(seen.values) > 1:
                uncovered[seen.key] = "it holds siblings"
    maps = set()
    for key, used in kinds.items():
        if used == {WriteKind.MAP}:
            maps.add(key)
        elif used & MERGES:
            uncovered.setdefault(key, "it has a merge type" if used < MERGES else "it mixes merges with plain writes")
    return uncovered, maps


def _plain_keys(call: Call) -> Iterator[str]:
    for write in call.writes:
        if write.kind not in MERGES:
            yield write.key
    yield from (compare.key for compare in call.compares)
    if call.reply is not None and call.op is not Op.TRANSACT:
        yield from (seen.key for seen in call.reply.seen if not seen.kind)


def _operations(
    call: Call,
    index: Mapping[str, tuple[Group, int]],
    fields: Mapping[str, set[str]],
    once: frozenset[tuple[str, str]],
) -> Iterator[tuple[Group, Operation]]:
    """Yields the call's part for every group that it touches."""
    if call.stale:
        return
    outcome = call.outcome
    end_ns = math.inf if call.reply is None or outcome is Outcome.UNKNOWN else call.reply.return_ns
    if call.writes and outcome is Outcome.REFUSED:
        yield from _refused(call, index, once)
    elif call.writes:
        yield from _applied(call, index, end_ns)
    if call.reply is not None and outcome is not Outcome.UNKNOWN:
        yield from _reads(call, call.reply.seen, index, fields, end_ns)


def _applied(call: Call, index: Mapping[str, tuple[Group, int]], end_ns: float) -> Iterator[tuple[Group, Operation]]:
    parts: dict[int, tuple[Group, list[Condition], list[Condition]]] = {}
    for compare in call.compares:
        if compare.key in index and compare.base is not None:
            group, position = index[compare.key]
            parts.setdefault(id(group), (group, [], []))[1].append(Condition(position, _single(compare.base)))
    for register, required, value in _effects(call):
        if register in index:
            group, position = index[register]
            _, requires, sets = parts.setdefault(id(group), (group, [], []))
            sets.append(Condition(position, value))
            if required is not None:
                requires.append(Condition(position, required))
    optional = call.outcome is Outcome.UNKNOWN
    for group, requires, sets in parts.values():
        yield group, Operation(call, call.start_ns, end_ns, tuple(requires), (), tuple(sets), optional)


def _reads(
    call: Call,
    records: Sequence[Seen],
    index: Mapping[str, tuple[Group, int]],
    fields: Mapping[str, set[str]],
    end_ns: float,
) -> Iterator[tuple[Group, Operation]]:
    """Yields what the reply shows. The pages of a list are read key by key, a get all at once."""
    parts: dict[int, tuple[Group, list[Condition]]] = {}
    for seen in records:
        values: dict[str, str] = {}
        if seen.key in fields:
            content = seen.content if isinstance(seen.content, dict) else {}
            for name in fields[seen.key]:
                held = value_id(canonical(content[name]).encode()) if name in content else NOTHING
                values[seen.key + _FIELD + name] = held
        elif not seen.kind:
            values[seen.key] = _single(seen.values)
        for register, value in values.items():
            if register in index:
                group, position = index[register]
                parts.setdefault(id(group), (group, []))[1].append(Condition(position, value))
    for group, conditions in parts.values():
        yield group, Operation(call, call.start_ns, end_ns, tuple(conditions))


def _refused(
    call: Call, index: Mapping[str, tuple[Group, int]], once: frozenset[tuple[str, str]]
) -> Iterator[tuple[Group, Operation]]:
    """A conflict shows that the register did not hold what the writer had read, if that cannot come back."""
    if call.reply is None or call.reply.reason != "CONFLICT" or len(call.writes) != 1:
        return
    write = call.writes[0]
    if write.base and write.key in index and (write.key, write.base[0]) in once:
        group, position = index[write.key]
        differs = (Condition(position, _single(write.base)),)
        yield group, Operation(call, call.start_ns, call.reply.return_ns, differs=differs)


def _effects(call: Call) -> Iterator[tuple[str, str | None, str]]:
    """Yields each register that the call writes, the value it must have held (None: any) and the new one."""
    for write in call.writes:
        if write.kind is WriteKind.MAP:
            for name in write.merge.get("remove", ()):
                yield write.key + _FIELD + name, None, NOTHING
            for name, value in write.merge.get("set", {}).items():
                yield write.key + _FIELD + name, None, value_id(canonical(value).encode())
        if write.kind not in MERGES:
            yield write.key, _required(call, write), write.value if write.kind is WriteKind.PUT else NOTHING


def _required(call: Call, write: Write) -> str | None:
    """Returns what the register must have held for the write to be applied, None if that is open."""
    if write.kind is WriteKind.DELETE and call.applied is not None:
        # A delete of what is not there succeeds and says that it did nothing; within a transaction it does not say.
        if not call.applied.revision:
            return NOTHING
        if len(call.writes) > 1:
            return None
    if write.conditional:
        return _single(write.base) if write.base is not None else None
    if write.blind or call.namespace.startswith("agents/"):
        return None
    # Without any precondition only a key without a live value may be written, or deleted in vain.
    return NOTHING


def _results(call: Call) -> Sequence[Result | None]:
    reply = call.applied
    if reply is None or reply.replayed or len(reply.results) != len(call.writes):
        return [None] * len(call.writes)
    return reply.results


def _written_once(calls: Sequence[Call]) -> frozenset[tuple[str, str]]:
    counts = Counter(
        (write.key, write.value)
        for call in calls
        if call.outcome is not Outcome.REFUSED
        for write in call.writes
        if write.kind is WriteKind.PUT
    )
    return frozenset(name for name, count in counts.items() if count == 1)


def _single(values: tuple[str, ...]) -> str:
    return values[0] if values else NOTHING


class _Union:
    """Disjoint sets of keys."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def join(self, one: str, other: str) -> None:
        self._parents[self._root(one)] = self._root(other)

    def sets(self) -> list[list[str]]:
        members: dict[str, list[str]] = defaultdict(list)
        for key in sorted(self._parents):
            members[self._root(key)].append(key)
        return list(members.values())

    def _root(self, key: str) -> str:
        parent = self._parents.setdefault(key, key)
        while parent != self._parents[parent]:
            self._parents[key] = parent = self._parents[parent]
        return parent
