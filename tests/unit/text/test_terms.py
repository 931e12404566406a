"""Terms: what they keep of a text, whatever its script, and that both sides of a comparison agree."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.text import TERMS_MAX, WORD_CHARS_MAX, normalise, terms

texts = st.text(max_size=200)
words = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=12)


@given(texts)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(texts)
def test_ways_of_writing_the_same_have_the_same_terms(text: str) -> None:
    assert terms(normalise(text)) == terms(text)
    assert terms(unicodedata.normalize("NFKD", text)) == terms(unicodedata.normalize("NFKC", text))


@given(texts, st.booleans())
def test_terms_are_short_few_and_fit_for_an_index_split_at_spaces(text: str, singles: bool) -> None:
    found = terms(text, singles=singles)
    assert " ".join(found).split() == list(found)
    assert all(len(term) <= WORD_CHARS_MAX for term in found)


@given(words)
def test_no_word_of_any_script_vanishes(word: str) -> None:
    assert terms(word)


@given(st.lists(words, max_size=6))
def test_what_is_asked_for_is_among_what_is_searched(parts: list[str]) -> None:
    text = " ".join(parts)
    assert set(terms(text)) <= set(terms(f"{text} 。", singles=True))


@given(texts, st.integers(0, 20))
def test_a_limit_keeps_the_beginning(text: str, limit: int) -> None:
    assert terms(text, terms_max=limit) == terms(text)[:limit]


def test_a_huge_text_is_cut() -> None:
    assert len(terms("word " * 2 * TERMS_MAX)) == TERMS_MAX
    assert terms("a" * 1_000_000) == ("a" * WORD_CHARS_MAX,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Caroline's friends were running", "carolin friend run"),
        ("They didn\u2019t answer", "answer"),
        ("The Who", "the who"),
        ("paid $1,234.50 at 10:30", "paid 1234.50 10:30"),
        ("Ubuntu 22.04", "ubuntu 22.04"),
        ("on 2023-05-07", "7 may 2023"),
        ("on the 7th of May, 2023", "7 may 2023"),
        ("order 2023-99-07", "order 2023 99 07"),
        ("\uff35\uff42\uff55\uff4e\uff54\uff55", "ubuntu"),
        ("José CAFÉ", "jose cafe"),
        ("snake_case", "snake case"),
        ("собаками", "собак"),
    ],
    ids=lambda value: value.encode("unicode_escape").decode() if isinstance(value, str) else None,
)
def test_words_names_dates_and_numbers(text: str, expected: str) -> None:
    assert " ".join(terms(text)) == expected


def test_scripts_without_spaces_are_found_by_pairs() -> None:
    assert terms("乌班图系统") == ("乌班", "班图", "图系", "系统")
    assert set(terms("班图")) < set(terms("我喜欢乌班图系统"))
    assert terms("猫") == ("猫",)
    assert "猫" in terms("我有一只猫", singles=True)
    assert set(terms("สวัสดี")) < set(terms("พูดสวัสดีครับ"))


def test_vowel_signs_and_points_stay_with_their_word() -> None:
    assert len(terms("हिन्दी भाषा")) == 2
    assert len(terms("شكرا جزيلا")) == 2
    assert len(terms("שָׁלוֹם עולם")) == 2


def test_pictures_are_terms() -> None:
    assert terms("🎉 party") == ("🎉", "parti")
    assert terms("🎉") != terms("🍕")


def test_threads_do_not_disturb_each_other() -> None:
    lines = [f"running{place} stemmed generalisations{place} national{chr(97 + place % 26)}" for place in range(400)]
    expected = [terms(line) for line in lines]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(terms, lines)) == expected
