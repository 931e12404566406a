"""The port through which facts look at what they rest on: messages, results of tools, and the words in them.

A reference is ``msg:<session>/<message id>`` or ``tool:<session>/<call id>``. References of other kinds name what the
server does not hold. Ephemeral sessions hold no sources: nothing that is made of them may outlive them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

SOURCES_MAX = 256
"""Most references of one call, and most texts of one page."""

WORDS_MAX = 256
"""Most words of one redaction."""

SESSION = "session:"
"""``session:<id>`` names a session alone: words are forgotten there, and no source is."""

REDACTED = "[forgotten]"
"""What stands where something was forgotten."""


class Source(NamedTuple):
    """A text that a fact may rest on.

    Attributes:
        reference: names it, in the session that holds it, even if it was asked for by a fork's.
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

    @property
    def session_id(self) -> str:
        """The session that holds it; empty for what is no part of one."""
        kind, _, place = self.reference.partition(":")
        return place.partition("/")[0] if kind in ("msg", "tool") else ""


class Redacted(NamedTuple):
    """How many records of one place were overwritten or removed.

    Places are ``messages``, ``tool_results``, ``items``, ``summaries``, ``checkpoints``, ``outbox``, ``contexts``,
    ``control``, ``titles``, ``handoffs`` and ``events``.
    """

    place: str
    records: int


class Sources(Protocol):
    """Finds and reads what facts rest on.

    Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE.
    """

    async def find(self, agent: str, references: Sequence[str]) -> tuple[Source | None, ...]:
        """Returns sources in the order asked for; None for one that is not there.

        What a caller may see is asked by whoever knows the caller.

        Args:
            agent: who asks; empty for the server itself.
            references: at most 256, of 64 Mi characters of text together.

        Raises:
            Refusal: VALUE_TOO_LARGE.
        """
        ...

    async def context_trust(self, agent: str, session_id: str) -> float:
        """Returns the lowest trust of what an agent has seen in a session; 0 if it has taken no part in it.

        Also 0 if there is no such session. For the server itself (empty) it is what was seen
        there by anybody.
        """
        ...

    async def page(self, agent: str, session_id: str, after: str, limit: int) -> tuple[Source, ...]:
        """Reads a session's messages and results of tools in order, raw, after a position; empty for its beginning.

        What came after its place was read, as the result of a slow tool may, is on a later page. Nothing is the end.

        Args:
            agent: who asks; empty for the server itself.
            session_id: which session.
            after: a source's position.
            limit: 1 to 256.

        Raises:
            Refusal: SESSION_NOT_FOUND, INVALID_FIELD.
        """
        ...


class Redaction(Protocol):
    """Overwrites what facts rest on.

    Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE.
    """

    async def redact(self, references: Sequence[str], words: Sequence[str]) -> tuple[Redacted, ...]:
        """Overwrites sources, and words wherever they occur in the sessions of these sources, for good.

        The text of each source is overwritten whole. In everything else of its session, and of those that it was
        forked from or that were forked from it (other messages, results of tools, items, summaries, checkpoints, what
        waits to become a fact, remembered replies), the words are; names stay. Then nothing of them is in any log or
        file of the working store. What was cut off is finished by the same call again.

        Args:
            references: at most 256; those that are not there are skipped. ``session:<id>`` names a session without a
                source, e.g. one that ``mentions`` has found.
            words: at most 256 texts of 4 to 4,096 characters, whatever their case and spelling in Unicode or JSON.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED (too many forks), before anything is done;
                CONTENTION.
        """
        ...

    async def mentions(self, words: Sequence[str]) -> tuple[str, ...]:
        """Returns the ids of sessions whose records still hold one of the words, at most 1,000."""
        ...
