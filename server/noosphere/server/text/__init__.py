"""Text as it is compared: one form of writing, and the terms by which it is found."""

from __future__ import annotations

from .normal import normalise
from .terms import DISTINCT_MAX, TERMS_MAX, WORD_CHARS_MAX, distinct_terms, terms

__all__ = ["DISTINCT_MAX", "TERMS_MAX", "WORD_CHARS_MAX", "distinct_terms", "normalise", "terms"]
