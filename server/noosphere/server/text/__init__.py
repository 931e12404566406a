"""Text as it is compared: one form of writing, and the terms by which it is found."""

from __future__ import annotations

from .normal import normalise
from .terms import TERMS_MAX, WORD_CHARS_MAX, terms

__all__ = ["TERMS_MAX", "WORD_CHARS_MAX", "normalise", "terms"]
