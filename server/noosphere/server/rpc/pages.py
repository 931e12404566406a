"""Positions in page tokens: text that only the server that made it understands."""

from __future__ import annotations

import re

from noosphere.consistency import NamePattern, Reason, Refusal


def revision_at(position: str) -> int:
    """Returns the revision (or epoch) at a position.

    Raises:
        Refusal: INVALID_PAGE_TOKEN, for one that was made elsewhere.
    """
    # At most 19 digits, the length of the largest revision.
    if not re.fullmatch("[0-9]{1,19}", position):
        raise _damaged()
    return int(position)


def position_of(pattern: NamePattern) -> str:
    """Returns the position of a pattern."""
    return f"{'=' if pattern.exact else '*'}{pattern.text}"


def pattern_at(position: str) -> NamePattern:
    """Returns the pattern at a position.

    Raises:
        Refusal: INVALID_PAGE_TOKEN, for one that was made elsewhere.
    """
    if position[:1] not in {"=", "*"}:
        raise _damaged()
    return NamePattern(position[1:], position[0] == "=")


def _damaged() -> Refusal:
    return Refusal(Reason.INVALID_PAGE_TOKEN, "page_token: is damaged or not a token")
