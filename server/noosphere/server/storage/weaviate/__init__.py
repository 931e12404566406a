"""The fact store on Weaviate."""

from .access import WeaviateAccess
from .store import WeaviateFactStore

__all__ = ["WeaviateAccess", "WeaviateFactStore"]
