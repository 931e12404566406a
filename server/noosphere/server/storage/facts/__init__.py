"""The embedded drivers of long-term facts: SQLite files as truth, an exact index in memory."""

from .queue import EmbeddedFactQueue
from .rewriting import Rewritten, rewrite
from .store import NO_MODEL, EmbeddedFactStore

__all__ = ["NO_MODEL", "EmbeddedFactQueue", "EmbeddedFactStore", "Rewritten", "rewrite"]
