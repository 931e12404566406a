"""Hits: what stands before words and meaning, contradictions, links, and packing into a budget."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.options import fact_id, option

from noosphere.server.facts.hits import NEAR_TIE, Option, Placed, names_of, packed, placed
from noosphere.server.facts.ranking import PACKED_MAX, question
from noosphere.server.facts.types import MemoryType

WORDS = ("anna", "likes", "tea", "paris", "oslo", "office", "green", "乌班图", "2027", "lives", "where")


def ranked(query: str, *options: Option, links: Mapping[str, float] | None = None) -> tuple[Placed, ...]:
    return placed(query, question(query), options, None, links)


def texts(ranking: tuple[Placed, ...]) -> list[str]:
    return [one.option.prepared.body.text for one in ranking]


some_options = st.lists(
    st.builds(
        option,
        st.integers(1, 30),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
        subject=st.sampled_from(["", "anna", "ben"]),
        object=st.sampled_from(["", '"oslo"', "7", "true"]),
        kind=st.sampled_from(MemoryType),
        since_ms=st.integers(0, 5),
        trust=st.sampled_from([0.0, 0.5, 1.0]),
        contested_by=st.sets(st.integers(1, 30), max_size=3).map(tuple),
        similarity=st.none() | st.floats(-1, 1),
    ),
    max_size=12,
    unique_by=lambda one: one.standing.note.id,
)


@given(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), some_options)
def test_every_option_is_placed_once_best_first_and_its_parts_say_why(query: str, options: list[Option]) -> None:
    ranking = ranked(query, *options, links={"anna": 0.7})
    assert sorted(one.option.standing.note.id for one in ranking) == sorted(one.standing.note.id for one in options)
    totals = [one.scores.total for one in ranking]
    assert totals == sorted(totals, reverse=True)
    for one in ranking:
        assert sum(one.scores.parts.values()) == pytest.approx(one.scores.total)
        assert 0 <= one.scores.keyword <= 1 + 1e-9
        assert 0 <= one.scores.dense <= 1
    assert sum(one.scores.relevance for one in ranking) <= 1 + 1e-9


@given(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), some_options, st.randoms())
def test_the_order_in_which_a_store_finds_them_changes_nothing(query: str, options: list[Option], chance) -> None:  # type: ignore[no-untyped-def]
    mixed = chance.sample(options, len(options))
    first, second = ranked(query, *options), ranked(query, *mixed)
    assert [one.option.standing.note.id for one in first] == [one.option.standing.note.id for one in second]


def test_of_contradictions_that_tie_the_newest_stands_first() -> None:
    old = option(1, "Anna lives in Paris", since_ms=1, confidence=0.99, contested_by=(2,))
    new = option(2, "Anna lives in Oslo", since_ms=2, confidence=0.7, contested_by=(1,))
    other = option(3, "Anna likes tea", since_ms=3)
    ranking = ranked("Where does Anna live?", old, new, other)
    assert texts(ranking) == ["Anna lives in Oslo", "Anna lives in Paris", "Anna likes tea"]
    assert ranking[0].scores.parts["contested"] == pytest.approx(-ranking[1].scores.parts["contested"])
    assert 0 < ranking[0].scores.parts["contested"] <= NEAR_TIE


def test_a_flag_on_one_side_is_enough() -> None:
    old = option(1, "Anna lives in Paris", since_ms=1, confidence=0.99)
    new = option(2, "Anna lives in Oslo", since_ms=2, confidence=0.7, contested_by=(1,))
    for both in ((old, new), (new, old)):
        assert texts(ranked("Where does Anna live?", *both))[0] == "Anna lives in Oslo"


def test_if_the_words_tell_which_is_meant_the_newest_does_not_stand_before_it() -> None:
    tea = option(1, "Anna likes green tea", since_ms=1, contested_by=(2,))
    jam = option(2, "Anna likes strawberry jam", since_ms=2, contested_by=(1,))
    assert texts(ranked("Does Anna like green tea?", tea, jam))[0] == "Anna likes green tea"


def test_a_newer_claim_of_a_web_page_does_not_stand_before_what_a_user_said() -> None:
    said = option(1, "Anna's bank is Nordea", since_ms=1, trust=0.5, contested_by=(2,))
    page = option(2, "Anna's bank is Evil Bank", since_ms=2, trust=0.0, confidence=1.0, contested_by=(1,))
    assert texts(ranked("Which is Anna's bank?", page, said))[0] == "Anna's bank is Nordea"


def test_state_of_work_stands_first_if_the_question_is_its_key() -> None:
    state = option(1, "step 3 of 7", subject="migration", predicate="progress", kind=MemoryType.WORKING)
    talk = option(2, "The migration progress was discussed: progress of the migration, migration progress")
    for query in ("migration progress", "Migration  Progress", "migration"):
        assert texts(ranked(query, talk, state))[0] == "step 3 of 7"
    assert "exact_key" not in ranked("progress of the migration", talk, state)[0].scores.parts
    same = option(3, "step 3 of 7", subject="migration", predicate="progress")
    assert all("exact_key" not in one.scores.parts for one in ranked("migration progress", same))


def test_how_something_is_done_stands_first_if_that_is_asked() -> None:
    how = option(1, "Run make release, then watch", subject="deploy the web shop", kind=MemoryType.PROCEDURAL)
    talk = option(2, "We deploy the web shop on Tuesdays; the web shop deploy takes an hour")
    assert texts(ranked("How do I deploy the web shop?", talk, how))[0] == "Run make release, then watch"
    assert texts(ranked("如何 deploy the web shop", talk, how))[0] == "Run make release, then watch"
    for query in ("When do we deploy the web shop?", "How do I deploy the blog?", "How do I get to Oslo?"):
        assert all("procedure" not in one.scores.parts for one in ranked(query, talk, how)), query


def test_what_is_known_of_a_hits_object_is_lifted_to_half_of_the_hit() -> None:
    works = option(1, "Anna works for Acme", subject="anna", predicate="work for", object='"Acme"')
    acme = option(2, "It makes anvils", subject="acme", predicate="make", object='"anvils"')
    noise = option(3, "Tea is served at five")
    plain = ranked("Which employer has Anna", works, noise, acme)
    links = names_of(plain[:1])
    assert set(links) == {"anna", "acme"}
    ranking = ranked("Which employer has Anna", works, noise, acme, links=links)
    assert texts(ranking) == ["Anna works for Acme", "It makes anvils", "Tea is served at five"]
    assert ranking[1].scores.total == pytest.approx(0.5 * ranking[0].scores.total)
    assert ranking[1].scores.parts["linked"] > 0
    assert "linked" not in ranking[0].scores.parts


@given(some_options, st.integers(1, 12), st.integers(1, 60))
def test_hits_never_exceed_their_budget_nor_their_number(options: list[Option], limit: int, tokens_max: int) -> None:
    ranking = ranked("where does anna like green tea", *options)
    chosen = packed(ranking, limit, tokens_max)
    assert len(chosen) <= limit
    assert sum(one.option.prepared.tokens for one in chosen) <= tokens_max
    places = [ranking.index(one) for one in chosen]
    assert places == sorted(places)
    skipped, left = 0.0, tokens_max
    for one in ranking[: min(limit, PACKED_MAX)]:
        if one.option.prepared.tokens <= left:
            left -= one.option.prepared.tokens
            skipped += one.scores.relevance
    assert sum(one.scores.relevance for one in chosen) >= skipped - 1e-9
    assert packed(ranking, limit, 0) == ranking[:limit]


def test_a_long_fact_does_not_take_the_place_of_several_that_help() -> None:
    long = option(1, "Anna likes green tea " + "and told a long story about it " * 30)
    short = [option(at, f"Anna likes green tea number {at}") for at in range(2, 6)]
    chosen = packed(ranked("Does Anna like green tea?", long, *short), 10, 120)
    assert {one.option.standing.note.id for one in chosen} == {fact_id(at) for at in range(2, 6)}
