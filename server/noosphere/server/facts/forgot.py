"""What a call that forgets tells of what it did."""

from __future__ import annotations

from typing import NamedTuple

BACKUPS = "backups of the data folder that were made before"


class Forgot(NamedTuple):
    """What was forgotten, or would be.

    Attributes:
        fact_ids: the facts, at most 1,000.
        places: how many entries were removed or overwritten, by place.
        remaining: what may still hold it, in words.
    """

    fact_ids: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    remaining: tuple[str, ...]
