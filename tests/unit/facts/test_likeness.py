"""Likeness: what holds whatever the claims are. What it makes of particular pairs stands in the table of pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.pairs import CONTRARY, OTHERS, SAME, pairs

from noosphere.server.facts.canonical import canonical
from noosphere.server.facts.likeness import SIMILARITY_MIN, Likeness, likeness
from noosphere.server.facts.types import Claim, Policy

POLICY = Policy()
texts = st.sampled_from(
    sorted({t for table in (SAME, CONTRARY, *OTHERS.values()) for pair in pairs(table) for t in pair})
)
_WORDS = "the a not Anna likes does red blue is in 5 6 北 京 不 👍 C++ now"
mixed = texts | st.lists(
    st.sampled_from(_WORDS.split(" ")),
    min_size=1,
    max_size=6,
).map(" ".join)
similarities = st.none() | st.floats(-1, 1)


def claim(text: str) -> Claim:
    return canonical("user/42", "user/42", text, policy=POLICY)


@given(mixed, mixed, similarities)
def test_it_does_not_matter_which_comes_first(one: str, other: str, similarity: float | None) -> None:
    assert likeness(claim(one), claim(other), similarity) is likeness(claim(other), claim(one), similarity)


@given(mixed, similarities)
def test_a_claim_is_the_same_as_itself_whatever_its_vector_says(text: str, similarity: float | None) -> None:
    assert likeness(claim(text), claim(text), similarity) is Likeness.SAME


@given(mixed, mixed, mixed)
def test_the_same_as_the_same_is_the_same(one: str, other: str, third: str) -> None:
    # So there are no chains whose ends differ.
    a, b, c = claim(one), claim(other), claim(third)
    if likeness(a, b, None) is Likeness.SAME and likeness(b, c, None) is Likeness.SAME:
        assert likeness(a, c, None) is Likeness.SAME


@given(mixed, mixed, st.floats(-1, 1))
def test_vectors_can_only_speak_against(one: str, other: str, similarity: float) -> None:
    plain = likeness(claim(one), claim(other), None)
    near = likeness(claim(one), claim(other), similarity)
    assert near is plain or (plain, near) == (Likeness.SAME, Likeness.DIFFERENT)


def test_the_same_words_with_far_vectors_are_not_the_same() -> None:
    one, other = claim("The release is really late"), claim("The release is late")
    assert one.key != other.key
    assert likeness(one, other, SIMILARITY_MIN) is Likeness.SAME
    assert likeness(one, other, SIMILARITY_MIN - 0.01) is Likeness.DIFFERENT


@given(mixed, st.sampled_from(["7", "not", "不", "Graz", "👎", "never"]))
def test_one_word_more_that_counts_is_never_the_same(text: str, word: str) -> None:
    assert likeness(claim(text), claim(f"{text} {word}"), 1.0) is not Likeness.SAME


@pytest.mark.parametrize("object", ["2", '"tea"', "null", "[1]"])
def test_structured_claims_are_compared_by_slot_and_value(object: str) -> None:
    def said(predicate: str, value: str) -> Claim:
        return canonical("user/42", "user/42", "x", subject="Anna", predicate=predicate, object=value, policy=POLICY)

    assert likeness(said("age", object), said("age", object), None) is Likeness.SAME
    assert likeness(said("age", object), said("age", '"else"'), None) is Likeness.CONTRARY
    assert likeness(said("tag", object), said("tag", '"else"'), None) is Likeness.DIFFERENT
    assert likeness(said("age", object), said("tag", object), 1.0) is Likeness.DIFFERENT
