"""When messages are summarised, and up to which: pure rules.

What leaves the window must be covered *before* it leaves, or a context would have to say that it is missing. So a
summary is due while what it will cover is still in the window, and it covers a few units more than it must, so that
the next one is not due at once. Nothing is split: a tool call is covered together with its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .types import Message, Role, SessionSettings

_PATIENCE_UNITS = 64
"""Of more messages to come, a call without a result is taken to have none after this many units."""


class Reach(NamedTuple):
    """How much may stay uncovered: at most so many turns and units, the newest ones."""

    turns: int
    units: int


class Pace(NamedTuple):
    """When a summary is due, and how far it then goes.

    Attributes:
        due: more than this uncovered makes a summary due.
        left: it leaves at most this much.
    """

    due: Reach
    left: Reach


def steady(settings: SessionSettings) -> Pace:
    """Returns the pace at the end of turns: early enough that a whole turn may follow before the next one."""
    turns, units = settings.window_turns, settings.window_steps
    return Pace(Reach(turns - 1, units // 2), Reach(max(turns - 2, turns // 2 if turns > 1 else 0), units // 3))


def on_request(settings: SessionSettings) -> Pace:
    """Returns the pace of a caller that wants covered what has left the window."""
    window = Reach(settings.window_turns, settings.window_steps)
    return Pace(window, window)


URGENT = Pace(Reach(1_000_000, 2), Reach(1_000_000, 1))
"""The pace when a context had no room for the window: all but the newest unit."""


def to_cover(messages: Sequence[Message], pace: Pace) -> int:
    """Returns how many of the uncovered messages a summary should cover now; 0 if none is due.

    Args:
        messages: those that no summary covers, in order; the last is the newest of the transcript.
        pace: when and how far.
    """
    units = _units(messages)
    if _first_within(messages, units, pace.due) == 0:
        return 0
    # A call that has waited longer than that is covered without its result, which then is news of its own.
    return _clean(units, _first_within(messages, units, pace.left), pace.due.units)


def whole(messages: Sequence[Message]) -> int:
    """Returns how many of the messages, of which more follow, can be covered without splitting a unit."""
    # What goes on after the last one is not known; so much is certain to be whole.
    return _clean(_units(messages), len(messages), _PATIENCE_UNITS) or len(messages)


class _Units(NamedTuple):
    """For each message the index of the one with which its unit begins; and the calls that have no result yet."""

    begins: list[int]
    waiting: frozenset[int]


def _units(messages: Sequence[Message]) -> _Units:
    begins: list[int] = []
    calls: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            # Whose author has gone on waits no more; a late result is a unit of its own.
            calls = {call: at for call, at in calls.items() if messages[at].author != message.author}
        joins = message.role is Role.TOOL and message.tool_call_id in calls
        begins.append(calls.pop(message.tool_call_id) if joins else index)
        calls |= {use.call_id: index for use in message.tool_calls}
    return _Units(begins, frozenset(calls.values()))


def _first_within(messages: Sequence[Message], units: _Units, reach: Reach) -> int:
    """Returns the index from which on the messages are within the reach."""
    count = 0
    turns: set[int] = set()
    for index in range(len(messages) - 1, -1, -1):
        count += units.begins[index] == index
        if messages[index].turn:
            turns.add(messages[index].turn)
        if count > reach.units or len(turns) > reach.turns:
            return index + 1
    return 0


def _clean(units: _Units, wanted: int, patience: int) -> int:
    """Returns the greatest index up to ``wanted`` before which no unit goes on."""
    ends = list(range(len(units.begins)))
    after = 0
    for index in range(len(ends) - 1, -1, -1):
        begin = units.begins[index]
        ends[begin] = max(ends[begin], index)
        if index in units.waiting and after <= patience:
            ends[index] = len(ends)
        after += begin == index
    clean = reached = 0
    for index in range(wanted):
        reached = max(reached, ends[index])
        if reached <= index:
            clean = index + 1
    return clean
