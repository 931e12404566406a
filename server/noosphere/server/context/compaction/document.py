"""JSON as it was written: number literals, the order of keys and keys that occur twice all survive."""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring as _quote_wide
from json.encoder import encode_basestring_ascii as _quote_ascii
from typing import NamedTuple, TypeAlias

DEPTH_MAX = 64

_SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """Text that is no JSON, or nested deeper than ``DEPTH_MAX``."""


class Number(NamedTuple):
    """A number's literal (a float would round ``0.10`` and overflow at ``1e400``); also ``NaN`` and ``Infinity``."""

    text: str


class Fields(tuple[tuple[str, "Node"], ...]):
    """An object: its pairs in their order. Keys may occur twice."""

    __slots__ = ()


Node: TypeAlias = "Fields | list[Node] | Number | str | bool | None"


def parse(text: str, depth_max: int = DEPTH_MAX) -> Node:
    """Reads one JSON document.

    Args:
        text: the document.
        depth_max: how many levels of objects and arrays it may have.

    Raises:
        NotJson: it is none, or it is nested too deeply.
    """
    try:
        node = json.loads(text, object_pairs_hook=Fields, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    if not _is_shallow(node, depth_max):
        raise NotJson(f"nested deeper than {depth_max} levels")
    return node  # type: ignore[no-any-return]


def quote(text: str) -> str:
    """Returns a JSON string; half a surrogate pair, which no encoding can write, stays an escape."""
    return _quote_ascii(text) if _SURROGATE.search(text) else _quote_wide(text)


def minified(node: Node) -> str:
    """Returns a document without white space."""
    parts: list[str] = []
    _write(node, parts)
    return "".join(parts)


def scalar(node: Node) -> str:
    """Returns the JSON of a value that contains no others.

    Raises:
        TypeError: it is an object or an array.
    """
    if isinstance(node, str):
        return quote(node)
    if isinstance(node, Number):
        return node.text
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    raise TypeError("an object or an array is no scalar")


def _write(node: Node, parts: list[str]) -> None:
    if isinstance(node, Fields):
        parts.append("{")
        for index, (key, value) in enumerate(node):
            parts.append(f",{quote(key)}:" if index else f"{quote(key)}:")
            _write(value, parts)
        parts.append("}")
    elif isinstance(node, list):
        parts.append("[")
        for index, value in enumerate(node):
            if index:
                parts.append(",")
            _write(value, parts)
        parts.append("]")
    else:
        parts.append(scalar(node))


def _is_shallow(root: Node, depth_max: int) -> bool:
    level: list[Fields | list[Node]] = [root] if isinstance(root, Fields | list) else []
    for _ in range(depth_max):
        inner: list[Fields | list[Node]] = []
        for node in level:
            values = [value for _, value in node] if isinstance(node, Fields) else node
            inner.extend(value for value in values if isinstance(value, Fields | list))
        if not inner:
            return True
        level = inner
    return not level
