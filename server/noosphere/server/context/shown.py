"""What contexts showed of a session's surroundings: facts and evidence, whose trust counts for what is said after.

Kept in memory in figures; read from the manifests that are stored when a session is first asked about, and, where other
processes make contexts too, those that have come since each time.
"""

from __future__ import annotations

from collections import OrderedDict

from ..sessions.seen import ShownContext
from .book import SESSION_MAX, ContextBook
from .manifests import Manifest
from .types import Fate

SESSIONS_MAX = 128
"""Of so many sessions, the last ones asked about."""

LATE_MS = 10 * 60_000
"""A context whose manifest is stored so long after its id was made is missed; assembling one takes seconds."""

_TIME_DIGITS = 11
"""An id begins with its time in so many hexadecimal digits."""

_FACT = "fact:"
_GIVEN = (_FACT, "evidence:", "subagent:")
"""Ids of what does not come from the session itself."""


class ContextsShown:
    """Knows what the contexts of sessions showed; see ``sessions.seen.ShownContexts``.

    Args:
        book: the manifests, old and new.
    """

    def __init__(self, book: ContextBook) -> None:
        self._book = book
        self._known: OrderedDict[str, dict[str, ShownContext]] = OrderedDict()
        self._read_to: dict[str, str] = {}
        book.tell(self._note)

    async def shown(self, session_id: str) -> tuple[ShownContext, ...]:
        """Returns what is known of a session's newest 512 contexts, as far as they showed anything from elsewhere."""
        known = self._known.pop(session_id, None)
        if known is None:
            known = {}
            self._read_to.pop(session_id, None)
        self._known[session_id] = known
        read_to = self._read_to.get(session_id)
        if read_to is None:
            await self._read(session_id, "")
        elif self._book.shared:
            # Ids begin with the time at which a context was begun, and it is stored when it is done.
            await self._read(session_id, _earlier(read_to))
        while len(self._known) > SESSIONS_MAX:
            self._read_to.pop(self._known.popitem(last=False)[0], None)
        return tuple(known.values())

    async def _read(self, session_id: str, after: str) -> None:
        manifests = await self._book.recent(session_id, SESSION_MAX, after=after)
        for manifest in manifests:
            self._note(manifest)
        if session_id in self._known:
            newest = manifests[-1].context_id if manifests else ""
            self._read_to[session_id] = max(newest, self._read_to.get(session_id, ""))

    def _note(self, manifest: Manifest) -> None:
        known = self._known.get(manifest.session_id)
        shown = shown_in(manifest)
        if known is None or shown is None:
            return
        known[manifest.context_id] = shown
        if len(known) > SESSION_MAX:
            del known[min(known)]


def _earlier(context_id: str) -> str:
    """Returns what every id is greater than that was made at most :data:`LATE_MS` before this one."""
    if not context_id:
        return ""
    return f"{max(0, int(context_id[:_TIME_DIGITS], 16) - LATE_MS):0{_TIME_DIGITS}x}"


def shown_in(manifest: Manifest) -> ShownContext | None:
    """Returns what a context showed that does not come from the session; None if it showed nothing of the kind."""
    given = [e for e in manifest.entries if e.fate is not Fate.DROPPED and e.id.startswith(_GIVEN)]
    if not given:
        return None
    recalled = any(entry.id.startswith(_FACT) for entry in given)
    return ShownContext(manifest.revision, min(entry.trust for entry in given), recalled)
