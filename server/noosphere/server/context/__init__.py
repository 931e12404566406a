"""Context: what one model call gets to see, within its budget, and why."""

from .service import ContextService

__all__ = ["ContextService"]
