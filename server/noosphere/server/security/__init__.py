"""Who is calling, and what they may do."""

from .certificates import peer_identity
from .principal import OPEN, Principal, calling

__all__ = ["OPEN", "Principal", "calling", "peer_identity"]
