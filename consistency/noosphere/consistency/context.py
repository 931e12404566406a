"""Causal contexts: what a reader has seen of one key.

A context belongs to the record object that was read. Nothing keeps one per agent or per process: two
tasks that shared a context would overwrite what only one of them had read, without any error.
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import invalid, too_large
from .limits import CONTEXT_EXTRAS_MAX
from .revision import REVISION_MAX


class CausalContext(NamedTuple):
    """Covers every dot up to ``prefix`` and the dots in ``extras``."""

    prefix: int = 0
    extras: tuple[int, ...] = ()

    def covers(self, dot: int) -> bool:
        """Tells whether the reader has seen the value written at ``dot``."""
        return dot <= self.prefix or dot in self.extras

    @property
    def revisions(self) -> tuple[int, ...]:
        """Every revision that this context names. Each may have been lost although a newer one survived."""
        return (self.prefix, *self.extras)

    def check(self, field: str = "context") -> None:
        """Checks bounds.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
        """
        if len(self.extras) > CONTEXT_EXTRAS_MAX:
            raise too_large(f"{field}.extras", len(self.extras), CONTEXT_EXTRAS_MAX, "dots")
        for revision in self.revisions:
            if not 0 <= revision <= REVISION_MAX:
                raise invalid(field, f"{revision} is not a revision")
