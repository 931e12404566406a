"""Summaries without a model."""

from .summariser import ExtractiveSummariser

__all__ = ["ExtractiveSummariser"]
