"""What an examination finds."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    """A server cannot start, or does not do what it promises."""
    WARNING = "warning"
    """It works, and will not for long, or not as well as it could."""


class Finding(NamedTuple):
    """One thing that is wrong. No field ever holds a secret.

    Attributes:
        name: a constant, e.g. ``redis_password``.
        severity: how bad it is.
        what: what is wrong, as one sentence.
        evidence: by what that was seen.
        advice: what to do.
    """

    name: str
    severity: Severity
    what: str
    evidence: str
    advice: str


def problem(name: str, what: str, evidence: object, advice: str) -> Finding:
    """Returns a finding that has to be dealt with."""
    return Finding(name, Severity.PROBLEM, what, str(evidence), advice)


def warning(name: str, what: str, evidence: object, advice: str) -> Finding:
    """Returns a finding that should be dealt with."""
    return Finding(name, Severity.WARNING, what, str(evidence), advice)
