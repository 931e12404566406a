"""Finds facts in what users say, by rules: no model, no network, the same claims every time."""

from .extractor import RulesExtractor

__all__ = ["RulesExtractor"]
