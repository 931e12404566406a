"""The active window: the newest units, verbatim, as many as turns, steps and budget allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .units import Unit


class Limits(NamedTuple):
    """How far back a window reaches.

    Attributes:
        turns: most turns; messages outside any turn count as none.
        steps: most units.
    """

    turns: int = 5
    steps: int = 30


WINDOW_DEFAULT = Limits()
"""Five turns, thirty steps."""


class Room(NamedTuple):
    """Tokens for the units of a window.

    Attributes:
        older: for what came before the current input.
        pool: for that and the steps since, together.
    """

    older: int
    pool: int


def reach(units: Sequence[Unit], limits: Limits) -> int:
    """Returns the index of the oldest unit that turns and steps allow, whatever the budget."""
    turns: set[int] = set()
    for index in range(len(units) - 1, -1, -1):
        if len(units) - index > limits.steps:
            return index + 1
        turn = units[index].turn
        if turn and turn not in turns:
            if len(turns) == limits.turns:
                return index + 1
            turns.add(turn)
    return 0


def choose(
    units: Sequence[Unit],
    *,
    start: int,
    oldest: int,
    kept: frozenset[int],
    room: Room,
    cost: Callable[[Unit], int],
) -> int:
    """Returns the index at which the window begins; what is ``kept`` is shown besides.

    Args:
        units: the oldest first.
        start: where what belongs to the current input begins.
        oldest: the window begins here or later; see :func:`reach`.
        kept: indexes of units that are shown in any case and have their tokens already.
        room: tokens for the rest.
        cost: tokens of a unit.
    """
    spent = 0
    older = 0
    for index in range(len(units) - 1, oldest - 1, -1):
        if index in kept:
            continue
        tokens = cost(units[index])
        if index < start:
            older += tokens
        spent += tokens
        if older > room.older or spent > room.pool:
            return index + 1
    return min(oldest, len(units))
