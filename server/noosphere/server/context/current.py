"""Where the current input stands in a transcript, and what has come since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noosphere.consistency import invalid

from .units import Unit, UnitKind


class Current(NamedTuple):
    """The current input.

    Attributes:
        start: the units from here on belong to it: itself, if it is one of them, and the steps that it led to.
        in_place: whether ``units[start]`` is the input.
        given: its text, if it is not in the transcript; empty if it is, or if there is none.
    """

    start: int
    in_place: bool
    given: str


def locate(units: Sequence[Unit], given: str) -> Current:
    """Finds the current input, which is shown once: in its place, if it has led to tool calls, else last.

    Args:
        units: the oldest first, without those of the system role.
        given: the input as the caller gives it; empty if the transcript's newest user message is it.

    Raises:
        Refusal: INVALID_FIELD, if there is nothing that the model could answer.
    """
    run = len(units)
    for index in range(len(units) - 1, -1, -1):
        unit = units[index]
        if unit.kind in (UnitKind.CALL, UnitKind.LATE):
            run = index
        elif unit.kind is UnitKind.USER:
            if not given or unit.first.text == given:
                return Current(index, True, "")
            break
        elif unit.kind is UnitKind.OWN:
            if not given and index == len(units) - 1:
                raise invalid("input", "is empty, and the newest message is the agent's own: nothing to answer")
            if not given:
                # No input: what is there to answer has come from aside, or late.
                return Current(index + 1, False, "")
            break
    if not given and not units:
        raise invalid("input", "is empty, and the session has no messages: nothing to answer")
    # What is given anew comes last, unless it is what the calls under way were made for.
    return Current(run, False, given)


class Step(NamedTuple):
    """A unit of the current input's thread, and what has come from aside before its turn was over."""

    asides: tuple[Unit, ...]
    unit: Unit


def in_steps(tail: Sequence[Unit]) -> tuple[list[Step], tuple[Unit, ...]]:
    """Orders what belongs to the current input, so that the newest message of the thread is the last.

    What comes from aside is put before the unit that was the newest when it came. There it stays, whatever comes later,
    so that the next context begins with this one's bytes.

    Returns:
        The steps, and the units from aside if there is no step at all.
    """
    steps: list[Step] = []
    early: list[Unit] = []
    for unit in tail:
        if unit.threaded:
            steps.append(Step(tuple(early), unit))
            early = []
        elif steps:
            steps[-1] = Step((*steps[-1].asides, unit), steps[-1].unit)
        else:
            early.append(unit)
    return steps, tuple(early)
