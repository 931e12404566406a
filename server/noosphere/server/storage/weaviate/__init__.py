"""The fact store on Weaviate."""

from .access import WeaviateAccess
from .rewriting import rewrite
from .store import WeaviateFactStore

__all__ = ["WeaviateAccess", "WeaviateFactStore", "rewrite"]
