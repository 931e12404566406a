"""What a call that forgets tells of what it did."""

from __future__ import annotations

from typing import NamedTuple

BACKUPS = "backups of the data folder that were made before"

ON_DISK = {"weaviate": "Weaviate's files, until it compacts them at a time of its choosing, and its backups"}
"""Where words stay that were removed and that no call finds any more, by the engine of the fact store."""


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
