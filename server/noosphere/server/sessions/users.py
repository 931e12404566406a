"""Who uses a session: the agent that opened it, and those that it was handed over to."""

from __future__ import annotations

import msgspec

from noosphere.consistency import Refusal

from ..memory.access import SessionUsers
from ..memory.types import Call
from ..ports.grants import Verb
from ..ports.store import StoredEntry
from ..security.permissions import denied
from .draft import Draft, Look
from .keys import HANDED, check_session_id, namespace_of
from .scribe import Scribe

HANDED_MAX = 256
"""How many agents use a session because it was handed to them; those that it was handed to first lose it."""


class Users:
    """Finds out who uses a session.

    Args:
        scribe: reads the records.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def find(self, session_id: str) -> SessionUsers | None:
        """Returns who uses a session, as was accepted last; None if there is none of that id.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        try:
            check_session_id(session_id)
        except Refusal:
            return None
        look = await self._scribe.peek(session_id, (HANDED,))
        return None if look.info is None or look.view.deleted else users_of(look)


def users_of(look: Look) -> SessionUsers:
    """Returns who uses a session of which ``HANDED`` was read."""
    return SessionUsers(look.session.owner, frozenset(_handed(look.internal(HANDED))))


def hand_to(look: Look, draft: Draft, agent_id: str) -> None:
    """Notes that an agent uses a session from now on, of which ``HANDED`` was read."""
    handed = _handed(look.internal(HANDED))
    if agent_id not in handed:
        draft.keep(HANDED, msgspec.json.encode((*handed, agent_id)[-HANDED_MAX:]))


def may_use(scribe: Scribe, call: Call, look: Look, verb: Verb = Verb.READ) -> bool:
    """Tells whether the caller may do something in a session, of which ``HANDED`` was read unless nobody is asked."""
    if call.principal.open:
        return True
    access = scribe.core.access
    return access.may_use(call.principal, call.agent_id, look.session_id, users_of(look), verb)


def require_use(scribe: Scribe, call: Call, look: Look, verb: Verb = Verb.WRITE) -> None:
    """Checks that a session that is there already is one that the caller uses.

    Raises:
        Refusal: PERMISSION_DENIED.
    """
    if look.info is not None and not may_use(scribe, call, look, verb):
        raise denied(verb, namespace_of(look.session_id))


def _handed(entry: StoredEntry | None) -> tuple[str, ...]:
    return () if entry is None else msgspec.json.decode(entry.data, type=tuple[str, ...])
