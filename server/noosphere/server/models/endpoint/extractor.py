"""Extracts claims by asking a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ports.models import (
    EXTRACTED_CLAIMS_MAX,
    ExtractedClaim,
    Extraction,
    ExtractionSource,
    ExtractorError,
    ModelError,
    Tokenizer,
)
from .budget import CallBudget
from .claims import SCHEMA, data, instructions, parse_claims
from .completions import Asks

STEPS_MAX = 32
"""So many calls make one extraction at most."""

ANSWER_TOKENS_MAX = 8_192
"""Enough for 100 claims; more is cut off, which is an error."""

_SOURCE_TOKENS = 16
VERSION = "1"
"""Of what a model is asked; it stands beside the model's name."""


class EndpointExtractor:
    """The extractor that asks a model: each text once, within its budget; what it cannot quote is dropped.

    Args:
        completions: asks the model.
        budget: allows each call.
        tokenizer: counts tokens.
        input_tokens_max: the most that one call may be given; more is extracted in pieces.
    """

    def __init__(self, completions: Asks, budget: CallBudget, *, tokenizer: Tokenizer, input_tokens_max: int) -> None:
        self._completions = completions
        self._budget = budget
        self._tokenizer = tokenizer
        self._input_tokens_max = input_tokens_max

    @property
    def name(self) -> str:
        """The model's name, with the version of what it is asked."""
        return f"{self._completions.model}/{VERSION}"

    async def extract(self, sources: Sequence[ExtractionSource], owner: str) -> Extraction:
        """Returns what the sources claim; see the port.

        Raises:
            ExtractorError: there is too much to read, the budget is spent, or the model was slow, away or wrong.
        """
        # The instructions, and what JSON adds, have the other half of the room.
        steps = list(self._steps(sources, self._input_tokens_max // 2))
        if len(steps) > STEPS_MAX:
            raise ExtractorError(
                f"sources: more than {STEPS_MAX} calls of {self._input_tokens_max} tokens would be needed"
            )
        claims: dict[tuple[str, str], ExtractedClaim] = {}
        tokens = 0
        for step in steps:
            try:
                found, used = await self._step(step, owner)
            except ExtractorError as error:
                raise ExtractorError(
                    str(error), passing=error.passing, model_tokens=tokens + error.model_tokens
                ) from None
            tokens += used
            for claim in found:
                claims.setdefault((claim.reference, claim.text), claim)
        return Extraction(tuple(claims.values())[:EXTRACTED_CLAIMS_MAX], tokens)

    async def _step(self, sources: Sequence[ExtractionSource], owner: str) -> tuple[tuple[ExtractedClaim, ...], int]:
        system, user = instructions(), data(sources, owner)
        tokens = 0
        try:
            asked = self._tokenizer.count(system) + self._tokenizer.count(user) + ANSWER_TOKENS_MAX
            with self._budget.call(asked) as entry:
                tokens = entry.tokens
                reply = await self._completions.ask(system, user, SCHEMA, ANSWER_TOKENS_MAX)
                self._budget.settle(entry, reply.tokens)
                tokens = entry.tokens
                return parse_claims(reply.text, sources), tokens
        except ModelError as error:
            raise ExtractorError(str(error), passing=error.passing, model_tokens=tokens) from None

    def _steps(self, sources: Sequence[ExtractionSource], tokens_max: int) -> Iterator[tuple[ExtractionSource, ...]]:
        """Yields runs of texts with at most ``tokens_max`` tokens; a longer text goes on in the next run."""
        run: list[ExtractionSource] = []
        room = tokens_max
        for source in sources:
            left = source.text.encode("utf-8", "replace").decode("utf-8")
            while left.strip():
                tokens = self._tokenizer.count(left) + _SOURCE_TOKENS
                if tokens > room and run:
                    yield tuple(run)
                    run, room = [], tokens_max
                part = left if tokens <= room else _until_a_break(self._tokenizer.cut(left, room - _SOURCE_TOKENS))
                run.append(source._replace(text=part))
                room -= self._tokenizer.count(part) + _SOURCE_TOKENS
                left = left[len(part) :]
        if run:
            yield tuple(run)


def _until_a_break(text: str) -> str:
    """Returns a text's beginning up to where a paragraph, line or sentence ends in its second half; else all of it."""
    for mark in ("\n\n", "\n", "。", ". ", " "):
        if (at := text.rfind(mark, len(text) // 2)) > 0:
            return text[: at + len(mark)]
    return text
