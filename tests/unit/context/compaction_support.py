"""What the suites of compression share: tokenizers, and JSON of all kinds."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

from noosphere.server.context.compaction import Compressed
from noosphere.server.models.vocabularies import Vocabulary

O200K = Vocabulary("o200k_base")


class ByteTokenizer:
    """A vocabulary of the most unfavourable kind: a token per byte."""

    name = "bytes"
    exact = True

    def count(self, text: str) -> int:
        return len(text.encode())

    def cut(self, text: str, tokens_max: int) -> str:
        return text.encode()[:tokens_max].decode(errors="ignore")


WORDS = st.sampled_from(
    [
        *("a", "id", "price", "open", "Ann Lee", "a.b", "x:y", "true", "null", "NaN", "12", "1e5", "-0", "2024-05-20"),
        *("", " ", "~", "^", "^1", "@", "@me", "…", "{", "}", "[x]", "=", "|", '"', "\\", "\n", "\t", "\x00"),
        *("é", "订单", "\u200b", "🧠", "order_7712345", "a rather long text with spaces in it", "[left out: 1]"),
    ]
)
NUMBERS = st.sampled_from(["0", "-0", "7", "-1", "0.10", "1e400", "1E+2", "123456789012345678901234567890.5", "9" * 60])
SCALARS = st.one_of(
    WORDS.map(lambda word: json.dumps(word, ensure_ascii=False)),
    st.text(max_size=12).map(json.dumps),
    NUMBERS,
    st.sampled_from(["null", "true", "false", '"\\ud800"', "NaN", "-Infinity"]),
)


def _array(elements: list[str]) -> str:
    return "[" + ", ".join(elements) + "]"


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs) + "}"


def _rows(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """Objects of the same make, more or less: a key may be missing, and values are often those of the row before."""

    @st.composite
    def rows(draw: st.DrawFn) -> list[str]:
        keys = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
        pool = draw(st.lists(values, min_size=1, max_size=4))
        found = []
        for _ in range(draw(st.integers(2, 5))):
            present = [key for key in keys if draw(st.integers(0, 4))] or keys
            found.append(_object([(key, draw(st.sampled_from(pool))) for key in present]))
        return found

    return rows()


def _deeper(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    rows = _rows(values)
    named = st.lists(WORDS, min_size=5, max_size=5)
    return st.one_of(
        st.lists(values, max_size=4).map(_array),
        st.lists(st.tuples(WORDS, values), max_size=4).map(_object),
        rows.map(_array),
        st.lists(rows.map(_array), min_size=2, max_size=3).map(_array),
        st.tuples(named, rows).map(lambda pair: _object(list(zip(*pair, strict=False)))),
    )


JSON = st.recursive(SCALARS, _deeper, max_leaves=30)
"""Texts of JSON: odd scalars, keys that occur twice, tables, tables in tables, objects of objects."""


def plain(text: str) -> str:
    """The text without the line that says what was left out."""
    return re.sub(r"\n\[left out: [^\n]*\]\Z", "", text)


def kept(result: Compressed) -> str:
    return plain(result.text)


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
