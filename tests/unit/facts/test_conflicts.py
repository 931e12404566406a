"""Conflicts: which of several values holds, in whatever order they come in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.facts.conflicts import preference, settle, trust_class
from noosphere.server.facts.types import Cardinality, ConflictRule, Contender, Status

TRUSTS = (0.0, 0.3, 0.5, 0.7, 1.0)

contenders = st.lists(
    st.tuples(st.sampled_from(TRUSTS), st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=7,
    unique_by=lambda made: made[1],
).map(
    lambda rows: [
        Contender(f"f{at}", f"v{at}", trust, 1_000 + since, 2_000 + recorded)
        for at, (trust, since, recorded) in enumerate(rows)
    ]
)


def one(id: str, value: str, *, trust: float = 0.5, since: int = 0, recorded: int = 1_000) -> Contender:
    return Contender(id, value, trust, since, recorded)


class Slot(NamedTuple):
    """What a slot holds after some claims have arrived, as the ledger would have it."""

    current: frozenset[str]
    history: frozenset[str]
    contested: frozenset[frozenset[str]]


def arrived(claims: Iterable[Contender], cardinality: Cardinality, rule: ConflictRule) -> Slot:
    current: dict[str, Contender] = {}
    history: set[str] = set()
    contested: set[frozenset[str]] = set()
    for new in claims:
        outcome = settle(new, list(current.values()), cardinality, rule)
        contested |= {frozenset((new.id, other)) for other in outcome.contested}
        for old in outcome.supersedes:
            del current[old]
            history.add(old)
        if outcome.superseded_by:
            assert outcome.superseded_by in current
            history.add(new.id)
        else:
            current[new.id] = new
    open_ones = {pair for pair in contested if pair <= current.keys()}
    return Slot(frozenset(current), frozenset(history), frozenset(open_ones))


@given(st.data(), contenders, st.sampled_from(Cardinality), st.sampled_from(ConflictRule))
def test_the_order_of_arrival_changes_nothing(
    data: st.DataObject, claims: list[Contender], cardinality: Cardinality, rule: ConflictRule
) -> None:
    shuffled = data.draw(st.permutations(claims))
    slot = arrived(claims, cardinality, rule)
    assert arrived(shuffled, cardinality, rule) == slot
    # Both sides of every contradiction are still there.
    assert slot.current | slot.history == {claim.id for claim in claims}
    assert not slot.current & slot.history


@given(contenders)
def test_the_newest_of_equal_trust_is_the_only_one(claims: list[Contender]) -> None:
    equal = [claim._replace(trust=0.5) for claim in claims]
    newest = max(equal, key=lambda claim: claim.valid_from_ms)
    assert arrived(equal, Cardinality.SINGLE, ConflictRule.NEWEST).current == {newest.id}


@given(contenders)
def test_nothing_is_superseded_by_what_is_trusted_less(claims: list[Contender]) -> None:
    current: list[Contender] = []
    for new in claims:
        outcome = settle(new, current, Cardinality.SINGLE, ConflictRule.NEWEST)
        for old in current:
            if old.id in outcome.supersedes:
                assert trust_class(new.trust) >= trust_class(old.trust)
            if old.id == outcome.superseded_by:
                assert trust_class(old.trust) >= trust_class(new.trust)
        current = [old for old in current if old.id not in outcome.supersedes]
        current += [] if outcome.superseded_by else [new]
    # Nor shown before what is trusted more.
    shown = max(current, key=preference)
    assert trust_class(shown.trust) == max(trust_class(claim.trust) for claim in claims)


@given(contenders)
def test_by_trust_the_most_trusted_is_the_only_one(claims: list[Contender]) -> None:
    best = max(claims, key=lambda claim: (claim.trust, claim.valid_from_ms))
    assert arrived(claims, Cardinality.SINGLE, ConflictRule.TRUST).current == {best.id}


@given(contenders)
def test_kept_apart_all_are_current_and_all_are_flagged(claims: list[Contender]) -> None:
    for cardinality, rule in (
        (Cardinality.SINGLE, ConflictRule.KEEP_BOTH),
        (Cardinality.UNKNOWN, ConflictRule.NEWEST),
    ):
        slot = arrived(claims, cardinality, rule)
        assert slot.current == {claim.id for claim in claims}
        assert len(slot.contested) == len(claims) * (len(claims) - 1) // 2


def test_a_newer_value_supersedes_the_old_one() -> None:
    outcome = settle(
        one("b", "lisbon", since=2), [one("a", "berlin", since=1)], Cardinality.SINGLE, ConflictRule.NEWEST
    )
    assert (outcome.status, outcome.supersedes, outcome.reason) == (Status.SUPERSEDED, ("a",), "newer")


def test_what_is_to_be_so_later_does_not_win_for_ever() -> None:
    far = one("a", "mordor", since=10**15, recorded=1_000)
    said_later = one("b", "rome", since=1_001, recorded=1_001)
    outcome = settle(said_later, [far], Cardinality.SINGLE, ConflictRule.NEWEST)
    assert (outcome.status, outcome.supersedes) == (Status.SUPERSEDED, ("a",))


def test_a_late_replay_of_an_older_value_is_history() -> None:
    outcome = settle(
        one("b", "berlin", since=1), [one("a", "lisbon", since=2)], Cardinality.SINGLE, ConflictRule.NEWEST
    )
    assert (outcome.status, outcome.superseded_by, outcome.reason) == (Status.WRITTEN, "a", "newer_known")
    assert outcome.supersedes == ()


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (one("b", "lisbon", since=1, recorded=2), one("a", "berlin", since=1, recorded=1)),
        (one("b", "lisbon", since=1, recorded=1), one("a", "berlin", since=1, recorded=1)),
    ],
    ids=["recorded later", "of a greater id"],
)
def test_ties_are_broken_by_the_order_of_records_and_then_by_id(new: Contender, old: Contender) -> None:
    assert settle(new, [old], Cardinality.SINGLE, ConflictRule.NEWEST).supersedes == ("a",)
    assert settle(old, [new], Cardinality.SINGLE, ConflictRule.NEWEST).superseded_by == "b"


def test_a_web_page_does_not_overturn_what_a_user_said() -> None:
    page = one("b", "attacker", trust=0.0, since=2)
    user = one("a", "anna", trust=0.5, since=1)
    outcome = settle(page, [user], Cardinality.SINGLE, ConflictRule.NEWEST)
    assert (outcome.status, outcome.contested, outcome.reason) == (Status.CONTESTED, ("a",), "trust_differs")
    assert sorted([page, user], key=preference, reverse=True) == [user, page]


def test_a_user_corrects_a_web_page() -> None:
    outcome = settle(
        one("b", "anna", trust=0.5, since=2),
        [one("a", "attacker", trust=0.2, since=1)],
        Cardinality.SINGLE,
        ConflictRule.NEWEST,
    )
    assert outcome.supersedes == ("a",)


def test_equal_values_contradict_nothing() -> None:
    for rule in ConflictRule:
        outcome = settle(one("b", "anna", since=2), [one("a", "anna", since=1)], Cardinality.SINGLE, rule)
        assert (outcome.status, outcome.supersedes, outcome.contested) == (Status.WRITTEN, (), ())


@pytest.mark.parametrize(("trust", "expected"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.99, 1), (1.0, 2)])
def test_classes_of_trust(trust: float, expected: int) -> None:
    assert trust_class(trust) == expected


@given(contenders, st.sampled_from(Cardinality), st.sampled_from(ConflictRule))
def test_every_outcome_says_why(claims: list[Contender], cardinality: Cardinality, rule: ConflictRule) -> None:
    outcome = settle(claims[0], claims[1:], cardinality, rule)
    assert outcome.reason
    assert outcome.explanation.endswith(".")
    assert set(outcome.supersedes) | set(outcome.contested) <= {claim.id for claim in claims[1:]}
    assert not set(outcome.supersedes) & set(outcome.contested)
