"""Owners: whatever the server holds of one, in facts, sessions and private namespaces."""

from .erasing import Erased, OwnerEraser

__all__ = ["Erased", "OwnerEraser"]
