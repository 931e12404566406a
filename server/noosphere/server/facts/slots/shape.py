"""What the rules of a language find in a claim."""

from __future__ import annotations

from typing import NamedTuple

from ..types import Cardinality


class Found(NamedTuple):
    """A claim's parts as they stand in it, and how the values relate as far as its grammar tells."""

    subject: str
    predicate: str
    value: str
    cardinality: Cardinality
