"""JSON in the compact notation and back, as texts."""

from __future__ import annotations

from .document import NotJson, minified, parse
from .reader import read
from .writer import write


def compact(text: str, *, lines: bool = True) -> str:
    """Returns JSON in the compact notation, which is about half as many tokens.

    Args:
        text: a JSON document.
        lines: give each row of a table a line of its own, which a reader follows more easily; else only spaces
            stand between them, which saves about a token per row.

    Raises:
        NotJson: the text is no JSON, or nested too deeply.
    """
    return write(parse(text), lines=lines)


def expand(text: str) -> str:
    """Returns the JSON, without white space, of a document in the compact notation.

    JSON itself is returned without white space. Number literals, the order of keys and keys that occur twice are as
    they were; escapes in strings are written in one way.

    Raises:
        NotCompact: the text is neither.
    """
    try:
        return minified(parse(text))
    except NotJson:
        return minified(read(text))
