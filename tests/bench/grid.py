"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; "" if it has no columns."""
    lines = [header, ["---"] * len(header), *rows] if header else []
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
