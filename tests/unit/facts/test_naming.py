"""Whether a question asks for the slot that a fact fills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.facts.naming import Asked

SUBJECTS = (
    "graz",
    "university of graz",
    "the witcher and the man",
    "the man of witcher",
    "anna berg",
    "anna",
    "user",
    "",
    "北京",
    "c++",
    "c",
)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the capital of Graz?", {"graz"}),
        ("Who heads the University of Graz?", {"university of graz"}),
        ("Is the University of Graz in Graz?", {"university of graz"}),
        ("Who wrote The Witcher and the Man?", {"the witcher and the man"}),
        ("Who wrote the man of witcher", {"the man of witcher"}),
        ("Is Anna Berg here", {"anna berg"}),
        ("Where does Anna's dog sleep?", {"anna"}),
        ("Annabel?", set()),
        ("北京的人口是多少?", {"北京"}),
        ("Who made C++?", {"c++"}),
        ("Who made C?", {"c"}),
        ("What do I prefer?", set()),
        ("What does the user prefer?", set()),
        ("", set()),
    ],
)
def test_subjects_are_named_word_for_word(question: str, expected: set[str]) -> None:
    assert Asked(question, SUBJECTS).subjects == expected


@pytest.mark.parametrize(
    ("question", "predicate", "expected"),
    [
        ("What is the country of citizenship of Anna?", "citizen of", 1.0),
        ("Which university was Anna educated at?", "university where was educated", 1.0),
        ("Who is the developer?", "developed by", 1.0),
        ("Which city?", "born in city", 0.5),
        ("Which city?", "married to", 0.0),
        ("Which city?", "of", 0.0),
        ("Which car?", "cart", 0.0),
        ("用户住在哪里?", "住在", 1.0),
    ],
)
def test_predicates_are_spoken_of_in_other_forms(question: str, predicate: str, expected: float) -> None:
    assert Asked(question, ()).share_of(predicate) == expected


@given(st.text(max_size=40), st.lists(st.text(max_size=8), max_size=5))
def test_whatever_is_asked_only_what_is_there_is_named(question: str, subjects: list[str]) -> None:
    asked = Asked(question, subjects)
    assert asked.subjects <= set(subjects) - {"", "user"}
    assert all(0 <= asked.share_of(subject) <= 1 for subject in subjects)
