"""Words are found however they are written, blacked out where they stand, and nothing else is touched."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noosphere.server.ports.sources import REDACTED
from noosphere.server.sessions.blackout import Blackout

M = REDACTED


@pytest.mark.parametrize(
    ("word", "text", "left"),
    [
        ("hunter2", "it is hunter2, keep it", f"it is {M}, keep it"),
        ("hunter2", "HUNTER2 Hunter2", f"{M} {M}"),
        ("hunter2", "hunter22", f"{M}2"),
        ("hunter2", "hunter 2", "hunter 2"),
        ("hunter2", "\uff48\uff55\uff4e\uff54\uff45\uff52\uff12", M),
        ("hunter2", "hun\u200bter2 hun\u00adter2", f"{M} {M}"),
        ("my secret", "my\n   secret", M),
        ("my  secret", "my secret", M),
        ("straße", "STRASSE", M),
        ("office", "the oﬃce", f"the {M}"),
        ("file", "a proﬁle", f"a pro{M}"),
        ("café", "cafe\u0301", M),
        ("cafe\u0301", "CAFÉ", M),
        ("cafe", "café", "café"),
        ("cafe", "cafe\u0301", "cafe\u0301"),
        ("cafe", "cafés cafe", f"cafés {M}"),
        ("密码是一二", "我的密码是一二三", f"我的{M}三"),
        ("한국어다", unicodedata.normalize("NFD", "한국어다"), M),
        ("пароль", "ПАРОЛЬ!", f"{M}!"),
        ("🦊🦊🦊🦊", "a🦊🦊🦊🦊b", f"a{M}b"),
        ("abcdef", "abc abcdefg", f"abc {M}g"),
        ("C:\\new_key", "in C:\\new_key here", f"in {M} here"),
        ("new_key", "in C:\\new_key here", f"in C:\\{M} here"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_word_is_found_and_only_it_is_replaced(word: str, text: str, left: str) -> None:
    assert Blackout([word]).text(text) == left


@pytest.mark.parametrize("word", ["пароль", 'a"b\\c/d', "two\nlines", "tab\there", "naïve", "🦊fox🦊"], ids=ascii)
@pytest.mark.parametrize("levels", [1, 2])
def test_a_word_is_found_in_the_escapes_of_json(word: str, levels: int) -> None:
    text = f"x {word} y"
    for _ in range(levels):
        text = json.dumps(text)
    left = Blackout([word]).text(text)
    for _ in range(levels):
        left = json.loads(left)
    assert left == f"x {M} y"


def test_a_number_in_json_becomes_a_text() -> None:
    left = Blackout(["48151623"]).text('{"code": 48151623, "n": [1, 248151623.5], "s": "48151623"}')
    assert json.loads(left) == {"code": M, "n": [1, M], "s": M}


def test_names_of_fields_are_texts_too_and_none_is_lost() -> None:
    value = Blackout(["alice", "bobby"]).value({"alice": 1, "bobby": 2, "c": {"Alice": [True, None]}})
    assert value == {M: 1, f"{M} 2": 2, "c": {M: [True, None]}}


def test_the_longer_of_two_words_is_taken_and_overlapping_ones_are_one() -> None:
    assert Blackout(["pass", "password"]).text("the password") == f"the {M}"
    assert Blackout(["abcd", "cdef"]).spans("abcd cdef") == [(0, 4), (5, 9)]


def test_without_words_nothing_is_found() -> None:
    assert Blackout([]).text("anything") == "anything"
    assert Blackout(["\u200b\u200b", "   "]).text("any \u200b thing") == "any \u200b thing"


def test_bytes_that_are_no_text_stay_around_the_word() -> None:
    assert Blackout(["hunter2"]).data(b"\xff\xfehunter2\x00\x80") == b"\xff\xfe" + M.encode() + b"\x00\x80"


TEXTS = st.text(alphabet=st.sampled_from('ab \\"nu0é\u0301ﬁßİΣς茶\u200b\n🦊한'), max_size=30)


@given(TEXTS, TEXTS, TEXTS)
@example("İ", "bbbb", "ς")
@example("a", "\u0301bbb", "")
@example("", '"', '"')
def test_whatever_stands_around_it_a_word_is_gone(before: str, word: str, after: str) -> None:
    blackout = Blackout([word])
    left = blackout.text(f"{before} {word} {after}")
    if word.strip() and not unicodedata.combining(word.strip()[0]):
        assert not Blackout([word]).found_in(left.replace(REDACTED, "|"))


@given(TEXTS, TEXTS)
def test_a_text_without_the_word_stays_the_same_object(text: str, word: str) -> None:
    blackout = Blackout([word])
    assert (blackout.text(text) is text) is not blackout.found_in(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS, lambda c: st.lists(c) | st.dictionaries(TEXTS, c)
)


@given(JSON)
@example(45_898_730_468_159_786_602_987_500)
def test_json_stays_json_and_holds_no_word(value: object) -> None:
    blackout = Blackout(["aaaa", "ab", "00", "茶"])
    left = blackout.json(json.dumps(value))
    json.loads(left)
    assert not blackout.found_in(left.replace(REDACTED, "|"))


@pytest.mark.parametrize("text", ["471108", "[471108]", '{"pin": 471108}', '"pin 471108"', "1471108.5"])
def test_a_value_that_is_json_of_any_kind_stays_json(text: str) -> None:
    left = Blackout(["471108"]).json(text)
    assert json.loads(left) is not None
    assert "471108" not in left


def test_a_word_that_spans_a_name_and_its_value_goes_though_the_json_goes_with_it() -> None:
    blackout = Blackout(['"code": "hunter2"'])
    said = '{"door": 1, "code": "hunter2"}'
    assert blackout.text(said) == f'{{"door": 1, {M}}}'
    assert json.loads(blackout.json(said)) == M
