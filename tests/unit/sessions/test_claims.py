"""What an entry of the outbox claims in words."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.sessions.claims import (
    CUT,
    TEXT_BYTES_MAX,
    claims_of,
    importance_of,
    memory_type_of,
    topic_of,
)
from noosphere.server.sessions.outbox import Candidate, CandidateValue


def entry(key: str, *values: object, **attributes: str | float | bool) -> Candidate:
    """Returns an entry of an item with these values, the newest first."""
    newest, *others = (CandidateValue(json=msgspec.Raw(json.dumps(value).encode())) for value in values)
    return Candidate(key, 1, newest, tuple(others), attributes)


def words(key: str, value: object) -> str:
    """Returns the one claim's text."""
    (claim,) = claims_of(entry(key, value))
    return claim.text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("notes/diet", "The user does not eat meat.", "The user does not eat meat."),
        ("notes/diet", "vegetarian", "diet: vegetarian"),
        ("notes/diet", " vegetarian diet ", "vegetarian diet"),
        ("profile/home-city", "Bern", "home city: Bern"),
        ("notes/0f3a9c44e1", "vegetarian", "vegetarian"),
        ("notes/20260101", "vegetarian", "vegetarian"),
        ("notes/喜好", "茶", "喜好: 茶"),
        ("notes/喜好", "用户喜欢喝茶和咖啡", "用户喜欢喝茶和咖啡"),
        ("favourite_number", 42, "favourite number: 42"),
        ("notes/active", True, "active: true"),
        ("notes/pets", ["Rex", "Tom"], "pets: Rex, Tom"),
        ("notes/user", {"name": "Ann", "age": None}, "user: name: Ann"),
        ("notes/user", {"name": "Ann", "age": 30}, "user:\nname: Ann\nage: 30"),
        ("notes/trip", {"text": "By train.", "to": {"city": "Bern"}}, 'trip:\nBy train.\nto: {"city": "Bern"}'),
    ],
    ids=str,
)
def test_a_value_is_told_in_words_with_what_its_key_adds(key: str, value: object, text: str) -> None:
    assert words(key, value) == text


@pytest.mark.parametrize("value", [None, "", "  ", {}, [], {"a": None}], ids=repr)
def test_what_is_empty_claims_nothing(value: object) -> None:
    assert claims_of(entry("notes/a", value)) == ()


def test_each_value_is_a_claim_of_its_own_and_equal_ones_are_one() -> None:
    texts = [claim.text for claim in claims_of(entry("n", "one thing is this", "another is that", "one thing is this"))]
    assert texts == ["one thing is this", "another is that"]


def test_bytes_that_are_text_are_told_and_others_are_not() -> None:
    (claim,) = claims_of(Candidate("n", 1, CandidateValue(data=b"plain text of four words", actor="x/y#7")))
    assert (claim.text, claim.writer) == ("plain text of four words", "x/y")
    assert claims_of(Candidate("n", 1, CandidateValue(data=b"\xff"))) == ()


@given(st.text(min_size=0, max_size=9_000), st.text(alphabet="abc/-0é茶", min_size=1, max_size=60))
def test_no_claim_is_longer_than_a_fact_may_be(text: str, key: str) -> None:
    for claim in claims_of(entry(key, text)):
        assert 0 < len(claim.text.encode()) <= TEXT_BYTES_MAX


def test_a_text_that_is_cut_says_so() -> None:
    text = words("n", "茶 " * 3_000)
    assert text.endswith(CUT)
    assert len(text.encode()) > TEXT_BYTES_MAX - 8


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        (entry("notes/a", 1), "semantic"),
        (entry("results/a", 1), "episodic"),
        (entry("goals/a", 1), "episodic"),
        (entry("notes/a", 1, memory_type="procedural"), "procedural"),
        (entry("notes/a", 1, memory_type="nonsense"), "semantic"),
        (msgspec.structs.replace(entry("notes/a", 1), memory_type="procedural"), "procedural"),
    ],
    ids=["note", "result", "goal", "by attribute", "by a wrong attribute", "by its maker"],
)
def test_the_kind_of_memory_is_said_or_follows_from_the_key(candidate: Candidate, kind: str) -> None:
    assert memory_type_of(candidate) == kind


@pytest.mark.parametrize(
    ("said", "importance"), [(0.8, 0.8), (1, 1.0), (0, 0.0), (1.5, None), (-1, None), (True, None), ("0.8", None)]
)
def test_an_importance_counts_if_it_is_one(said: str | float | bool, importance: float | None) -> None:
    assert importance_of(entry("notes/a", 1, importance=said)) == importance


def test_a_topic_has_words() -> None:
    assert topic_of("notes/2026/api-keys/prod") == "api keys prod"
    assert topic_of("notes/12/34") == ""
    assert topic_of("alone") == "alone"
