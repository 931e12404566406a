"""What contexts showed of a session's surroundings: facts and evidence, whose trust counts for what is said after.

Kept in memory in figures; read from the manifests that are stored when a session is first asked about.
"""

from __future__ import annotations

from collections import OrderedDict

from ..sessions.seen import ShownContext
from .book import SESSION_MAX, ContextBook
from .manifests import Manifest
from .types import Fate

SESSIONS_MAX = 128
"""Of so many sessions, the last ones asked about."""

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
        book.tell(self._note)

    async def shown(self, session_id: str) -> tuple[ShownContext, ...]:
        """Returns what is known of a session's newest 512 contexts, as far as they showed anything from elsewhere."""
        known = self._known.pop(session_id, None)
        if known is None:
            known = {}
            self._known[session_id] = known
            for manifest in await self._book.recent(session_id, SESSION_MAX):
                self._note(manifest)
        self._known[session_id] = known
        while len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        return tuple(known.values())

    def _note(self, manifest: Manifest) -> None:
        known = self._known.get(manifest.session_id)
        shown = shown_in(manifest)
        if known is None or shown is None:
            return
        known[manifest.context_id] = shown
        if len(known) > SESSION_MAX:
            del known[min(known)]


def shown_in(manifest: Manifest) -> ShownContext | None:
    """Returns what a context showed that does not come from the session; None if it showed nothing of the kind."""
    given = [e for e in manifest.entries if e.fate is not Fate.DROPPED and e.id.startswith(_GIVEN)]
    if not given:
        return None
    recalled = any(entry.id.startswith(_FACT) for entry in given)
    return ShownContext(manifest.revision, min(entry.trust for entry in given), recalled)
