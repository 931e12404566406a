"""Decides about working memory by asking a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import structlog

from ...ports.models import ModelError, PolicyError, PolicyItem, PolicySession, Tokenizer
from ...ports.runtime import Clock
from .budget import CallBudget
from .completions import Asks
from .decisions import INSTRUCTIONS, SCHEMA, data, parse_decisions, row

log = structlog.get_logger(__name__)

VERSION = "1"
"""Of what a model is asked; it stands beside the model's name."""

REST_MS = 30_000
REST_MS_MAX = 15 * 60_000
_REST_DOUBLINGS_MAX = 5
_DECISION_TOKENS = 32
_FRAME_TOKENS = 128
"""Of the JSON around goals and items, the session's figures included."""


class EndpointPolicy:
    """The policy that asks a model: once, within its budget, and not while it rests after a failure.

    The end of a turn waits for it, so one that has failed is not asked for a while: 30 s, then twice as long, up to 15
    minutes.

    Args:
        completions: asks the model.
        budget: allows each call.
        tokenizer: counts tokens.
        input_tokens_max: the most that a call may be given; of more items those are asked about that are idle longest.
        clock: tells when a model may be asked again.
    """

    def __init__(
        self, completions: Asks, budget: CallBudget, *, tokenizer: Tokenizer, input_tokens_max: int, clock: Clock
    ) -> None:
        self._completions = completions
        self._budget = budget
        self._tokenizer = tokenizer
        self._input_tokens_max = input_tokens_max
        self._clock = clock
        self._failures = 0
        self._rests_until_ms = 0

    @property
    def name(self) -> str:
        """The model's name, with the version of what it is asked."""
        return f"{self._completions.model}/{VERSION}"

    async def decide(self, session: PolicySession, items: Sequence[PolicyItem]) -> Mapping[str, str]:
        """Returns what becomes of items, by key; never that one is dropped.

        Raises:
            PolicyError: the model rests, its budget is spent, or it was slow, away or wrong.
        """
        if self._clock.monotonic_ms() < self._rests_until_ms:
            raise PolicyError("the model rests after a failure")
        asked, user = self._fitting(session, items)
        if not asked:
            return {}
        answer_tokens = 1024 + _DECISION_TOKENS * len(asked)
        tokens = self._tokenizer.count(INSTRUCTIONS) + self._tokenizer.count(user) + answer_tokens
        called = False
        try:
            with self._budget.call(tokens) as entry:
                called = True
                reply = await self._completions.ask(INSTRUCTIONS, user, SCHEMA, answer_tokens)
                self._budget.settle(entry, reply.tokens)
                decided = parse_decisions(reply.text, asked)
        except ModelError as error:
            if called:
                self._rest(str(error))
            raise PolicyError(str(error)) from None
        self._failures = 0
        return decided

    def _rest(self, reason: str) -> None:
        rest_ms = min(REST_MS_MAX, REST_MS << min(self._failures, _REST_DOUBLINGS_MAX))
        self._failures += 1
        self._rests_until_ms = self._clock.monotonic_ms() + rest_ms
        log.warning("the model that decides about working memory rests after a failure", reason=reason, rest_ms=rest_ms)

    def _fitting(self, session: PolicySession, items: Sequence[PolicyItem]) -> tuple[list[PolicyItem], str]:
        """Returns the items that a call has room for, and what the model is given."""
        left = self._input_tokens_max - self._tokenizer.count(INSTRUCTIONS) - _FRAME_TOKENS
        # Goals may take half of it: without items there is nothing to decide.
        goals: list[str] = []
        goals_left = left // 2
        for goal in session.goals:
            goals_left -= self._tokens(goal)
            if goals_left < 0:
                break
            goals.append(goal)
            left -= self._tokens(goal)
        asked: list[PolicyItem] = []
        rows: list[dict[str, object]] = []
        for item in sorted(items, key=lambda one: (-one.idle_turns, one.accesses, one.key)):
            shown = row(len(asked), item)
            left -= self._tokens(shown)
            if left < 0:
                break
            asked.append(item)
            rows.append(shown)
        return asked, data(session._replace(goals=tuple(goals)), rows)

    def _tokens(self, value: object) -> int:
        return self._tokenizer.count(json.dumps(value, ensure_ascii=False)) + 2
