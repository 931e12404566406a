"""How much the tests try: enough for every day in ``make test``, all of it in ``make campaigns``.

Property tests, which hypothesis marks by itself, and those that are marked ``thorough`` run in both.
"""

from __future__ import annotations

import os

# Not NOOSPHERE_…: that would be a setting of the servers under test, which refuse those they do not know.
FULL = os.environ.get("TEST_EFFORT") == "full"

_EVERY_DAY_MIN = 20
_EVERY_DAY_PART = 0.25


def effort(every_day: int, full: int) -> int:
    """Returns how often something is tried."""
    return full if FULL else every_day


def examples(full: int) -> int:
    """Returns how many examples of a property are tried, out of those of a campaign."""
    return effort(min(full, max(_EVERY_DAY_MIN, round(full * _EVERY_DAY_PART))), full)
