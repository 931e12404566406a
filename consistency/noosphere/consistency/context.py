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
    def newest(self) -> int:
        """The highest revision that this context names."""
        return max(self.prefix, *self.extras) if self.extras else self.prefix

    def check(self, field: str = "context") -> None:
        """Checks bounds.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
        """
        if len(self.extras) > CONTEXT_EXTRAS_MAX:
            raise too_large(f"{field}.extras", len(self.extras), CONTEXT_EXTRAS_MAX, "dots")
        if self.newest > REVISION_MAX:
            raise invalid(field, f"{self.newest} is not a revision")
