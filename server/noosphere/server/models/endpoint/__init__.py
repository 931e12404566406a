"""Summaries by a model behind an endpoint with OpenAI's interface."""

from .budget import CallBudget
from .completions import Completions, Reply
from .summariser import EndpointSummariser

__all__ = ["CallBudget", "Completions", "EndpointSummariser", "Reply"]
