"""The port through which services tell what a traced call spends its time on.

Most calls are not traced: then there is nothing in :data:`tracing`, and asking for it is all that it costs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol


class Trace(Protocol):
    """The part of a sampled trace that this task works for."""

    def span(self, name: str) -> AbstractContextManager[object]:
        """Returns a block of which the trace tells how long it took, and whether it failed.

        Args:
            name: what is done there. Never a key, a value or an agent's name.
        """
        ...


tracing: ContextVar[Trace | None] = ContextVar("tracing", default=None)
"""The trace of the call under way in this task; None for most."""
