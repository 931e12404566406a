"""What becomes of contexts after they were made: they are explained, and their use is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from noosphere.consistency import invalid, too_large

from ..memory.admission import require_writer
from ..memory.types import Call
from ..text import distinct_terms
from .asked import REPORTED_MAX
from .book import ContextBook
from .manifests import Manifest
from .observing import ContextFigures, ContextObserver
from .replies import UsageReply
from .types import Fate, SectionKind

_ESTIMATED_SHARE = 0.3
"""So much of an entry's words in the answer count as use of it, if nothing is reported."""
_WORKING = (SectionKind.TASK, SectionKind.WORKING)


class ContextUsage:
    """Keeps manifests, and tells others of contexts and their use.

    Args:
        book: keeps them.
        observers: hear of contexts and of the use of items.
    """

    def __init__(self, book: ContextBook, observers: Sequence[ContextObserver]) -> None:
        self._book = book
        self._observers = tuple(observers)

    def note(self, manifest: Manifest, texts: Mapping[str, str] | None = None) -> None:
        """Notes a context, or what has become known of its use; see ``ContextBook.note``."""
        self._book.note(manifest, texts)
        figures = _figures(manifest)
        for observer in self._observers:
            observer.assembled(manifest.session_id, figures)

    async def kept(self, manifest: Manifest) -> None:
        """Returns once whoever is asked about a noted context can tell of it; see ``ContextBook.kept``."""
        await self._book.kept(manifest)

    def missing(self, session_id: str) -> None:
        """Notes that a context had no room for messages that no summary stands for."""
        for observer in self._observers:
            observer.missing(session_id)

    async def explain(self, call: Call, session_id: str, context_id: str) -> Manifest:
        """Returns the manifest of a context; of the session's newest one, if ``context_id`` is empty.

        Raises:
            Refusal: ENTRY_NOT_FOUND, SESSION_NOT_FOUND, or a reason that concerns the caller.
        """
        return (await self._book.find(call, session_id, context_id)).manifest

    async def report(
        self, call: Call, session_id: str, context_id: str, used: tuple[str, ...], reply: str
    ) -> UsageReply:
        """Notes what of a context was used; it counts as an access of the items among it.

        Args:
            call: who calls.
            session_id: the session.
            context_id: the context.
            used: ids of manifest entries; if empty, use is estimated.
            reply: the model's answer, by whose words use is estimated. It is not kept.

        Raises:
            Refusal: ENTRY_NOT_FOUND, INVALID_FIELD (an id that is not in the context), VALUE_TOO_LARGE, or a reason
                that concerns the caller.
        """
        require_writer(call)
        if len(used) > REPORTED_MAX:
            raise too_large("used", len(used), REPORTED_MAX, "entries")
        recent = await self._book.find(call, session_id, context_id)
        manifest = recent.manifest
        inside = {entry.id for entry in manifest.entries if entry.fate is not Fate.DROPPED}
        for index, name in enumerate(used):
            if name not in inside:
                raise invalid(f"used[{index}]", f"{name!r} is not in context {manifest.context_id!r}")
        recalled = manifest.recalled()
        if used:
            known, usage = used, "reported"
        elif reply.strip() and recent.texts:
            known, usage = await _estimated(reply, recent.texts), "estimated"
        else:
            known, usage = (), ""
        if usage and (usage == "reported" or manifest.usage != "reported"):
            together = tuple(dict.fromkeys((*(manifest.used if manifest.usage == usage else ()), *known)))
            manifest = _with_usage(manifest, together, usage)
            self.note(manifest)
            await self._book.kept(manifest)
        for name in known:
            if name.startswith("item:"):
                for observer in self._observers:
                    observer.accessed(call, session_id, name.removeprefix("item:"))
        return UsageReply(sum(name in manifest.used for name in recalled), len(recalled))


def _figures(manifest: Manifest) -> ContextFigures:
    working = sum(one.tokens_max for one in manifest.sections if one.kind in _WORKING)
    recalled = manifest.recalled() if manifest.usage else ()
    return ContextFigures(
        manifest.context_id,
        manifest.turn,
        manifest.tokens_used,
        manifest.tokens_max,
        working,
        len(recalled),
        sum(name in manifest.used for name in recalled),
        manifest.usage == "reported",
    )


async def _estimated(reply: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what an answer seems to use: of whose words it repeats enough."""
    said = distinct_terms(reply)
    used = []
    for name, text in texts.items():
        words = distinct_terms(text)
        if words and len(words & said) >= _ESTIMATED_SHARE * len(words):
            used.append(name)
        await asyncio.sleep(0)
    return tuple(used)


def _with_usage(manifest: Manifest, used: tuple[str, ...], usage: str) -> Manifest:
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    return Manifest(**{**fields, "used": used, "usage": usage})
