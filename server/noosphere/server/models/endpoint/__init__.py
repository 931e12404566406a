"""Models behind endpoints with OpenAI's interface: summaries, vectors, claims in texts, and working memory."""

from .budget import CallBudget
from .completions import Asks, Completions, Reply
from .connection import Connection
from .embedder import Embeddings, EndpointEmbedder, answer_bytes_max
from .extractor import EndpointExtractor
from .policy import EndpointPolicy
from .summariser import EndpointSummariser

__all__ = [
    "Asks",
    "CallBudget",
    "Completions",
    "Connection",
    "Embeddings",
    "EndpointEmbedder",
    "EndpointExtractor",
    "EndpointPolicy",
    "EndpointSummariser",
    "Reply",
    "answer_bytes_max",
]
