"""The second demo: three agents, what each had seen, and what follows from that."""

from __future__ import annotations

from .command import run_causality
from .story import tell

__all__ = ["run_causality", "tell"]
