"""Facts that are known before a test begins, in a server of its own process."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from noosphere.client import Candidate
from noosphere.client.sync import connect


def make_known(address: str, candidates: Sequence[Candidate]) -> list[str]:
    """Has an operator propose claims, as `facts import` does, and waits; returns what became of each, in order."""
    with connect(address, agent=f"cli/{uuid.uuid4().hex[:12]}") as client:
        return [str(decision.status) for decision in client.facts.remember_many(*candidates)]
