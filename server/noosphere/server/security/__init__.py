"""Who is calling, what they may do, and how much they do."""

from .certificates import peer_identity
from .permissions import Doing, Permissions, Why, decide
from .principal import OPEN, Principal, calling
from .unsettled import Unsettled
from .usage import By, Order, Usage

__all__ = [
    "OPEN",
    "By",
    "Doing",
    "Order",
    "Permissions",
    "Principal",
    "Unsettled",
    "Usage",
    "Why",
    "calling",
    "decide",
    "peer_identity",
]
