"""How working memory is written for a model: in full, in short, as JSON or as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .types import Form

_SHORT_CHARS = 240
_DEPTH_MAX = 8
_PLAIN = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_ ./@-]*[A-Za-z0-9_./@-])?")
_WORDS_OF_YAML = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"})
_json = msgspec.json.Encoder()
# JSON escapes control characters, but not these, which end a line for many readers.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def write(data: bytes, is_json: bool, form: Form) -> str:
    """Returns a value in a form.

    Args:
        data: the value's bytes.
        is_json: whether they are JSON text.
        form: the form; other than ``FULL`` it applies to JSON only.
    """
    if not is_json:
        text = data.decode("utf-8", "replace")
        return shorten(text, _SHORT_CHARS) if form is Form.SUMMARY else text
    if form is Form.FULL and data[:1] != b'"':
        # As it was written. It is one line, unless its writer broke it; that is shown as well.
        return data.decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace")
    if form is Form.YAML:
        return as_yaml(value)
    if form is Form.SUMMARY:
        return as_yaml(_outline(value))
    if form is Form.FULL and isinstance(value, str):
        return value
    return json_line(value)


def json_line(value: object) -> str:
    """Returns a value as JSON text that is one line to everybody."""
    return _json.encode(value).decode().translate(_LINE_ENDS)


def shorten(text: str, chars_max: int) -> str:
    """Returns a text with its middle cut out, and a mark that says how much; unchanged if it is short enough."""
    if len(text) <= chars_max:
        return text
    mark = f" […{len(text) - chars_max} characters left out…] "
    keep = max(0, chars_max - len(mark))
    head = (keep * 2 + 2) // 3
    return text[:head] + mark + (text[len(text) - (keep - head) :] if keep > head else "")


def _outline(value: Any) -> Any:
    """The scalars of a value, and of what is nested only the size."""
    if isinstance(value, Mapping):
        return {key: _brief(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_brief(inner) for inner in value[:5]] + ([f"… {len(value) - 5} more"] if len(value) > 5 else [])
    return _brief(value)


def _brief(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _SHORT_CHARS)
    if isinstance(value, Mapping):
        return f"({len(value)} fields)"
    if isinstance(value, list):
        return f"({len(value)} entries)"
    return value


def as_yaml(value: Any) -> str:
    """Returns a value of JSON as YAML in block style."""
    return "\n".join(_yaml(value, 0))


def _yaml(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    if depth < _DEPTH_MAX and isinstance(value, Mapping) and value:
        lines = []
        for key, inner in value.items():
            lines += _pair(f"{pad}{_scalar(key)}:", inner, depth)
        return lines
    if depth < _DEPTH_MAX and isinstance(value, list) and value:
        lines = []
        for inner in value:
            lines += _pair(f"{pad}-", inner, depth)
        return lines
    return [pad + _scalar(value)]


def _pair(head: str, inner: Any, depth: int) -> list[str]:
    if depth + 1 < _DEPTH_MAX and isinstance(inner, (Mapping, list)) and inner:
        return [head, *_yaml(inner, depth + 1)]
    return [f"{head} {_scalar(inner)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    # JSON is YAML, and says which strings are strings.
    return json_line(value)
