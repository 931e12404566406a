"""Search for a linearization (Wing and Gong, with the memory of Lowe and of Porcupine).

The operations of a group are linearizable if they can be put in one order that respects the times (what
returned before another began stands before it) and in which every condition holds. The search goes
forward: from a set of operations already placed and the values that they leave, it places one of those
that may come next. A set and its values are never visited twice. An operation that changes nothing and
fits is placed at once, for that can never do harm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .operations import NOTHING, Condition, Operation

STEPS_MAX = 500_000


class Node(NamedTuple):
    """A point of the search.

    Attributes:
        first: every required operation before this one is placed.
        mask: bit ``i`` is set if required operation ``first + i`` is placed.
        used: bit ``i`` is set if optional operation ``i`` is placed.
        values: what the registers hold.
    """

    first: int
    mask: int
    used: int
    values: tuple[str, ...]


class Stuck(NamedTuple):
    """Why there is no linearization: as far as one gets, nothing that may come next fits.

    Attributes:
        placed: how many operations could be placed at most.
        values: what the registers hold then.
        blocked: the operations one of which must come next.
    """

    placed: int
    values: tuple[str, ...]
    blocked: tuple[Operation, ...]


class SearchResult(NamedTuple):
    """What the search found: linearizable if neither stuck nor out of steps."""

    steps: int
    stuck: Stuck | None = None
    exhausted: bool = False


def linearize(operations: Sequence[Operation], registers: int, steps_max: int = STEPS_MAX) -> SearchResult:
    """Searches for a linearization.

    Args:
        operations: in any order; every register holds :data:`NOTHING` before them.
        registers: how many registers there are.
        steps_max: how many points to visit at most; beyond that the result is ``exhausted``.
    """
    required = sorted((op for op in operations if not op.optional), key=lambda op: (op.start_ns, op.end_ns))
    optional = sorted((op for op in operations if op.optional), key=lambda op: op.start_ns)
    root = _settle(required, Node(0, 0, 0, (NOTHING,) * registers))
    stack = [root]
    visited = {root}
    deepest, depth = root, -1
    steps = 0
    while stack:
        node = stack.pop()
        if node.first == len(required):
            return SearchResult(steps)
        steps += 1
        if steps > steps_max:
            return SearchResult(steps, exhausted=True)
        placed = node.first + node.mask.bit_count()
        if placed > depth:
            deepest, depth = node, placed
        for child in reversed(_children(required, optional, node)):
            if child not in visited:
                visited.add(child)
                stack.append(child)
    candidates, _ = _candidates(required, deepest)
    blocked = sorted((required[index] for index in candidates), key=lambda op: op.end_ns)
    return SearchResult(steps, Stuck(depth, deepest.values, tuple(blocked)))


def _candidates(required: Sequence[Operation], node: Node) -> tuple[list[int], float]:
    """Returns the required operations that may come next, and the time by which one of them must."""
    found: list[int] = []
    until = math.inf
    index, mask = node.first, node.mask
    while index < len(required) and required[index].start_ns <= until:
        if not mask & 1:
            found.append(index)
            until = min(until, required[index].end_ns)
        index += 1
        mask >>= 1
    return found, until


def _children(required: Sequence[Operation], optional: Sequence[Operation], node: Node) -> list[Node]:
    candidates, until = _candidates(required, node)
    children = []
    for index in candidates:
        if _fits(required[index], node.values):
            values = _after(required[index], node.values)
            children.append(_settle(required, _placed(node, index)._replace(values=values)))
    for index, operation in enumerate(optional):
        if operation.start_ns > until:
            break
        if not node.used >> index & 1 and _fits(operation, node.values):
            fresh = node._replace(used=node.used | 1 << index, values=_after(operation, node.values))
            children.append(_settle(required, fresh))
    return children


def _settle(required: Sequence[Operation], node: Node) -> Node:
    """Places every operation that changes nothing, fits and may come next."""
    while True:
        candidates, _ = _candidates(required, node)
        fitting = [i for i in candidates if not required[i].sets and _fits(required[i], node.values)]
        if not fitting:
            return node
        for index in fitting:
            node = _placed(node, index)


def _placed(node: Node, index: int) -> Node:
    first, mask = node.first, node.mask | 1 << index - node.first
    while mask & 1:
        first += 1
        mask >>= 1
    return node._replace(first=first, mask=mask)


def _fits(operation: Operation, values: tuple[str, ...]) -> bool:
    return all(values[register] == value for register, value in operation.requires) and all(
        values[register] != value for register, value in operation.differs
    )


def _after(operation: Operation, values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) == 1:
        return (operation.sets[-1].value,) if operation.sets else values
    changed = list(values)
    for register, value in operation.sets:
        changed[register] = value
    return tuple(changed)


def holds(conditions: Sequence[Condition], values: tuple[str, ...]) -> list[Condition]:
    """Returns the conditions that ``values`` contradict."""
    return [condition for condition in conditions if values[condition.register] != condition.value]
