"""Canonical claims: when keys are equal, when slots are, and what is looked for in the words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.facts.canonical import canonical
from noosphere.server.facts.ledger import digest
from noosphere.server.facts.slots import predicate_form, subject_form, value_form
from noosphere.server.facts.types import Cardinality, Claim, Policy

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
_WORDS = "The capital of Peru is Lima I live in Berlin prefer tea over Anna's favourite 用户 喜欢 住在 的 是 👍 5 pm"
sentences = st.lists(st.sampled_from(_WORDS.split()), min_size=1, max_size=8).map(" ".join)
HOME = "user/42"
PLAIN = Policy()


def claim(text: str = "", *, owner: str = HOME, scope: str = HOME, policy: Policy = PLAIN, **said: Any) -> Claim:
    return canonical(owner, scope, text, policy=policy, **said)


@given(texts | sentences)
def test_a_claim_is_canonical_once_it_is(text: str) -> None:
    once = claim(text)
    again = claim(once.text or text)
    assert (again.text, again.key, again.slot) == (once.text, once.key, once.slot)


@given(texts | sentences)
def test_what_was_found_in_the_words_is_found_again_if_it_is_said(text: str) -> None:
    # The fact store keeps what was found, and known facts are compared by it.
    once = claim(text)
    again = claim(text, subject=once.subject, predicate=once.predicate)
    assert again == once


@given(texts)
def test_the_key_is_never_that_of_nothing(text: str) -> None:
    one = claim(text)
    assert len(one.key) == 32
    assert one.key not in (digest(HOME, HOME, "text", ""), digest("", "", "text", ""))
    assert one.key != claim(text + " x1").key


@given(sentences, st.sampled_from(["  ", "\u200b", "\u202a", ".", "。", "!", "…", "\ufeff"]), st.data())
def test_noise_around_a_claim_changes_no_key(text: str, noise: str, data: st.DataObject) -> None:
    noisy = text + noise if not noise.isspace() else text.replace(" ", noise)
    assert claim(noisy).key == claim(text).key


@given(texts | sentences)
def test_letter_case_changes_no_key_where_it_finds_no_other_slot(text: str) -> None:
    if not claim(text).slot and not claim(text.upper()).slot and text.upper().casefold() == text.casefold():
        assert claim(text.upper()).key == claim(text).key


def test_owner_and_scope_are_part_of_key_and_slot() -> None:
    said: dict[str, Any] = {"subject": "Anna", "predicate": "city", "object": '"Graz"'}
    claims = [
        claim("", owner=owner, scope=scope, **said)
        for owner, scope in ((HOME, HOME), ("user/43", HOME), (HOME, "shared/team"), ("user/4", "2user/42"))
    ]
    assert len({one.key for one in claims}) == len({one.slot for one in claims}) == len(claims)


def test_what_is_said_and_what_is_found_meet() -> None:
    found = claim("I live in Berlin.")
    said = claim("Home is where the heart is", subject="user", predicate="livesIn", object='"Berlin"')
    assert (found.key, found.slot) == (said.key, said.slot)
    assert found.cardinality is said.cardinality is Cardinality.SINGLE
    assert (found.object, said.object) == ("", '"Berlin"')


def test_without_a_subject_it_is_said_of_the_owner() -> None:
    assert (
        claim("Prefers metric units", predicate="units", object='"metric"').slot
        == claim("", subject="user", predicate="units", object='"x"').slot
    )


def test_what_is_said_is_not_overruled_by_the_words() -> None:
    one = claim("The capital of Peru is Lima", subject="Peru", predicate="currency")
    assert (one.subject, one.predicate) == ("peru", "currency")
    # The words are no value of that property, so all of them are.
    assert one.value == "the capital of peru is lima"


def test_subject_and_predicate_without_a_value_take_it_from_the_words() -> None:
    one = claim("The capital of Peru is Lima", subject="Peru", predicate="capital")
    assert one.value == "lima"
    assert one.key == claim("Lima is the capital of Peru").key


def test_two_claims_of_one_property_without_values_are_two_claims() -> None:
    one, other = (claim(text, subject="deploy", predicate="procedure") for text in ("Run make ship", "Run make send"))
    assert one.slot == other.slot
    assert one.key != other.key
    assert one.value != other.value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"Graz"', '"graz"'),
        ("2", "2"),
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}'),
        ('"2 hours"', '"120 min"'),
        ('"8 May 2026"', '"2026-05-08"'),
        ('"the Netherlands"', '"Netherlands"'),
    ],
)
def test_equal_values(one: str, other: str) -> None:
    said: dict[str, Any] = {"subject": "Anna", "predicate": "x"}
    assert claim("words", object=one, **said).key == claim("other words", object=other, **said).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"Graz"', '"Linz"'),
        ("2", "2.5"),
        ('["a","b"]', '["b","a"]'),
        ("true", "false"),
        ('"McDonald"', '"McDonald\'s"'),
        ('"C"', '"C++"'),
    ],
)
def test_different_values(one: str, other: str) -> None:
    said: dict[str, Any] = {"subject": "Anna", "predicate": "x"}
    first, second = claim("words", object=one, **said), claim("words", object=other, **said)
    assert first.slot == second.slot
    assert first.key != second.key


@pytest.mark.parametrize("given", [Cardinality.SINGLE, Cardinality.MULTI])
def test_the_caller_says_how_values_relate(given: Cardinality) -> None:
    assert claim("Anna likes tea", cardinality=given).cardinality is given
    assert claim("x", subject="a", predicate="b", object="1", cardinality=given).cardinality is given


def test_the_policy_names_what_has_one_value() -> None:
    policy = Policy(single_valued=("usesEditor", "like"))
    said: dict[str, Any] = {"subject": "Anna", "predicate": "uses_editor", "object": '"vim"'}
    assert claim("", **said).cardinality is Cardinality.UNKNOWN
    assert claim("", policy=policy, **said).cardinality is Cardinality.SINGLE
    # Of what grammar says that there can be several, too.
    assert claim("Anna likes tea", policy=policy).cardinality is Cardinality.SINGLE


def test_aliases_reach_every_part() -> None:
    policy = Policy(aliases={"乌班图": "Ubuntu", "os": "operating system"})
    one = claim("x", policy=policy, subject="乌班图", predicate="os", object='"乌班图"')
    assert (one.subject, one.predicate, one.value) == ("ubuntu", "operating system", "ubuntu")


def test_a_claim_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="text: a claim needs words"):
        claim("")


@given(texts)
def test_forms_are_forms_of_themselves(text: str) -> None:
    for form in (subject_form, predicate_form, value_form):
        assert form(form(text)) == form(text)


@pytest.mark.parametrize("predicate", ["livesIn", "lives_in", "lives-in", "Lives In", "is living in", "resides in"])
def test_predicates_are_one_however_they_are_written(predicate: str) -> None:
    assert predicate_form(predicate) == "live in"


@pytest.mark.parametrize("subject", ["I", "me", "My", "user", "The user", "the current user", "用户", "我", "我的"])
def test_whoever_speaks_is_the_user(subject: str) -> None:
    assert subject_form(subject) == "user"
