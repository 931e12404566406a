"""The figures of recall, counted by hand on a small conversation; the gates on real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.conversations import asked, real_conversations, talked

from noosphere.server.evaluation import GATES, Figures, LocomoError, read_locomo, score_recall
from noosphere.server.evaluation.recall import Found, Kept, figures, kept, memories
from noosphere.server.facts.ranking import WEIGHTS, Ranked
from noosphere.server.models.estimates import EstimatedTokenizer
from noosphere.server.models.vocabularies import Vocabulary

TOKENIZER = EstimatedTokenizer("estimate", Vocabulary("o200k_base"))

TALK = talked(
    [
        asked("Where does Ben keep his bicycle?", "D1:2", category=4),
        asked("When did Anna sail to Malmö?", "D2:1", category=2),
        asked("What does nobody know?", category=5),
        asked("Which pets are there?", "D1:4; D2:2", "D9:9", "D", category=1),
    ],
    (
        "1:56 pm on 8 May, 2026",
        [
            ("Anna", "Hello Ben! Where is your bicycle these days?"),
            ("Ben", "Down in the cellar, it rains so much."),
            ("Anna", "How wonderful!"),
            ("Ben", "And my cat Tom sleeps on it."),
        ],
    ),
    (
        "9 am on 12 June, 2026",
        [("Anna", "I went sailing to Malmö yesterday."), ("Ben", "My dog would be sick. Poor pets!")],
    ),
)


def written(tmp_path: Path, value: Any) -> Path:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(value))
    return file


def ranked(*order: int, relevance: float = 0.1) -> tuple[Ranked, ...]:
    return tuple(Ranked(at, -place, relevance, {}) for place, at in enumerate(order))


def test_turns_questions_and_evidence_are_read(tmp_path: Path) -> None:
    [one] = read_locomo(written(tmp_path, [TALK]))
    assert [turn.id for turn in one.turns] == ["D1:1", "D1:2", "D1:3", "D1:4", "D2:1", "D2:2"]
    assert (one.turns[4].speaker, one.turns[4].session, one.turns[4].day) == ("Anna", "2", "12 June 2026")
    # One without evidence is no question; ids in one string are ids; what names no turn is none.
    assert [each.evidence for each in one.questions] == [{"D1:2"}, {"D2:1"}, {"D1:4", "D2:2"}]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "is no array of conversations"),
        ([{"qa": []}], "is no conversation with questions"),
        ([{"qa": [], "conversation": {"session_1": [{}]}}], "dia_id"),
        ([{"qa": [], "conversation": {}}], "has no questions with evidence"),
    ],
    ids=["object", "no talk", "no ids", "no questions"],
)
def test_other_files_are_refused_with_their_name(tmp_path: Path, value: Any, problem: str) -> None:
    file = written(tmp_path, value)
    with pytest.raises(LocomoError, match=problem) as caught:
        read_locomo(file)
    assert file.name in str(caught.value)


def test_what_is_no_json_or_absent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(LocomoError, match="is no JSON"):
        read_locomo(tmp_path)
    with pytest.raises(LocomoError, match="No such file"):
        read_locomo(tmp_path / "absent.json")


def test_recall_is_the_share_of_evidence_among_the_first() -> None:
    found = [
        Found("1", frozenset({7, 2}), ranked(0, 7, 1, 3, 4, 5, 2, 6)),
        Found("2", frozenset({0}), ranked(0, 1, 2, 3, 4, 5, 6, 7)),
    ]
    assert figures(found) == Figures(2, 75.0, 100.0, 75.0)


def test_what_is_kept_depends_on_the_rule_and_never_exceeds_the_budget() -> None:
    sizes = [90, 30, 30, 30]
    likely = (Ranked(0, 3, 0.4, {}), Ranked(1, 2, 0.3, {}), Ranked(2, 1, 0.3, {}), Ranked(3, 0, 0.0, {}))
    one = Found("1", frozenset({1, 2}), likely)
    assert kept([(one, sizes)], 100) == Kept(100, 0.0, 0.0, 100.0)
    assert kept([(one, sizes)], 150) == Kept(150, 100.0, 100.0, 100.0)
    assert kept([(one, sizes)], 29) == Kept(29, 0.0, 0.0, 0.0)
    assert kept([(one, [200, 30, 30, 30])], 100) == Kept(100, 0.0, 100.0, 100.0)


def test_merged_turns_are_held_by_their_message_and_never_span_sessions(tmp_path: Path) -> None:
    [one] = read_locomo(written(tmp_path, [TALK]))
    held = memories(one, sizes=(1, 8))
    assert held.holders == {"D1:1": 0, "D1:2": 1, "D1:3": 1, "D1:4": 1, "D2:1": 2, "D2:2": 3}
    assert len(held.documents) == len(held.texts) == 4


def test_a_small_conversation_is_found(tmp_path: Path) -> None:
    score = score_recall(read_locomo(written(tmp_path, [TALK])), TOKENIZER, ablation=True)
    assert (score.conversations, score.memories, score.overall.n) == (1, 6, 3)
    assert score.overall.recall_at_5 == 100
    assert score.categories["4"].mrr == score.categories["2"].mrr == 100
    assert score.ablation["all signals"] == score.overall
    assert score.weights_sha256 == WEIGHTS.sha256
    assert list(score.kept) == ["turns", "merged", "attached"]
    assert all([each.tokens for each in form] == [500, 1_000, 2_000] for form in score.kept.values())


def test_meaning_is_part_of_the_ranking(tmp_path: Path) -> None:
    conversations = read_locomo(written(tmp_path, [TALK]))

    def cellar(_question: str, texts: list[str] | tuple[str, ...]) -> list[float]:
        return [float("cellar" in text) for text in texts]

    with_meaning = score_recall(conversations, TOKENIZER, lambda question, texts: cellar(question, list(texts)))
    assert with_meaning.overall != score_recall(conversations, TOKENIZER).overall


@pytest.mark.campaign
def test_the_gates_hold_on_real_conversations_by_keywords_alone() -> None:
    """Vectors add to it; without them it runs everywhere and in seconds."""
    score = score_recall(read_locomo(real_conversations()), TOKENIZER)
    missed = {name: (score.reached[name], gate) for name, gate in GATES.items() if score.reached[name] < gate}
    assert not missed
    assert score.overall.n > 900
