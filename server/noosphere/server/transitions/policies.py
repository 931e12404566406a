"""Asks a policy beside the rules, and keeps it within them: what is protected stays, whatever a model says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog

from ..ports.models import PolicyError, PolicyItem, PolicySession, TransitionPolicy
from ..sessions.types import TransitionAction
from .facts import ItemState, Situation, Verdict
from .rules import COMPRESSED_KIND, NAME, is_candidate
from .states import LiveItem

log = structlog.get_logger(__name__)

TIMEOUT_SECONDS = 10.0
GOALS_MAX = 16
TEXT_CHARS_MAX = 500
"""Of each item and goal; whoever decides about many sees the beginning of each."""

_ACTIONS = {
    action.value: action
    for action in (
        TransitionAction.RETAIN,
        TransitionAction.ARCHIVE,
        TransitionAction.COMPRESS,
        TransitionAction.DROP,
    )
}


class Adviser:
    """Lets a policy decide about the candidates of one run.

    It asks once, however often the run begins anew because somebody wrote meanwhile: a call of a model costs time and
    money. What has changed since it was asked is then left to the rules.

    Args:
        policy: whom to ask; None leaves all to the rules.
    """

    def __init__(self, policy: TransitionPolicy | None) -> None:
        self._policy = policy
        self._asked = False
        self._wanted: Mapping[PolicyItem, TransitionAction] | None = None

    async def advised(
        self, items: Sequence[LiveItem], states: Sequence[ItemState], verdicts: Sequence[Verdict], at: Situation
    ) -> tuple[str, tuple[Verdict, ...]]:
        """Returns who has decided, and the verdicts with what a policy decides otherwise.

        It is asked about candidates, and about what else the rules let go; without any it is not asked. If it is slow,
        wrong or away, the rules' verdicts stand.

        Args:
            items: all items, in the order of the verdicts.
            states: the same as the rules see them.
            verdicts: what the rules say.
            at: the session's situation.
        """
        candidates = {
            n: _shown(items[n], state, at.turn)
            for n, (state, verdict) in enumerate(zip(states, verdicts, strict=True))
            if is_candidate(state, at) or verdict.action is not TransitionAction.RETAIN
        }
        if self._policy is None or not candidates:
            return NAME, tuple(verdicts)
        if not self._asked:
            self._asked = True
            goals = tuple(item.text[:TEXT_CHARS_MAX] for item in items if item.open_goal)[:GOALS_MAX]
            newest = at.utilizations[-1] if at.utilizations else 0.0
            session = PolicySession(at.turn, goals, at.tokens_spent, newest, at.accessed)
            self._wanted = await _answer(self._policy, session, tuple(candidates.values()))
        if self._wanted is None:
            return NAME, tuple(verdicts)
        decided = list(verdicts)
        for n, shown in candidates.items():
            action = self._wanted.get(shown)
            if action is not None and action is not verdicts[n].action:
                group = states[n].kind if action is TransitionAction.COMPRESS else ""
                explanation = f"The policy {self._policy.name!r} wants it so."
                decided[n] = Verdict(states[n].key, action, "policy", explanation, verdicts[n].score, group)
        return self._policy.name, _without_lone_groups(decided, verdicts)


def _without_lone_groups(decided: Sequence[Verdict], verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Returns the verdicts; what would be compressed with nothing else, or is a summary already, stays as it is."""
    members = Counter(verdict.group for verdict in decided if verdict.group)
    return tuple(
        wanted
        if not wanted.group or (members[wanted.group] > 1 and wanted.group != COMPRESSED_KIND)
        else _as_it_is(rule)
        for wanted, rule in zip(decided, verdicts, strict=True)
    )


def _as_it_is(rule: Verdict) -> Verdict:
    if rule.action is not TransitionAction.COMPRESS:
        return rule
    explanation = f"{rule.explanation} But the policy wants nothing else to be part of it."
    return Verdict(rule.key, TransitionAction.RETAIN, "policy", explanation, rule.score)


async def _answer(
    policy: TransitionPolicy, session: PolicySession, asked: Sequence[PolicyItem]
) -> dict[PolicyItem, TransitionAction] | None:
    """Returns what a policy wants done with the items that it names; None if it has not decided."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer = await policy.decide(session, asked)
        wanted = {key: _ACTIONS[action] for key, action in answer.items()}
    except PolicyError:
        # Why, it has told the log itself: once, not at the end of each turn.
        log.debug("a policy has not decided; the rules do", policy=policy.name)
        return None
    except (TimeoutError, KeyError, AttributeError, TypeError) as error:
        # Not what it said: that may quote items.
        log.warning("a policy has not decided; the rules do", policy=policy.name, error=type(error).__name__)
        return None
    return {item: wanted[item.key] for item in asked if item.key in wanted}


def _shown(item: LiveItem, state: ItemState, turn: int) -> PolicyItem:
    return PolicyItem(
        state.key,
        state.kind,
        item.text[:TEXT_CHARS_MAX],
        state.tokens,
        state.importance,
        turn - state.access_turn,
        turn - state.created_turn,
        state.accesses,
    )
