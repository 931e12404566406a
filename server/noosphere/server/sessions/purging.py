"""Purging sessions: a closed one goes with everything in it, unless a fork still reads its messages."""

from __future__ import annotations

from noosphere.consistency import Reason, Refusal

from ..memory.admission import contended, require_writer
from ..memory.types import Call
from ..ports.grants import Verb
from ..ports.store import Dropped
from .children import check_childless
from .closing import Closer
from .draft import Look
from .keys import check_session_id
from .scribe import ATTEMPTS_MAX, Scribe, not_found
from .types import SessionStatus


class Purger:
    """Purges sessions.

    Args:
        scribe: reads their records.
        closer: carries on a closing that was interrupted: candidates come first.
    """

    def __init__(self, scribe: Scribe, closer: Closer) -> None:
        self._scribe = scribe
        self._closer = closer

    async def purge(self, call: Call, session_id: str, *, background: bool = False) -> int:
        """Removes a closed session; returns how many records went, 0 if it was purged before.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_OPEN, CHILDREN_OPEN, CONTENTION, or a reason that concerns the caller.
        """
        namespace = check_session_id(session_id)
        if not background:
            require_writer(call)
            self._scribe.core.admit_reader(call, namespace, Verb.DELETE)
        ref = await self._scribe.living(session_id)
        for _ in range(ATTEMPTS_MAX):
            look = await self._scribe.peek(session_id)
            if look.view.deleted:
                return 0
            _check_closed(look)
            closing = look.session.closing
            if closing is not None and not closing.done:
                await self._closer.carry_on(session_id)
                continue
            await check_childless(self._scribe, ref, look)
            dropped = await self._scribe.core.store.drop(ref, look.view.head)
            if isinstance(dropped, Dropped):
                return dropped.record_count
        await contended(self._scribe.core, ref, f"session {session_id!r} changed under each of {ATTEMPTS_MAX} attempts")


def _check_closed(look: Look) -> None:
    """Checks that a session may be purged.

    Raises:
        Refusal: SESSION_NOT_FOUND, SESSION_OPEN.
    """
    if look.info is None:
        raise not_found(look.session_id)
    if look.info.status is SessionStatus.OPEN:
        raise Refusal(Reason.SESSION_OPEN, f"session {look.session_id!r} is open; CloseSession closes it")
