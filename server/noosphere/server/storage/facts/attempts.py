"""How drivers of the fact queue count attempts: those that do not count are counted apart, in the same number.

A lease names an attempt, so no attempt may come twice under one number, though it may be told under one.
"""

from __future__ import annotations

COUNT_BITS = 12
"""So many bits for the attempts that count; what stands above them counts those that do not."""

GIVEN_BACK = (1 << COUNT_BITS) - 1
"""Added to an attempt that is given back without counting: one that counts less, one that does not more."""

STORED_MAX = (1 << 32) - (2 << COUNT_BITS)
"""From this on every attempt counts: a job that was given back a million times is no longer worth the room."""


def attempt_of(stored: int) -> int:
    """Returns how many attempts count, of a number as it is stored."""
    return stored & GIVEN_BACK


def returned_of(stored: int) -> int:
    """Returns how often a job was given back without counting, of the same number."""
    return stored >> COUNT_BITS
