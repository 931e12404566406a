"""Purging sessions: a closed one goes with everything in it, unless a fork still reads its messages."""

from __future__ import annotations

import asyncio

from noosphere.consistency import Reason, Refusal

from ..memory.admission import contended, require_writer
from ..memory.types import Call
from ..ports.store import Dropped, NamespaceRef, StoredEntry
from .closing import Closer
from .draft import Look
from .keys import CHILDREN, KeyRange, check_session_id
from .scribe import ATTEMPTS_MAX, Scan, Scribe, not_found
from .types import SessionStatus

FORK_MS_MAX = 60_000
"""How long a fork may take from its mark in the parent to its first commit."""

_SCAN_STEP = 128
_TIME_BYTES = 8


def child_key(session_id: str) -> str:
    """Returns where a parent keeps that a session was forked from it."""
    return CHILDREN + session_id


def encode_mark(marked_ms: int) -> bytes:
    """Returns the stored form of when a fork began."""
    return marked_ms.to_bytes(_TIME_BYTES, "big")


def decode_mark(entry: StoredEntry) -> int:
    """Returns when a fork began."""
    return int.from_bytes(entry.data[:_TIME_BYTES], "big")


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
            self._scribe.core.admit_reader(call, namespace)
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
            await self._check_childless(ref, look)
            dropped = await self._scribe.core.store.drop(ref, look.view.head)
            if isinstance(dropped, Dropped):
                return dropped.record_count
        await contended(self._scribe.core, ref, f"session {session_id!r} changed under each of {ATTEMPTS_MAX} attempts")

    async def _check_childless(self, ref: NamespaceRef, look: Look) -> None:
        """Checks that no fork reads messages of a session.

        Raises:
            Refusal: CHILDREN_OPEN.
        """
        cursor, more = None, True
        while more:
            scan = Scan(CHILDREN, _SCAN_STEP, keys=KeyRange(cursor, None))
            page = await self._scribe.scan(ref, scan, accepted=True)
            more = page.more
            for entry in page.entries:
                cursor = entry.key
                child = entry.key[len(CHILDREN) :]
                info = (await self._scribe.peek(child)).info
                begun = info is None and decode_mark(entry) + FORK_MS_MAX > look.now_ms
                if begun or (info is not None and info.parent == look.session_id):
                    raise Refusal(
                        Reason.CHILDREN_OPEN,
                        f"session {look.session_id!r} cannot be purged: its fork {child!r} still reads its messages; "
                        "purge that first",
                    )
            await asyncio.sleep(0)


def _check_closed(look: Look) -> None:
    """Checks that a session may be purged.

    Raises:
        Refusal: SESSION_NOT_FOUND, SESSION_OPEN.
    """
    if look.info is None:
        raise not_found(look.session_id)
    if look.info.status is SessionStatus.OPEN:
        raise Refusal(Reason.SESSION_OPEN, f"session {look.session_id!r} is open; CloseSession closes it")
