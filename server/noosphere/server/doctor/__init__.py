"""Looks at what a server needs, and says what is wrong with it and what to do; changes nothing."""

from .examining import examine
from .findings import Finding, Severity
from .surroundings import Surroundings

__all__ = ["Finding", "Severity", "Surroundings", "examine"]
