"""Makes rolling summaries by asking a model."""

from __future__ import annotations

from collections.abc import Sequence

from ...ports.models import ModelError, SourceMessage, SummariserError, SummaryText, Tokenizer
from ..fitting import fitted
from .answer import parse_answer
from .budget import CallBudget
from .completions import Asks
from .prompt import SCHEMA, data, in_steps, instructions

STEPS_MAX = 8
"""So many calls make one summary at most."""


class EndpointSummariser:
    """The summariser that asks a model: never twice for the same, and within its budget."""

    def __init__(self, completions: Asks, budget: CallBudget, *, input_tokens_max: int) -> None:
        """Makes one.

        Args:
            completions: asks the model.
            budget: allows each call.
            input_tokens_max: the most that one call may be given; more is summarised in steps.
        """
        self._completions = completions
        self._budget = budget
        self._input_tokens_max = input_tokens_max

    @property
    def name(self) -> str:
        """The model's name."""
        return self._completions.model

    async def summarise(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        """Returns a summary of at most ``tokens_max`` tokens, as rendered.

        Raises:
            SummariserError: there is nothing or too much to summarise, the budget is spent, or the model was slow, away
                or wrong.
        """
        # Each step also holds the summary so far and what JSON adds; half of the room is always enough for a step.
        steps = in_steps(messages, self._input_tokens_max // 2, tokenizer)
        if not steps and previous is None:
            raise SummariserError("messages: there are none")
        if len(steps) > STEPS_MAX:
            raise SummariserError(
                f"messages: more than {STEPS_MAX} calls of {self._input_tokens_max} tokens would be needed"
            )
        summary = previous
        for step in steps or [()]:
            summary = await self._step(summary, step, tokens_max, tokenizer)
        assert summary is not None
        return fitted(summary, tokens_max, tokenizer)

    async def _step(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        system, user = instructions(tokens_max), data(previous, messages)
        # The structure of JSON, and a model that thinks before it answers, take their share.
        answer_tokens = 4 * tokens_max + 1024
        try:
            with self._budget.call(tokenizer.count(system) + tokenizer.count(user) + answer_tokens) as entry:
                reply = await self._completions.ask(system, user, SCHEMA, answer_tokens)
                self._budget.settle(entry, reply.tokens)
                return parse_answer(reply.text)
        except ModelError as error:
            raise SummariserError(str(error), passing=error.passing) from None
