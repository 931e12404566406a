"""What others hear of contexts: the controller and the figures of a session's health live on it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..memory.types import Call


class ContextFigures(NamedTuple):
    """One context in figures.

    Attributes:
        context_id: which.
        turn: in which turn.
        tokens_used: what it took.
        tokens_max: what it was allowed.
        working_tokens: of these, what working memory was allowed.
        recalled: how many entries it recalled; 0 as long as nobody has said what was used.
        used: how many of these were used.
        reported: whether the use was reported; else it was estimated.
    """

    context_id: str
    turn: int
    tokens_used: int
    tokens_max: int
    working_tokens: int
    recalled: int = 0
    used: int = 0
    reported: bool = False


class ContextObserver(Protocol):
    """Hears of contexts. Never waits and never fails; what it has heard may be lost with the process."""

    def assembled(self, session_id: str, figures: ContextFigures) -> None:
        """Notes a context, or what has become known of its use."""
        ...

    def missing(self, session_id: str) -> None:
        """Notes that a context had no room for messages that no summary stands for."""
        ...

    def accessed(self, call: Call, session_id: str, key: str) -> None:
        """Notes that an item was used by a model."""
        ...
