"""Who is calling, what they may do, and how much they do."""

from .certificates import peer_identity
from .principal import OPEN, Principal, calling
from .usage import By, Order, Usage

__all__ = ["OPEN", "By", "Order", "Principal", "Usage", "calling", "peer_identity"]
