"""The ranking: what each signal does to an order, and what holds for all of them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.facts.ranking import (
    CANDIDATES_MAX,
    SIGNALS,
    WEIGHTS,
    Document,
    Ranked,
    Statistics,
    Weights,
    document,
    question,
    rank,
)

words = st.lists(
    st.sampled_from(["ubuntu", "server", "likes", "tea", "paris", "when", "now", "乌班图", "2023", "Anna", "?"]),
    max_size=8,
).map(" ".join)
documents = st.lists(
    st.builds(
        document,
        st.uuids().map(str),
        words,
        name=st.sampled_from(["", "Anna", "Ben"]),
        before=st.lists(words, max_size=3),
        after=words,
        group=st.sampled_from(["", "a", "b"]),
        place=st.integers(0, 5),
        time_ms=st.integers(0, 3),
        confidence=st.floats(0, 1),
        trust=st.floats(0, 1),
    ),
    max_size=8,
)


def first(asked: str, *candidates: Document, weights: Weights = WEIGHTS) -> str:
    return ordered(asked, *candidates, weights=weights)[0]


def ordered(asked: str, *candidates: Document, weights: Weights = WEIGHTS) -> list[str]:
    return [candidates[one.at].id for one in rank(question(asked), candidates, weights=weights)]


@given(words, documents)
def test_every_candidate_is_ranked_once_best_first_and_says_why(asked: str, candidates: list[Document]) -> None:
    ranking = rank(question(asked), candidates)
    assert sorted(one.at for one in ranking) == list(range(len(candidates)))
    assert [one.score for one in ranking] == sorted((one.score for one in ranking), reverse=True)
    for one in ranking:
        assert sum(one.parts.values()) == pytest.approx(one.score)
        assert set(one.parts) <= set(SIGNALS)


@given(words, documents)
def test_relevances_are_likelihoods_in_the_order_of_scores(asked: str, candidates: list[Document]) -> None:
    values = [one.relevance for one in rank(question(asked), candidates)]
    assert all(0 <= value <= 1 for value in values)
    assert sum(values) <= 1 + 1e-9
    assert values == sorted(values, reverse=True)


@given(words, documents)
def test_the_order_in_which_candidates_come_changes_no_score(asked: str, candidates: list[Document]) -> None:
    turned = candidates[::-1]
    scores = {candidates[one.at].id: one.score for one in rank(question(asked), candidates)}
    again = {turned[one.at].id: one.score for one in rank(question(asked), turned)}
    assert scores == pytest.approx(again)


@given(documents)
def test_nothing_known_is_no_reason_to_keep_anything(candidates: list[Document]) -> None:
    assert all(one.relevance == 0 for one in rank(question("zyzzyva quokka"), candidates))


def test_rare_words_tell_more_than_common_ones() -> None:
    common = [document(f"c{place}", f"the server runs linux {place}") for place in range(5)]
    assert first("Which server runs nginx?", *common, document("rare", "nginx was installed")) == "rare"


def test_endings_do_not_matter() -> None:
    assert first("Who was painting?", document("a", "I sing"), document("b", "She painted a lake")) == "b"


def test_who_and_when_are_part_of_a_claim() -> None:
    said = [
        document("a", "I moved to Oslo", name="Anna", label="8 May 2026"),
        document("b", "I moved to Oslo", name="Ben", label="9 June 2026"),
    ]
    assert first("Where did Ben move?", *said) == "b"
    assert first("Who moved in May 2026?", *said[::-1]) == "a"


def test_the_one_person_named_counts_and_forms_of_address_do_not() -> None:
    present = ("Anna", "Ben")
    said = [
        document("to", "Anna, what about a dog or so", name="Ben", present=present),
        document("by", "My dog is called Rex, you know", name="Anna", present=present),
    ]
    assert first("What about Anna's dog?", *said) == "by"
    parts = {said[one.at].id: one.parts for one in rank(question("Anna's dog"), said)}
    assert "named" in parts["by"]
    assert "named" not in parts["to"]
    both = rank(question("Do Anna and Ben have a dog?"), said)
    assert not any("named" in one.parts for one in both)


def test_an_answer_is_found_by_the_question_before_it() -> None:
    said = [
        document("asks", "Where do you keep your bicycle?", group="g", place=0),
        document("answers", "Down in the cellar.", before=["Where do you keep your bicycle?"], group="g", place=1),
        document("other", "It rains a lot in the winter here.", group="g", place=2),
    ]
    assert ordered("bicycle cellar", *said) == ["answers", "asks", "other"]
    assert said[0].asks
    assert said[1].answers


def test_a_talk_about_it_is_likelier_to_have_it() -> None:
    said = [
        document("there", "we saw a castle", group="trip"),
        document("x", "Scotland was rainy", group="trip", place=9),
        document("elsewhere", "we saw a castle", group="film"),
        document("y", "popcorn was salty", group="film", place=9),
    ]
    order = ordered("castle in Scotland", *said[::-1])
    assert order.index("there") < order.index("elsewhere")


def test_times_count_where_the_question_asks_for_one() -> None:
    said = [document("vague", "I visited the big museum"), document("dated", "I visited the museum yesterday")]
    assert first("When did you visit the museum?", *said) == "dated"
    assert all("timed" not in one.parts for one in rank(question("Who visited the museum?"), said))


@pytest.mark.parametrize(
    "asked", ["What is the current price of tea?", "茶 tea price 现在"], ids=["english", "chinese"]
)
def test_newer_is_better_only_where_the_present_is_asked_for(asked: str) -> None:
    said = [document("old", "the price of tea is 3", time_ms=1), document("new", "the price of tea is 4", time_ms=2)]
    assert first(asked, *said) == "new"
    assert all("recent" not in one.parts for one in rank(question("What was the price of tea?"), said))


@pytest.mark.parametrize(("trust", "confidence"), [(0.2, 1.0), (1.0, 0.2)], ids=["trust", "confidence"])
def test_of_two_alike_the_more_trusted_and_surer_is_first(trust: float, confidence: float) -> None:
    weak = document("weak", "the wifi password hint is blue", trust=trust, confidence=confidence)
    strong = document("strong", "the wifi password hint is blue")
    assert first("wifi password", weak, strong) == "strong"


def test_meaning_decides_where_words_do_not() -> None:
    said = [document("a", "automobile"), document("b", "vehicle repair")]
    ranking = rank(question("car"), said, similarities=[0.1, 0.8])
    assert said[ranking[0].at].id == "b"
    assert ranking[0].relevance > 3 * ranking[1].relevance
    assert rank(question("car"), said, similarities=[None, None])[0].relevance == 0


def test_statistics_of_the_whole_store_count() -> None:
    said = [document("a", "alpha"), document("b", "beta")]
    rare = Statistics(1_000, 1.0, {"alpha": 900, "beta": 1})
    assert said[rank(question("alpha beta"), said, known=rare)[0].at].id == "b"


def test_chinese_is_found_by_pairs_of_characters() -> None:
    said = [
        document("a", "我昨天买了一辆自行车"),
        document("b", "他喜欢用乌班图系统写代码"),
        document("c", "我们下周去北京旅游"),
    ]
    assert first("谁用乌班图？", *said) == "b"
    assert first("什么时候去北京？", *said) == "c"
    assert first("车", *said) == "a"
    assert question("他现在住在哪里").current
    assert question("你什么时候去").when


def test_every_weight_matters_to_the_digest() -> None:
    assert WEIGHTS.sha256 == Weights().sha256
    names = [field.name for field in fields(Weights)]
    digests = {replace(WEIGHTS, **dict.fromkeys([name], 0.123)).sha256 for name in names}
    assert len(digests | {WEIGHTS.sha256}) == len(names) + 1


def test_weights_are_round_numbers() -> None:
    assert all(round(getattr(WEIGHTS, field.name), 2) == getattr(WEIGHTS, field.name) for field in fields(Weights))


def test_limits_are_named() -> None:
    one = document("a", "b")
    with pytest.raises(ValueError, match=rf"documents: {CANDIDATES_MAX + 1} are more than {CANDIDATES_MAX}"):
        rank(question("b"), [one] * (CANDIDATES_MAX + 1))
    with pytest.raises(ValueError, match="similarities: 2 for 1 documents"):
        rank(question("b"), [one], similarities=[0.1, 0.2])
    assert rank(question("b"), []) == ()


def test_a_ranking_says_what_each_signal_added() -> None:
    best: Ranked = rank(question("When did Anna sail?"), [document("a", "I went sailing yesterday", name="Anna")])[0]
    assert best.parts["keywords"] > 0.2
    assert best.parts["timed"] == WEIGHTS.timed
    assert best.parts["named"] == WEIGHTS.named
