"""Owners: whatever the server holds of one, in facts, sessions and private namespaces; and of agents what they do."""

from .agents import AgentKeeper
from .erasing import Erased, OwnerEraser

__all__ = ["AgentKeeper", "Erased", "OwnerEraser"]
