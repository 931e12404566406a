"""What the rules of the controller look at: one item's past, and the session's situation. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..sessions.types import TransitionAction

WINDOW_TURNS = 20
"""Accesses are counted over so many turns."""

IMPORTANCE_DEFAULT = 0.5


class ItemState(NamedTuple):
    """One item of working memory, as the rules see it.

    Attributes:
        key: its key.
        kind: its attribute ``kind``; else the first segment of its key.
        tokens: its size.
        importance: 0 to 1, its attribute; 0.5 if it has none.
        created_turn: the turn in which its present life began.
        access_turn: the newest turn in which it was read or written by name, or reported as used.
        accesses: in how many of the last 20 turns that happened.
        relevance: how close it is to the open goals, 0 to 1.
        pinned: whether its writer pinned it.
        open_goal: whether it is a goal that is not done.
        awaited: whether a pending tool call is based on it.
        control: whether it is part of the control state or profile, which no rule touches.
    """

    key: str
    kind: str
    tokens: int
    importance: float
    created_turn: int
    access_turn: int
    accesses: int
    relevance: float = 0.0
    pinned: bool = False
    open_goal: bool = False
    awaited: bool = False
    control: bool = False


class Situation(NamedTuple):
    """The session when the rules are asked.

    Attributes:
        turn: the newest turn.
        grace_turns: no item younger than this is a candidate.
        budget_tokens: what the newest context left for working memory; 0 if none was assembled yet.
        utilizations: tokens used over tokens allowed by the newest contexts, at most 5, the oldest first.
        tokens_spent: tokens of all contexts of the session. This and the next figure are for policies; the rules ask
            what each item is worth.
        accessed: how many items were asked for in this turn.
    """

    turn: int
    grace_turns: int
    budget_tokens: int = 0
    utilizations: tuple[float, ...] = ()
    tokens_spent: int = 0
    accessed: int = 0


class Verdict(NamedTuple):
    """What is to become of one item.

    Attributes:
        key: the item's key.
        action: what is done.
        reason: why, as a word.
        explanation: why, in a sentence.
        score: 0 to 1; the lowest go first.
        group: items with the same group are compressed into one; empty otherwise.
    """

    key: str
    action: TransitionAction
    reason: str
    explanation: str
    score: float
    group: str = ""


Instructions = Mapping[str, TransitionAction]
"""What a caller wants done with items, by key."""
