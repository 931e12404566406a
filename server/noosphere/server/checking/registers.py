"""The second checker: each key is a linearizable register, judged by values and times alone.

It knows nothing of revisions, heads or versions, so it cannot be fooled by a server that numbers wrong
what it does, or numbers rightly what it does wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .history import Call
from .operations import NOTHING, Group, Operation, group_registers, register_name
from .search import STEPS_MAX, Stuck, holds, linearize
from .verdict import Findings, Kind

CHECKER = "registers"


class Coverage(NamedTuple):
    """What the checker looked at.

    Attributes:
        registers: how many registers were searched.
        uncovered: keys that are no registers, with the reason.
    """

    registers: int
    uncovered: dict[str, str]


def check_registers(namespace: str, calls: Sequence[Call], steps_max: int = STEPS_MAX) -> tuple[Findings, Coverage]:
    """Checks one namespace of which every write is known and which was empty at first.

    Args:
        namespace: its name.
        calls: its calls.
        steps_max: bound of the search for each group of keys; beyond it the group is undecided.
    """
    findings = Findings(CHECKER, namespace)
    groups, uncovered = group_registers(calls)
    for group in groups:
        if _check_values(group, findings):
            continue
        result = linearize(group.operations, len(group.registers), steps_max)
        names = [register_name(register) for register in group.registers]
        if result.exhausted:
            findings.undecided.append(
                f"registers: {namespace} {', '.join(names[:4])}: {len(group.operations)} operations, "
                f"no answer within {steps_max} steps"
            )
        elif result.stuck is not None:
            _explain(group, result.stuck, findings)
    return findings, Coverage(sum(len(group.registers) for group in groups), uncovered)


class _Writes:
    """Who may have written which value to a register."""

    def __init__(self, group: Group) -> None:
        self._by_value: dict[tuple[int, str], list[Operation]] = defaultdict(list)
        for operation in group.operations:
            for register, value in operation.sets:
                self._by_value[register, value].append(operation)

    def of(self, register: int, value: str) -> list[Operation]:
        return self._by_value.get((register, value), [])


def _check_values(group: Group, findings: Findings) -> bool:
    """Finds what needs no search and can be told in one sentence; returns whether it found something."""
    writes = _Writes(group)
    before = sum(findings.counts.values())
    taken: dict[tuple[int, str], Operation] = {}
    for operation in group.operations:
        changed = {condition.register for condition in operation.sets}
        for register, value in operation.requires:
            if value == NOTHING:
                continue
            name = register_name(group.registers[register])
            sources = writes.of(register, value)
            if not sources:
                if not operation.optional:
                    findings.add(Kind.PHANTOM, [name], f"held value {value}, which nobody wrote", operation.call)
            elif all(source.start_ns > operation.end_ns for source in sources):
                text = f"value {value} was read before the call that wrote it had begun"
                findings.add(Kind.FUTURE_READ, [name], text, operation.call, sources[0].call)
            elif register in changed and not operation.optional and len(sources) == 1:
                other = taken.setdefault((register, value), operation)
                if other is not operation:
                    text = f"two writers read value {value} and both replaced it; one of them had not seen the other"
                    findings.add(Kind.LOST_UPDATE, [name], text, other.call, operation.call)
    return sum(findings.counts.values()) > before


def _explain(group: Group, stuck: Stuck, findings: Findings) -> None:
    writes = _Writes(group)
    parts = []
    for register, name in enumerate(group.registers):
        value = stuck.values[register]
        sources = writes.of(register, value)
        by = f", written by {sources[0].call.process} call {sources[0].call.call}" if sources else ""
        parts.append(f"{register_name(name)} holds {value or 'nothing'}{by}")
    text = (
        f"no order of the calls explains what they returned. The best one places {stuck.placed} of "
        f"{sum(not op.optional for op in group.operations)} operations; then {'; '.join(parts[:4])}, "
        f"and what must come next does not fit: {'; '.join(_objections(group, stuck))}"
    )
    kind = Kind.TORN_TRANSACTION if len(group.registers) > 1 else Kind.NOT_LINEARIZABLE
    names = [register_name(register) for register in group.registers]
    findings.add(kind, names, text, *(operation.call for operation in stuck.blocked))


def _objections(group: Group, stuck: Stuck) -> Iterator[str]:
    for operation in stuck.blocked[:4]:
        wanted = holds(operation.requires, stuck.values)
        call = f"{operation.call.process} call {operation.call.call}"
        if wanted:
            name = register_name(group.registers[wanted[0].register])
            yield f"{call} needs {name} to hold {wanted[0].value or 'nothing'}"
        elif operation.differs:
            yield f"{call} was refused although nothing had changed"
        else:
            yield f"{call} leads nowhere"
