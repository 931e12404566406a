"""Clocks that disagree."""

from __future__ import annotations

from .findings import Finding, problem

SKEW_MS_MAX = 5_000
"""More than this between two machines makes times of records and expiries of certificates and tokens wrong."""


def skew(whose: str, their_ms: int, asked_ms: int, answered_ms: int) -> list[Finding]:
    """Compares another clock with this machine's, as both were while it was asked.

    Args:
        whose: the other one, in words.
        their_ms: what it told.
        asked_ms: this machine's before.
        answered_ms: this machine's afterwards.
    """
    off_ms = asked_ms - their_ms if their_ms < asked_ms else their_ms - answered_ms
    if off_ms <= SKEW_MS_MAX:
        return []
    ahead = "behind" if their_ms < asked_ms else "ahead of"
    return [
        problem(
            "clock_skew",
            "two clocks disagree",
            f"that of {whose} is {off_ms / 1000:,.1f} s {ahead} this machine's",
            "set both by NTP",
        )
    ]
