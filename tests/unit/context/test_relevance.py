"""How likely a text helps, by its words; and packing by it on recorded conversations."""

from __future__ import annotations

import json
import random
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.conversations import real_conversations

from noosphere.server.context.relevance import relevances
from noosphere.server.facts.ranking import Choice, pack
from noosphere.server.text import distinct_terms as terms


def test_words_are_found_without_the_commonest_and_by_their_stem() -> None:
    assert terms("The Flights to Oslo are booked!") == terms("oslo, FLIGHTS booked")
    assert terms("reservation 12") & terms("reservations of 12")


def test_text_without_spaces_is_found_by_neighbouring_characters() -> None:
    assert terms("我想订机票") == {"我想", "想订", "订机", "机票"}
    assert terms("去上海的机票") & terms("机票多少钱")
    assert not terms("机 票") & terms("机票")


def test_rare_words_count_more_and_half_the_words_for_less_than_half() -> None:
    texts = [terms("flight to Oslo"), terms("flight to Rome"), terms("flight to Paris"), terms("a meal")]
    oslo, rome, paris, meal = relevances(terms("flight Oslo"), texts)
    assert oslo == pytest.approx(1.0)
    assert rome == paris < 0.5
    assert meal == 0.0
    assert relevances(frozenset(), texts) == (0.0,) * 4
    assert relevances(terms("flight"), []) == ()


@given(st.text(), st.lists(st.text(), max_size=5))
def test_figures_are_chances(question: str, texts: list[str]) -> None:
    assert all(0 <= chance <= 1 for chance in relevances(terms(question), [terms(text) for text in texts]))
    assert len(terms(question * 1_000)) <= 512


class Passage(NamedTuple):
    """Messages that stand together, and their ids."""

    ids: frozenset[str]
    text: str

    @property
    def tokens(self) -> int:
        """About."""
        return max(1, len(self.text) // 4)


def passages(conversation: dict[str, Any], *, uneven: bool) -> list[Passage]:
    """A conversation's messages one by one, or in pieces of very different length."""
    rng = random.Random(3)
    found = []
    for name, session in conversation.items():
        if re.fullmatch(r"session_\d+", name):
            while session:
                count = rng.choice([1, 1, 2, 4, 8, 12]) if uneven else 1
                piece, session = session[:count], session[count:]
                ids = frozenset(message["dia_id"] for message in piece)
                found.append(Passage(ids, " ".join(f"{message['speaker']}: {message['text']}" for message in piece)))
    return found


def kept(found: list[Passage], questions: list[dict[str, Any]], budget: int) -> tuple[float, float, float]:
    """Shares of the evidence that are kept: packed; best first, skipping misfits; best first up to the first misfit."""
    words = [terms(passage.text) for passage in found]
    shares = [0.0, 0.0, 0.0]
    for question in questions:
        values = relevances(terms(question["question"]), words)
        best = sorted(range(len(found)), key=lambda at: -values[at])[:200]
        picks = pack([Choice(values[at], (found[at].tokens,), (1.0,)) for at in best], budget)
        packed = [at for at, pick in zip(best, picks, strict=True) if pick == 0]
        ways = (packed, in_order(found, best, budget, stop=False), in_order(found, best, budget, stop=True))
        evidence = set(question["evidence"])
        for index, chosen in enumerate(ways):
            ids = {name for at in chosen if values[at] > 0 for name in found[at].ids}
            shares[index] += len(evidence & ids) / len(evidence) / len(questions)
    return shares[0], shares[1], shares[2]


def in_order(found: list[Passage], order: list[int], budget: int, *, stop: bool) -> list[int]:
    """Takes what fits, in order."""
    chosen = []
    for at in order:
        if found[at].tokens <= budget:
            chosen.append(at)
            budget -= found[at].tokens
        elif stop:
            break
    return chosen


@pytest.mark.parametrize("uneven", [False, True], ids=["short even messages", "long uneven pieces"])
def test_packing_keeps_the_evidence_of_recorded_conversations(uneven: bool) -> None:
    """Packing by value for a token is near the best rule on both kinds of text."""
    totals = [0.0, 0.0, 0.0]
    recorded = [one for path in sorted(real_conversations().glob("*.json")) for one in json.loads(path.read_text())]
    for conversation in recorded:
        questions = [one for one in conversation["qa"] if one["evidence"]][:120]
        shares = kept(passages(conversation["conversation"], uneven=uneven), questions, 1_000)
        totals = [total + share / len(recorded) for total, share in zip(totals, shares, strict=True)]
    packed, skipped, stopped = totals
    assert packed >= 0.97 * skipped
    assert packed >= (stopped if uneven else 0.97 * stopped)
    assert packed > 0.5
