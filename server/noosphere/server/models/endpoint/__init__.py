"""Models behind endpoints with OpenAI's interface: summaries, vectors, and claims in texts."""

from .budget import CallBudget
from .completions import Asks, Completions, Reply
from .connection import Connection
from .embedder import Embeddings, EndpointEmbedder, answer_bytes_max
from .extractor import EndpointExtractor
from .summariser import EndpointSummariser

__all__ = [
    "Asks",
    "CallBudget",
    "Completions",
    "Connection",
    "Embeddings",
    "EndpointEmbedder",
    "EndpointExtractor",
    "EndpointSummariser",
    "Reply",
    "answer_bytes_max",
]
