"""How well what is asked for is found again: each turn of a conversation is one memory, each question a search.

The figures, over the questions of all categories that have evidence:

- *recall@k*: the share of a question's evidence that is among the first ``k`` turns, then the mean over questions.
- *MRR*: one over the place of the first turn that is evidence, then the mean.
- *kept*: the share of a question's evidence that the packing of contexts keeps within a budget of tokens, out of the
  50 best. Messages are whole or left out. It is measured on three forms of the conversations: *turns* as they are;
  *merged*, where in every session 1, 8, 2 and 4 turns in a row become one message, over and over; and *attached*,
  where turns carry 0, 800, 50 and 200 tokens that nobody searches, over and over, as messages with tool results do.

All are percentages. A question is searched for in its own conversation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, groupby
from statistics import fmean
from typing import NamedTuple

from ..facts.ranking import (
    PACKED_MAX,
    SIGNALS,
    WEIGHTS,
    Choice,
    Document,
    Ranked,
    Weights,
    document,
    pack,
    question,
    rank,
)
from ..ports.models import Tokenizer
from .locomo import Conversation, Turn

BUDGETS = (500, 1_000, 2_000)
GATES = {"recall@5": 72.0, "recall@10": 80.0, "mrr": 60.0, "kept": 63.0}
GOALS = {"recall@5": 77.0, "recall@10": 84.0, "mrr": 65.0, "kept": 68.0}

_MERGED = (1, 8, 2, 4)
_ATTACHED = (0, 800, 50, 200)
_GATED_TOKENS = 1_000

Similarities = Callable[[str, Sequence[str]], Sequence[float | None]]
"""Cosine similarity of a question to texts."""


class Figures(NamedTuple):
    """How well some questions were answered, in percent."""

    n: int
    recall_at_5: float
    recall_at_10: float
    mrr: float


class Kept(NamedTuple):
    """How much of the evidence was kept within a budget, in percent, by three rules of packing.

    Attributes:
        tokens: the budget.
        stopping: the first ten, up to the first that does not fit.
        skipping: best first; what does not fit is skipped.
        packed: as contexts pack, by calibrated relevance for the tokens that it costs.
    """

    tokens: int
    stopping: float
    skipping: float
    packed: float


class Memories(NamedTuple):
    """One conversation's memories, the texts that vectors are made of, and which memory holds each turn."""

    documents: tuple[Document, ...]
    texts: tuple[str, ...]
    holders: dict[str, int]


class Found(NamedTuple):
    """One question's ranking, with the places among the memories that are evidence."""

    category: str
    evidence: frozenset[int]
    ranking: tuple[Ranked, ...]


_Sized = Sequence[tuple[Found, Sequence[int]]]


def memories(conversation: Conversation, weights: Weights = WEIGHTS, sizes: Iterable[int] = (1,)) -> Memories:
    """Makes a conversation's memories.

    Args:
        conversation: the turns.
        weights: how much context counts.
        sizes: how many turns in a row become one memory, over and over in each session.
    """
    present = sorted({turn.speaker for turn in conversation.turns})
    made: list[Document] = []
    texts: list[str] = []
    holders: dict[str, int] = {}
    for session, group in groupby(conversation.turns, key=lambda turn: turn.session):
        messages = list(_messages(list(group), sizes))
        spoken = [_spoken(message) for message in messages]
        for place, message in enumerate(messages):
            holders.update(dict.fromkeys((turn.id for turn in message), len(made)))
            texts.append(f"{message[0].speaker}: {spoken[place]}")
            made.append(
                document(
                    message[0].id,
                    spoken[place],
                    name=" ".join(dict.fromkeys(turn.speaker for turn in message)),
                    label=message[0].day,
                    before=spoken[max(0, place - 2) : place],
                    after=spoken[place + 1] if place + 1 < len(spoken) else "",
                    present=present,
                    group=session,
                    place=place,
                    time_ms=message[0].time_ms,
                    weights=weights,
                )
            )
    return Memories(tuple(made), tuple(texts), holders)


def _messages(turns: Sequence[Turn], sizes: Iterable[int]) -> Iterable[Sequence[Turn]]:
    start = 0
    for size in cycle(sizes):
        if start >= len(turns):
            return
        yield turns[start : start + size]
        start += size


