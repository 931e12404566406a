"""The fact store on Weaviate."""

from .access import WeaviateAccess
from .lineage import OtherCollection
from .rewriting import rewrite
from .store import WeaviateFactStore

__all__ = ["OtherCollection", "WeaviateAccess", "WeaviateFactStore", "rewrite"]
