"""The words of the compact notation: which strings may stand without quotes."""

from __future__ import annotations

import re

from .document import Fields, Node, Number, quote, scalar

ABSENT = "~"
"""In a table: this row has no such field."""
ROW_KEY = "@"
"""In a table's heading: this field repeats the key under which the row stands."""
DITTO = "^"
"""In a table: the same as in the row before. With a number, the whole row is that of this number."""

WORDS: dict[str, Node] = {"true": True, "false": False, "null": None}
BARE = re.compile(r'[^\s"{}\[\]=|~^@\x00-\x1f\x7f\ud800-\udfff][^\s"{}\[\]=|~^\x00-\x1f\x7f\ud800-\udfff]*')
BARE_KEY = re.compile(r'[^\s"{}\[\]=|~^@.\x00-\x1f\x7f\ud800-\udfff][^\s"{}\[\]=|~^.\x00-\x1f\x7f\ud800-\udfff]*')
# The last ones are no JSON, but Python and others write them.
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")


def write_atom(node: Node) -> str:
    """Returns a scalar, an empty object or an empty array in the compact notation.

    A string loses its quotes unless it would then look like something else.
    """
    if isinstance(node, str):
        bare = BARE.fullmatch(node) and not NUMBER.fullmatch(node) and node not in WORDS
        return node if bare else quote(node)
    if isinstance(node, Fields):
        return "{}"
    if isinstance(node, list):
        return "[]"
    return scalar(node)


def read_bare(text: str) -> Node:
    """Returns what a word without quotes stands for."""
    if text in WORDS:
        return WORDS[text]
    return Number(text) if NUMBER.fullmatch(text) else text


def write_key(key: str) -> str:
    """Returns a field's name; a dot is quoted, because it joins names."""
    return key if BARE_KEY.fullmatch(key) else quote(key)


def write_row_key(key: str) -> str:
    """Returns the key under which a row stands; it is a string, so that a number needs no quotes."""
    return key if BARE.fullmatch(key) else quote(key)
