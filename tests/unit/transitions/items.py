"""Items as the controller has read them."""

from __future__ import annotations

from noosphere.consistency import NEVER_MS, Encoding, Record, Sibling, VersionClock
from noosphere.server.transitions.states import LiveItem


def live(key: str, *, goal: bool = False) -> LiveItem:
    """Returns a small item; ``goal`` makes an open goal of it."""
    record = Record(1, (Sibling(1, "a#1", 0, b'"x"', Encoding.JSON, NEVER_MS),), VersionClock(()), 0, 1)
    return LiveItem(key, record, 10, f"text of {key}", goal)
