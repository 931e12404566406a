"""Makes rolling summaries without a model: sentences chosen, fields found by rules, nothing written anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ...ports.models import SourceMessage, SummariserError, SummaryText, Tokenizer
from ...sessions.summary_text import summary_text
from ...text import distinct_terms
from ..fitting import fitted, replaced
from .entities import find_entities
from .fields import Fields, find_fields
from .ranking import Candidate, choose
from .sentences import split_sentences
from .speech import Sentence, is_error, sentences_of

TOKENS_MIN = 16
ENTITIES_MAX = 40
_HEADING_TOKENS = 3
# Shares of the budget that the lists may take in this order; the narrative gets the rest.
_SHARES = {"goals": 0.2, "decisions": 0.2, "open_questions": 0.12, "entities": 0.16}
_WEIGHTS = {"user": 1.2, "assistant": 1.0, "tool": 0.5}
_ERROR_WEIGHT = 1.2
_EARLIER_WEIGHT = 1.1
_TELLING_TERMS = 4
_EARLIER = "earlier"


class Offload(Protocol):
    """Runs a function where it does not hold up the event loop."""

    def __call__(
        self,
        make: Callable[[SummaryText | None, Sequence[SourceMessage], int, Tokenizer], SummaryText],
        previous: SummaryText | None,
        messages: Sequence[SourceMessage],
        tokens_max: int,
        tokenizer: Tokenizer,
        /,
    ) -> Awaitable[SummaryText]:
        """Returns what ``make`` returns, or raises what it raises."""
        ...


class ExtractiveSummariser:
    """The summariser that needs no model: deterministic, offline, under a second whatever it is given."""

    name = "extractive/1"

    def __init__(self, offload: Offload = asyncio.to_thread) -> None:
        """Makes one.

        Args:
            offload: where the work is done; a thread by default.
        """
        self._offload = offload

    async def summarise(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        """Returns a summary of at most ``tokens_max`` tokens, as rendered.

        Raises:
            SummariserError: ``tokens_max`` is under 16, or there is nothing to summarise.
        """
        return await self._offload(make_summary, previous, messages, tokens_max, tokenizer)


def make_summary(
    previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
) -> SummaryText:
    """Makes the summary; see :meth:`ExtractiveSummariser.summarise`."""
    if tokens_max < TOKENS_MIN:
        raise SummariserError(f"tokens_max: {tokens_max} is under {TOKENS_MIN}")
    if not messages and previous is None:
        raise SummariserError("messages: there are none")
    previous = previous or SummaryText()
    sentences = sentences_of(messages)
    fields = find_fields(sentences, Fields(previous.goals, previous.decisions, previous.open_questions))
    wanted = {**fields._asdict(), "entities": find_entities(messages, previous.entities)[:ENTITIES_MAX]}
    summary = SummaryText()
    for name, share in _SHARES.items():
        # The newest stay where not all do; entities come best first.
        entries = wanted[name] if name == "entities" else _pinned_first(wanted[name], name)
        summary = replaced(summary, name, _fitting(name, entries, int(tokens_max * share), tokenizer))
    room = tokens_max - tokenizer.count(summary_text(summary)) - 1
    summary = summary._replace(narrative=_narrative(previous.narrative, sentences, room, tokenizer))
    # Pieces that were counted one by one may have more tokens when put together.
    return fitted(summary, tokens_max, tokenizer)


def _pinned_first(entries: Sequence[str], name: str) -> list[str]:
    """Returns entries in the order in which they get room: newest first, but the first goal before all."""
    newest = list(entries[::-1])
    return [newest[-1], *newest[:-1]] if name == "goals" and newest else newest


def _fitting(name: str, entries: Sequence[str], tokens_max: int, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Returns as many of the entries as have room, in their original order; a first goal that has none is cut."""
    room = tokens_max - _HEADING_TOKENS
    if name == "goals" and entries and tokenizer.count("; " + entries[0]) > room:
        first = tokenizer.cut(entries[0], max(0, room - _HEADING_TOKENS)).rstrip()
        entries = [first + "…", *entries[1:]] if first else entries[1:]
    taken: set[str] = set()
    for entry in entries:
        tokens = tokenizer.count("; " + entry)
        if tokens <= room:
            room -= tokens
            taken.add(entry)
    ordered = entries if name == "entities" else _original(entries, name)
    return tuple(entry for entry in ordered if entry in taken)


def _original(entries: Sequence[str], name: str) -> Sequence[str]:
    return [*entries[:1], *entries[:0:-1]] if name == "goals" else entries[::-1]


def _narrative(earlier: str, sentences: Sequence[Sentence], tokens_max: int, tokenizer: Tokenizer) -> str:
    told = [Sentence(text, distinct_terms(text), _EARLIER, "", -1) for text in split_sentences(earlier)]
    spoken = [*told, *sentences]
    lines = [f"{s.speaker}: {s.text}" if s.speaker else s.text for s in spoken]
    candidates = [
        Candidate(s.terms, _weight(s, place, len(spoken)), tokenizer.count(line) + 1)
        for place, (s, line) in enumerate(zip(spoken, lines, strict=True))
    ]
    return "\n".join(lines[place] for place in choose(candidates, tokens_max))


def _weight(sentence: Sentence, place: int, count: int) -> float:
    """Returns how much a sentence counts: for who said it, less if it is a mere word, a little more the later it is."""
    weight = _EARLIER_WEIGHT if sentence.role == _EARLIER else _WEIGHTS.get(sentence.role, 0.3)
    if sentence.role == "tool" and is_error(sentence.text):
        weight = _ERROR_WEIGHT
    telling = min(1.0, len(sentence.terms) / _TELLING_TERMS)
    return weight * telling * (0.85 + 0.3 * (place + 1) / count)
