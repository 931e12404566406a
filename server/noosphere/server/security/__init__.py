"""Who is calling, and what they may do."""

from .principal import OPEN, Principal, calling

__all__ = ["OPEN", "Principal", "calling"]
