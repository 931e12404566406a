"""The controller's rules: which items stay, and what becomes of the others. Pure: equal input, equal verdicts.

An item is a *candidate* once it is older than the grace age and either nobody has asked for it for more than 10
turns, or it was asked for in fewer than 2 of the last 20. Pinned items, open goals and what a pending tool call is
based on never are. What becomes of a candidate depends on what it is worth and on how short memory is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..sessions.types import TransitionAction
from .facts import WINDOW_TURNS, Instructions, ItemState, Situation, Verdict

NAME = "rules/1"

IDLE_TURNS = 10
"""Idle for more turns than this, an item is a candidate."""

QUIET_TURNS = 3
"""Idle for so many turns, an item has low priority: it is compressed before others are."""

ACCESSES_MIN = 2
ACTIVE_MIN = 50
"""With no more items than this nobody has to go for being asked for rarely."""

ACTIVE_MAX = 100
WORKING_SHARE_MAX = 0.7
"""Of the budget left over, above which working memory is compressed."""

UTILIZATION_MAX = 0.9
UTILIZATIONS_MIN = 3
"""So many contexts in a row above the bound mean that it stays there."""

WORTH_KEEPING = 0.3
"""Below this importance a candidate is dropped; a fact of that kind would be refused anyway."""

GOAL_RELEVANCE = 0.5
PASSING_KINDS = frozenset({"scratch", "draft", "tmp", "cache"})
COMPRESSED_KIND = "summary"
_ROOM = "room"

# What an item's score is made of. Its writer's word counts most; nothing else is known of what it is for.
_IMPORTANCE, _RECENCY, _FREQUENCY, _RELEVANCE = 0.4, 0.3, 0.15, 0.15


def score(item: ItemState, turn: int) -> float:
    """Returns how much an item is worth to working memory, 0 to 1."""
    idle = max(0, turn - item.access_turn)
    recency = max(0.0, 1 - idle / WINDOW_TURNS)
    frequency = min(1.0, item.accesses / WINDOW_TURNS * 2)
    parts = _IMPORTANCE * item.importance + _RECENCY * recency + _FREQUENCY * frequency + _RELEVANCE * item.relevance
    return round(parts, 6)


def judge(items: Iterable[ItemState], at: Situation, instructions: Instructions | None = None) -> tuple[Verdict, ...]:
    """Returns one verdict for each item, by ascending key.

    Args:
        items: all of working memory, in any order.
        at: the session's situation.
        instructions: what a caller wants done; with any given, all other items stay.
    """
    known = sorted(items)
    if instructions:
        return tuple(_instructed(item, at, instructions) for item in known)
    short = _memory_is_short(known, at)
    verdicts = [_first_verdict(item, at, short, len(known)) for item in known]
    verdicts = _rarest_gone(known, verdicts, at)
    verdicts = _within_the_limit(known, verdicts, at)
    if short:
        verdicts = _compressed(known, verdicts, at)
    return tuple(verdicts)


def protection(item: ItemState) -> tuple[str, str] | None:
    """Returns why an item may not be touched, as a word and in a sentence; None if it may."""
    if item.control:
        return "control", "It says how the session is run."
    if item.pinned:
        return "pinned", "Its writer pinned it."
    if item.open_goal:
        return "open_goal", "It is a goal that is not done."
    if item.awaited:
        return "pending_call", "A tool call that has no result yet is based on it."
    return None


def is_candidate(item: ItemState, at: Situation) -> bool:
    """Returns whether an item may leave working memory because it is hardly asked for."""
    return _may_go(item, at) and (_idle(item, at) > IDLE_TURNS or item.accesses < ACCESSES_MIN)


def _instructed(item: ItemState, at: Situation, instructions: Instructions) -> Verdict:
    worth = score(item, at.turn)
    wanted = instructions.get(item.key)
    if wanted is None:
        return Verdict(item.key, TransitionAction.RETAIN, "not_asked", "The instruction does not name it.", worth)
    if (why := protection(item)) is not None and wanted is not TransitionAction.RETAIN:
        return Verdict(item.key, TransitionAction.RETAIN, why[0], f"{why[1]} So it stays, as instructed or not.", worth)
    group = item.kind if wanted is TransitionAction.COMPRESS else ""
    return Verdict(item.key, wanted, "instructed", "The caller wants it so.", worth, group)


def _memory_is_short(items: Sequence[ItemState], at: Situation) -> bool:
    tokens = sum(item.tokens for item in items)
    newest = at.utilizations[-UTILIZATIONS_MIN:]
    return (at.budget_tokens > 0 and tokens > WORKING_SHARE_MAX * at.budget_tokens) or (
        len(newest) == UTILIZATIONS_MIN and min(newest) > UTILIZATION_MAX
    )


def _first_verdict(item: ItemState, at: Situation, short: bool, active: int) -> Verdict:
    worth = score(item, at.turn)

    def retain(reason: str, explanation: str) -> Verdict:
        return Verdict(item.key, TransitionAction.RETAIN, reason, explanation, worth)

    if (why := protection(item)) is not None:
        return retain(*why)
    age, idle = at.turn - item.created_turn, _idle(item, at)
    if age < at.grace_turns:
        return retain("new", f"It is {_turns(age)} old, and none is judged before {at.grace_turns}.")
    idle_long = idle > IDLE_TURNS
    if not is_candidate(item, at):
        quiet = "quiet" if idle >= QUIET_TURNS else "in_use"
        return retain(quiet, _rarely(item))
    why_candidate = f"Nobody has asked for it for {idle} turns." if idle_long else _rarely(item)
    if not idle_long and not short:
        return retain(_ROOM, f"{why_candidate} There is room for it.")
    if item.relevance >= GOAL_RELEVANCE and not short and active <= ACTIVE_MAX:
        return retain("near_goal", f"{why_candidate} But it is close to an open goal.")
    return _leaving(item, "idle" if idle_long else "rarely_used", why_candidate, worth)


def _leaving(item: ItemState, reason: str, explanation: str, worth: float) -> Verdict:
    if item.importance < WORTH_KEEPING or item.kind in PASSING_KINDS:
        return Verdict(item.key, TransitionAction.DROP, reason, f"{explanation} It is not worth a fact.", worth)
    return Verdict(item.key, TransitionAction.ARCHIVE, reason, f"{explanation} It becomes a fact candidate.", worth)


def _rarest_gone(items: Sequence[ItemState], verdicts: list[Verdict], at: Situation) -> list[Verdict]:
    """Lets the lowest-scored of those go that were asked for rarely, until there is room for the others."""
    staying = sum(verdict.action is TransitionAction.RETAIN for verdict in verdicts)
    rare = sorted((v.score, n) for n, v in enumerate(verdicts) if v.reason == _ROOM)
    for worth, n in rare[: max(0, staying - ACTIVE_MIN)]:
        if items[n].relevance < GOAL_RELEVANCE or staying > ACTIVE_MAX:
            explanation = f"{_rarely(items[n])} More than {ACTIVE_MIN} items are active."
            verdicts[n] = _leaving(items[n], "rarely_used", explanation, worth)
    return verdicts


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _rarely(item: ItemState) -> str:
    return f"It was asked for in {item.accesses} of the last {WINDOW_TURNS} turns."


def _idle(item: ItemState, at: Situation) -> int:
    return max(0, at.turn - item.access_turn)


def _may_go(item: ItemState, at: Situation) -> bool:
    return protection(item) is None and at.turn - item.created_turn >= at.grace_turns


def _within_the_limit(items: Sequence[ItemState], verdicts: list[Verdict], at: Situation) -> list[Verdict]:
    """Lets the lowest-scored go until no more than the limit stay, as far as there are any that may."""
    staying = [n for n, verdict in enumerate(verdicts) if verdict.action is TransitionAction.RETAIN]
    surplus = len(staying) - ACTIVE_MAX
    if surplus <= 0:
        return verdicts
    may_go = sorted((verdicts[n].score, n) for n in staying if _may_go(items[n], at))
    for worth, n in may_go[:surplus]:
        explanation = f"{len(items)} items are active, the limit is {ACTIVE_MAX}, and its score is among the lowest."
        verdicts[n] = _leaving(items[n], "over_limit", explanation, worth)
    return verdicts


def _compressed(items: Sequence[ItemState], verdicts: list[Verdict], at: Situation) -> list[Verdict]:
    """Has items of one kind that would leave, or are quiet, compressed into one, where there are several."""
    groups: dict[str, list[int]] = {}
    for n, (item, verdict) in enumerate(zip(items, verdicts, strict=True)):
        quiet = verdict.action is TransitionAction.RETAIN and at.turn - item.access_turn >= QUIET_TURNS
        going = verdict.action is TransitionAction.ARCHIVE or (quiet and _may_go(item, at))
        if going and item.kind != COMPRESSED_KIND:
            groups.setdefault(item.kind, []).append(n)
    for kind, members in groups.items():
        if len(members) < 2:
            continue
        for n in members:
            explanation = f"Memory is short; {len(members)} items of kind {kind!r} become one summary."
            verdicts[n] = Verdict(
                items[n].key, TransitionAction.COMPRESS, "memory_short", explanation, verdicts[n].score, kind
            )
    return verdicts