def _spoken(message: Sequence[Turn]) -> str:
    if len(message) == 1:
        return message[0].text
    return "\n".join(f"{turn.speaker}: {turn.text}" for turn in message)


def search(
    conversation: Conversation, held: Memories, *, similarities: Similarities | None = None, weights: Weights = WEIGHTS
) -> list[Found]:
    """Ranks a conversation's memories for each of its questions."""
    return [
        Found(
            asked.category,
            frozenset(held.holders[id] for id in asked.evidence),
            rank(
                question(asked.text),
                held.documents,
                similarities=similarities(asked.text, held.texts) if similarities else None,
                weights=weights,
            ),
        )
        for asked in conversation.questions
    ]


def figures(found: Sequence[Found]) -> Figures:
    """Returns recall and MRR of rankings."""
    places = [[place for place, one in enumerate(each.ranking) if one.at in each.evidence] for each in found]

    def recall(limit: int) -> float:
        shares = [
            sum(place < limit for place in of_one) / len(each.evidence)
            for of_one, each in zip(places, found, strict=True)
        ]
        return 100 * fmean(shares)

    return Figures(len(found), recall(5), recall(10), 100 * fmean(1 / (1 + of_one[0]) for of_one in places))


def by_category(found: Sequence[Found]) -> dict[str, Figures]:
    """Returns the figures of each category, by its name."""
    names = sorted({each.category for each in found})
    return {name: figures([each for each in found if each.category == name]) for name in names}


def kept(found: _Sized, budget: int) -> Kept:
    """Returns how much of the evidence stays within a budget.

    Args:
        found: rankings, each with the tokens of all memories.
        budget: in tokens.
    """
    rules = (_stopping, _skipping, _packed)
    shares = [
        fmean(len(each.evidence & rule(each.ranking, sizes, budget)) / len(each.evidence) for each, sizes in found)
        for rule in rules
    ]
    return Kept(budget, *(100 * share for share in shares))


def _stopping(ranking: Sequence[Ranked], sizes: Sequence[int], budget: int) -> frozenset[int]:
    taken: list[int] = []
    for one in ranking[:10]:
        if sum(sizes[at] for at in taken) + sizes[one.at] > budget:
            break
        taken.append(one.at)
    return frozenset(taken)


def _skipping(ranking: Sequence[Ranked], sizes: Sequence[int], budget: int) -> frozenset[int]:
    taken: set[int] = set()
    for one in ranking[:PACKED_MAX]:
        if sizes[one.at] <= budget:
            budget -= sizes[one.at]
            taken.add(one.at)
    return frozenset(taken)


def _packed(ranking: Sequence[Ranked], sizes: Sequence[int], budget: int) -> frozenset[int]:
    best = ranking[:PACKED_MAX]
    picks = pack([Choice(one.relevance, (sizes[one.at],), (1.0,)) for one in best], budget)
    return frozenset(one.at for one, pick in zip(best, picks, strict=True) if pick == 0)


def _forms(
    conversations: Sequence[Conversation],
    turns: Sequence[Sequence[Found]],
    tokenizer: Tokenizer,
    near: Similarities | None,
) -> dict[str, _Sized]:
    """Returns the three forms of the conversations, each ranked, with the tokens of every memory."""
    forms: dict[str, list[tuple[Found, Sequence[int]]]] = {"turns": [], "merged": [], "attached": []}
    for conversation, ranked in zip(conversations, turns, strict=True):
        sizes = [tokenizer.count(f"{turn.speaker}: {turn.text}") for turn in conversation.turns]
        attached = [size + more for size, more in zip(sizes, cycle(_ATTACHED), strict=False)]
        forms["turns"] += [(each, sizes) for each in ranked]
        forms["attached"] += [(each, attached) for each in ranked]
        held = memories(conversation, sizes=_MERGED)
        tokens = [tokenizer.count(text) for text in held.texts]
        forms["merged"] += [(each, tokens) for each in search(conversation, held, similarities=near)]
    return dict(forms)


