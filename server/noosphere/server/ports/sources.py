"""The port through which facts look at what they rest on: messages, results of tools, and the words in them.

A reference is ``msg:<session>/<message id>`` or ``tool:<session>/<call id>``. References of other kinds name what the
server does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

SOURCES_MAX = 256
"""Most references of one call, and most texts of one page."""

WORDS_MAX = 256
"""Most words of one redaction."""

REDACTED = "[forgotten]"
"""What stands where something was forgotten."""


class Source(NamedTuple):
    """A text that a fact may rest on.

    Attributes:
        reference: names it.
        text: the whole text, as it arrived.
        trust: 0.5 for what a user said, 0 for what came from outside or is made of it.
        role: ``user``, ``assistant``, ``system`` or ``tool``.
        author: the agent that recorded it.
        time_ms: store time at which it was recorded.
        content_hash: SHA-256 of ``text``.
        position: where a later page goes on.
        recalled: whether it shows what was recalled from long-term memory, and so teaches nothing.
    """

    reference: str
    text: str
    trust: float
    role: str
    author: str
    time_ms: int
    content_hash: bytes
    position: str
    recalled: bool = False


class Redacted(NamedTuple):
    """How many records of one place were overwritten: ``messages``, ``tool_results``, ``summaries``, and so on."""

    place: str
    records: int


class Sources(Protocol):
    """Finds and reads what facts rest on.

    Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE.
    """

    async def find(self, agent: str, references: Sequence[str]) -> tuple[Source | None, ...]:
        """Returns sources in the order asked for; None for one that is not there, or not for this agent to see.

        Args:
            agent: who asks; empty for the server itself.
            references: at most 256.
        """
        ...

    async def context_trust(self, agent: str, session_id: str) -> float:
        """Returns the lowest trust of what was seen in a session; 0 if there is none that this agent may see."""
        ...

    async def page(self, agent: str, session_id: str, after: str, limit: int) -> tuple[Source, ...]:
        """Reads a session's messages and results of tools in order, raw, after a position; empty for its beginning.

        Raises:
            Refusal: SESSION_NOT_FOUND.
        """
        ...


class Redaction(Protocol):
    """Overwrites what facts rest on.

    Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE.
    """

    async def redact(self, references: Sequence[str], words: Sequence[str]) -> tuple[Redacted, ...]:
        """Overwrites sources, and words wherever they occur in the sessions of these sources, for good.

        The text of each source is overwritten whole. In everything else of its session (other messages, results of
        tools, items, summaries, checkpoints, what waits to become a fact, remembered replies) the words are.
        Then nothing of them is in any log or file of the working store.

        Args:
            references: at most 256; those that are not there are skipped.
            words: at most 256 texts of at least 4 characters.
        """
        ...

    async def mentions(self, words: Sequence[str]) -> tuple[str, ...]:
        """Returns the ids of sessions whose records still hold one of the words, at most 1,000."""
        ...
