"""Slots: of which thing a claim says which property, found in its words by rules of grammar."""

from __future__ import annotations

from .find import Slot, find
from .predicates import USER, cardinality_of, predicate_form, subject_form, value_form

__all__ = ["USER", "Slot", "cardinality_of", "find", "predicate_form", "subject_form", "value_form"]
