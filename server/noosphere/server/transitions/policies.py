"""Asks a policy beside the rules, and keeps it within them: what is protected stays, whatever a model says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from ..ports.models import PolicyError, PolicyItem, PolicySession, TransitionPolicy
from ..sessions.types import TransitionAction
from .facts import ItemState, Situation, Verdict
from .rules import NAME, protection
from .states import LiveItem

log = structlog.get_logger(__name__)

TIMEOUT_SECONDS = 10.0
_TEXT_CHARS_MAX = 500
_ACTIONS = {
    action.value: action
    for action in (
        TransitionAction.RETAIN,
        TransitionAction.ARCHIVE,
        TransitionAction.COMPRESS,
        TransitionAction.DROP,
    )
}


async def advised(
    policy: TransitionPolicy | None,
    items: Sequence[LiveItem],
    states: Sequence[ItemState],
    verdicts: Sequence[Verdict],
    at: Situation,
) -> tuple[str, tuple[Verdict, ...]]:
    """Returns who has decided, and the verdicts with what a policy decides otherwise.

    It is asked about the items that may leave; if it is slow, wrong or away, the rules' verdicts stand.

    Args:
        policy: whom to ask; None leaves all to the rules.
        items: all items, in the order of the verdicts.
        states: the same as the rules see them.
        verdicts: what the rules say.
        at: the session's situation.
    """
    movable = [n for n, state in enumerate(states) if _may_leave(state, at)]
    if policy is None or not movable:
        return NAME, tuple(verdicts)
    goals = tuple(item.text for item in items if item.open_goal)
    newest = at.utilizations[-1] if at.utilizations else 0.0
    session = PolicySession(at.turn, goals, at.tokens_spent, newest, at.accessed)
    asked = [_shown(items[n], states[n], at.turn) for n in movable]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer = await policy.decide(session, asked)
        wanted = {key: _ACTIONS[action] for key, action in answer.items()}
    except (PolicyError, TimeoutError, KeyError, AttributeError, TypeError) as error:
        # Not what it said: that may quote items.
        log.warning("a policy has not decided; the rules do", policy=policy.name, error=type(error).__name__)
        return NAME, tuple(verdicts)
    decided = list(verdicts)
    for n in movable:
        action = wanted.get(states[n].key)
        if action is not None and action is not verdicts[n].action:
            group = states[n].kind if action is TransitionAction.COMPRESS else ""
            explanation = f"The policy {policy.name!r} wants it so."
            decided[n] = Verdict(states[n].key, action, "policy", explanation, verdicts[n].score, group)
    return policy.name, tuple(decided)


def _may_leave(state: ItemState, at: Situation) -> bool:
    return protection(state) is None and at.turn - state.created_turn >= at.grace_turns


def _shown(item: LiveItem, state: ItemState, turn: int) -> PolicyItem:
    return PolicyItem(
        state.key,
        state.kind,
        item.text[:_TEXT_CHARS_MAX],
        state.tokens,
        state.importance,
        turn - state.access_turn,
        turn - state.created_turn,
        state.accesses,
    )
