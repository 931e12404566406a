"""Tickets: with one, any process may finish the attempt at a tool call for which it was issued."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from noosphere.consistency import Refusal, invalid

from .keys import TOOLS, check_session_id, is_slot

TICKET_BYTES_MAX = 256
_CHECK_BYTES = 4
_ATTEMPT_DIGITS_MAX = 10


class Ticket(NamedTuple):
    """Which attempt at which call a ticket is for.

    Attributes:
        session_id: the session.
        slot: the end of the call's key.
        attempt: the attempt, from 1.
    """

    session_id: str
    slot: str
    attempt: int

    @property
    def key(self) -> str:
        """The call's key."""
        return TOOLS + self.slot

    def __str__(self) -> str:
        body = f"{self.session_id}:{self.slot}:{self.attempt}"
        return f"{body}:{_check(body)}"

    @classmethod
    def parse(cls, text: str, field: str = "ticket") -> Ticket:
        """Reads a ticket.

        Raises:
            Refusal: INVALID_FIELD, for anything that no server has issued as it is.
        """
        body, _, check = text.rpartition(":")
        session_id, slot, attempt = [*body.rsplit(":", 2), "", ""][:3]
        known = (
            len(text.encode("utf-8", "surrogatepass")) <= TICKET_BYTES_MAX
            and is_slot(slot)
            and attempt.isascii()
            and attempt.isdigit()
            and len(attempt) <= _ATTEMPT_DIGITS_MAX
            and check == _check(body)
        )
        if not known:
            raise _damaged(field)
        try:
            check_session_id(session_id)
        except Refusal:
            raise _damaged(field) from None
        return cls(session_id, slot, int(attempt))


def _check(body: str) -> str:
    return hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=_CHECK_BYTES).hexdigest()


def _damaged(field: str) -> Refusal:
    return invalid(field, "is damaged or not a ticket; StartToolCall returns one")
