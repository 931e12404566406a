"""Drivers of long-term facts: embedded ones on SQLite files with an exact index in memory, and none at all."""

from .away import AwayFactStore
from .queue import EmbeddedFactQueue
from .rewriting import Rewritten, rewrite
from .store import NO_MODEL, EmbeddedFactStore

__all__ = ["NO_MODEL", "AwayFactStore", "EmbeddedFactQueue", "EmbeddedFactStore", "Rewritten", "rewrite"]
