"""Sessions that teach facts: whose label says for whom, what was said in them is read at the end of each turn."""

from __future__ import annotations

from typing import Protocol

import structlog

from noosphere.consistency import Refusal

from ..memory.types import Call
from .codec import decode_meta
from .keys import META
from .scribe import Scribe
from .types import TurnOutcome

log = structlog.get_logger(__name__)

OWNER_LABEL = "facts_owner"
"""The label of a session that says whose facts are learned from it, e.g. ``user/42``."""


class Learns(Protocol):
    """Learns facts from a session, later."""

    async def __call__(self, call: Call, session_id: str, turn: int, *, agent: str, owner: str) -> None:
        """Notes durably that a session is to be read.

        Args:
            call: who has ended the turn.
            session_id: the session.
            turn: the turn that has ended.
            agent: whose session it is; only that agent's rights count.
            owner: whose facts are to be learned.

        Raises:
            Refusal: why it cannot.
        """
        ...


class TeachesAfterTurn:
    """Has a session read for facts when a turn has ended, if its label asks for that.

    A turn never fails because of it: what cannot be noted now is read after the next turn.

    Args:
        scribe: reads the session's label.
        learns: reads the session.
    """

    def __init__(self, scribe: Scribe, learns: Learns) -> None:
        self._scribe = scribe
        self._learns = learns

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """See ``AfterTurn``."""
        look = await self._scribe.peek(session_id, (META,))
        if look.info is None or look.info.ephemeral:
            return TurnOutcome()
        owner = decode_meta(look.record(META)).labels.get(OWNER_LABEL, "")
        if owner:
            try:
                await self._learns(call, session_id, turn, agent=look.info.owner, owner=owner)
            except Refusal as refusal:
                log.warning("a session is not read for facts", reason=refusal.reason, message=refusal.message)
        return TurnOutcome()