def texts_of(conversations: Sequence[Conversation]) -> Iterator[str]:
    """Yields every text whose vector is needed: all forms of memories, and all questions."""
    for conversation in conversations:
        yield from memories(conversation).texts
        yield from memories(conversation, sizes=_MERGED).texts
        yield from (asked.text for asked in conversation.questions)


def _ablation(whole: Sequence[Found], search_with: Callable[[Weights], list[Found]]) -> dict[str, Figures]:
    """Returns the figures of simpler rankings to compare with, of all signals, and without each part."""
    others = [name for name in SIGNALS if name != "keywords"]
    around = dict.fromkeys(("before", "before_asking", "two_before", "after"), 0.0)
    alone = search_with(replace(WEIGHTS, label=0.0, **around))
    labelled = search_with(replace(WEIGHTS, **around))
    used = [name for name in others if any(name in one.parts for each in whole for one in each.ranking)]
    rankings: dict[str, Sequence[Found]] = {
        "BM25 of stems": _without(alone, others),
        "BM25 with who and when": _without(labelled, others),
        "BM25 with who, when and what stands around": _without(whole, others),
        "all signals": whole,
        "without who and when": search_with(replace(WEIGHTS, label=0.0)),
        "without what stands around": labelled,
        "without everything of groups": _without(whole, [name for name in used if name.startswith("group")]),
        "without everything of meaning": _without(whole, [name for name in used if name.endswith("meaning")]),
        **{f"without {name}": _without(whole, [name]) for name in used},
    }
    return {name: figures(found) for name, found in rankings.items()}


def _without(found: Sequence[Found], signals: Sequence[str]) -> list[Found]:
    """Ranks again without some signals: a score is the sum of its parts."""
    changed = []
    for each in found:
        scores = {one.at: one.score - sum(one.parts.get(name, 0.0) for name in signals) for one in each.ranking}
        # What rounding leaves of a difference is none.
        order = sorted(each.ranking, key=lambda one: (-round(scores[one.at], 9), one.at))
        changed.append(each._replace(ranking=tuple(order)))
    return changed


class RecallScore(NamedTuple):
    """All figures.

    Attributes:
        conversations: how many there are.
        memories: how many turns they have together.
        overall: over all questions.
        categories: by category.
        kept: by the form of the conversations, within each budget.
        ablation: the figures of other weights, by what is different.
        weights_sha256: the digest of the weights.
    """

    conversations: int
    memories: int
    overall: Figures
    categories: dict[str, Figures]
    kept: dict[str, tuple[Kept, ...]]
    ablation: dict[str, Figures]
    weights_sha256: str

    @property
    def reached(self) -> dict[str, float]:
        """The figures that gates and goals are for; of what is kept, that of the form that keeps least."""
        within = [each.packed for form in self.kept.values() for each in form if each.tokens == _GATED_TOKENS]
        return {
            "recall@5": self.overall.recall_at_5,
            "recall@10": self.overall.recall_at_10,
            "mrr": self.overall.mrr,
            "kept": min(within),
        }


def score_recall(
    conversations: Sequence[Conversation],
    tokenizer: Tokenizer,
    similarities: Similarities | None = None,
    *,
    ablation: bool = False,
) -> RecallScore:
    """Measures everything.

    Args:
        conversations: with questions.
        tokenizer: counts.
        similarities: compares meanings; None searches by keywords alone.
        ablation: whether to measure what each part is worth, which takes several times as long.
    """

    def found(weights: Weights) -> list[list[Found]]:
        return [
            search(one, memories(one, weights), similarities=similarities, weights=weights) for one in conversations
        ]

    def found_together(weights: Weights) -> list[Found]:
        return list(chain.from_iterable(found(weights)))

    turns = found(WEIGHTS)
    whole = list(chain.from_iterable(turns))
    forms = _forms(conversations, turns, tokenizer, similarities)
    return RecallScore(
        conversations=len(conversations),
        memories=sum(len(one.turns) for one in conversations),
        overall=figures(whole),
        categories=by_category(whole),
        kept={name: tuple(kept(form, budget) for budget in BUDGETS) for name, form in forms.items()},
        ablation=_ablation(whole, found_together) if ablation else {},
        weights_sha256=WEIGHTS.sha256,
    )
