"""What the rules make of pairs of claims: duplicates, contradictions, and what only looks like one of these."""

from __future__ import annotations

import pytest
from tests.unit.facts.pairs import CONTRARY, OTHERS, SAME, pairs

from noosphere.server.facts.canonical import canonical
from noosphere.server.facts.conflicts import settle
from noosphere.server.facts.likeness import Likeness, likeness
from noosphere.server.facts.types import Cardinality, Claim, ConflictRule, Contender, Policy, Status

POLICY = Policy(aliases={"Ubuntu系统": "Ubuntu", "乌班图": "Ubuntu"})
OTHER_PAIRS = [(kind, *pair) for kind, table in OTHERS.items() for pair in pairs(table)]


def claim(text: str) -> Claim:
    return canonical("user/42", "user/42", text, policy=POLICY)


def contender(name: str, one: Claim, at: int) -> Contender:
    return Contender(name, one.value, 0.5, at, at)


def in_one_slot(one: Claim, other: Claim) -> bool:
    return bool(one.slot) and one.slot == other.slot


@pytest.mark.parametrize(("one", "other"), pairs(SAME))
def test_the_same_in_other_words(one: str, other: str) -> None:
    assert likeness(claim(one), claim(other), None) is Likeness.SAME
    assert likeness(claim(other), claim(one), 0.99) is Likeness.SAME


@pytest.mark.parametrize(("one", "other"), pairs(CONTRARY))
def test_contradictions(one: str, other: str) -> None:
    first, second = claim(one), claim(other)
    assert likeness(first, second, 0.99) is Likeness.CONTRARY
    assert likeness(second, first, None) is Likeness.CONTRARY
    if in_one_slot(first, second):
        outcome = settle(
            contender("new", second, 2), [contender("old", first, 1)], second.cardinality, ConflictRule.NEWEST
        )
        # One or the other, but the old one never just stays as if nothing had happened.
        assert outcome.supersedes == ("old",) or outcome.contested == ("old",)


def test_there_are_enough_pairs_that_only_look_alike() -> None:
    assert len(OTHER_PAIRS) >= 200
    assert len(set(OTHER_PAIRS)) == len(OTHER_PAIRS)


@pytest.mark.parametrize(("kind", "one", "other"), OTHER_PAIRS)
def test_what_only_looks_alike_is_no_duplicate_however_near_its_vectors(kind: str, one: str, other: str) -> None:
    assert claim(one).key != claim(other).key
    for similarity in (None, 1.0):
        assert likeness(claim(one), claim(other), similarity) is not Likeness.SAME
        assert likeness(claim(other), claim(one), similarity) is not Likeness.SAME


@pytest.mark.parametrize(("kind", "one", "other"), OTHER_PAIRS)
def test_what_only_looks_alike_supersedes_nothing(kind: str, one: str, other: str) -> None:
    for old, new in ((claim(one), claim(other)), (claim(other), claim(one))):
        for rule in ConflictRule if in_one_slot(old, new) else ():
            outcome = settle(contender("new", new, 2), [contender("old", old, 1)], new.cardinality, rule)
            assert outcome.supersedes == ()
            assert outcome.superseded_by == ""


def test_a_chain_of_likes_does_not_collapse() -> None:
    # Each is like the next one; the ends say different things, and so does everything between.
    chain = ["Retry the upload three times", "Retry the upload four times", "Retry the download four times"]
    claims = [claim(text) for text in chain]
    assert len({one.key for one in claims}) == 3
    assert all(likeness(a, b, 0.99) is not Likeness.SAME for a in claims for b in claims if a is not b)


def test_what_can_be_several_is_written_beside() -> None:
    tea, coffee = claim("Anna likes tea"), claim("Anna likes coffee")
    assert in_one_slot(tea, coffee)
    assert tea.cardinality is Cardinality.MULTI
    outcome = settle(contender("new", coffee, 2), [contender("old", tea, 1)], coffee.cardinality, ConflictRule.NEWEST)
    assert outcome.status is Status.WRITTEN
    assert outcome.contested == ()
