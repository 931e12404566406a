"""Keeps manifests: at once in memory, soon after in the session's namespace.

Nobody who assembles a context waits for a disk. A crash may take the manifests of the last moments with it; they
explain contexts, and nothing depends on them. Where several processes serve the same sessions, a context is handed out
once its manifest is stored: another process may be asked about it next, and what it showed counts there too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from noosphere.consistency import Reason, Refusal

from ..memory.types import Call
from ..ports.runtime import Clock
from ..sessions.draft import Draft, Look
from ..sessions.keys import CONTEXTS, KeyRange
from ..sessions.scribe import BACKGROUND, Intent, Need, Scan, Scribe
from .manifests import KEPT_MS, Manifest, decode_manifest, encode_manifest

log = structlog.get_logger(__name__)

SESSION_MAX = 512
"""Most manifests of one session; older ones go before their day is over."""

GATHER_MS = 250
"""How long manifests wait for others, so that a busy session writes few commits."""

_RECENT_MAX = 1_024
_BATCH_MAX = 32
_BATCH_BYTES_MAX = 256 * 1024
_TEXTS_MAX = 64
_WAITING_MAX = 1_024
_TRIM_EVERY = 32


class Recent(NamedTuple):
    """A manifest in memory; of the newest ones with the texts of what was recalled, by entry."""

    manifest: Manifest
    texts: Mapping[str, str]


class ContextBook:
    """The manifests of all sessions.

    Args:
        scribe: reads and writes their records.
        clock: how long manifests are gathered.
        shared: whether other processes write manifests of the same sessions.
    """

    def __init__(self, scribe: Scribe, clock: Clock, *, shared: bool = False) -> None:
        self._scribe = scribe
        self._clock = clock
        self.shared = shared
        """Whether other processes write manifests of the same sessions."""
        self._recent: OrderedDict[str, Recent] = OrderedDict()
        self._waiting: OrderedDict[str, Manifest] = OrderedDict()
        self._with_texts: deque[str] = deque()
        self._more = asyncio.Event()
        self._writing = asyncio.Lock()
        self._written: dict[str, int] = {}
        self._lost = 0
        self._tell: Callable[[Manifest], None] | None = None

    def tell(self, hears: Callable[[Manifest], None]) -> None:
        """Has somebody told of each manifest; it must not wait or fail."""
        self._tell = hears

    def note(self, manifest: Manifest, texts: Mapping[str, str] | None = None) -> None:
        """Keeps a manifest, or what is now known about its use.

        Args:
            manifest: the manifest.
            texts: of what was recalled, for :meth:`find`; they stay in memory, and not for long.
        """
        if self._tell is not None:
            self._tell(manifest)
        held = self._recent.pop(manifest.context_id, None)
        self._recent[manifest.context_id] = Recent(manifest, texts or (held.texts if held else {}))
        while len(self._recent) > _RECENT_MAX:
            self._recent.popitem(last=False)
        if texts:
            self._with_texts.append(manifest.context_id)
        while len(self._with_texts) > _TEXTS_MAX:
            old = self._recent.get(gone := self._with_texts.popleft())
            if old is not None:
                self._recent[gone] = old._replace(texts={})
        self._waiting[manifest.context_id] = manifest
        while len(self._waiting) > _WAITING_MAX:
            # The disk is slower than the models: what is kept has gaps, and is said to have.
            self._waiting.popitem(last=False)
            self._lost += 1
        self._more.set()

    async def kept(self, manifest: Manifest) -> None:
        """Returns once other processes can find a manifest that was noted; at once if there are none.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, or the session is gone.
        """
        if not self.shared:
            return
        async with self._writing:
            if manifest.context_id in self._waiting:
                held = dict(self._waiting)
                batch = self._batch(manifest.session_id)
                try:
                    await self._write(manifest.session_id, batch)
                except Refusal:
                    # Whoever waits for one of the others is to hear it, too.
                    for context_id, other in held.items():
                        if CONTEXTS + context_id in batch and other is not manifest:
                            self._waiting.setdefault(context_id, other)
                    raise

    async def find(self, call: Call, session_id: str, context_id: str) -> Recent:
        """Returns a manifest of a session; the newest, if ``context_id`` is empty.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND, or a reason that concerns the caller.
        """
        key = CONTEXTS + context_id
        scans = () if context_id else (Scan(CONTEXTS, 1, reverse=True),)
        look = await self._scribe.read(call, session_id, (key,), scans)
        entry = next(iter(look.scans[0].entries), None) if scans else look.internal(key)
        if not self.shared:
            found = self._newest(session_id) if not context_id else self._recent.get(context_id)
            if found is not None and found.manifest.session_id == session_id:
                return found
        if entry is None or entry.live_until_ms <= look.now_ms:
            what = f"no context {context_id!r}" if context_id else "no context"
            kept = f"manifests are kept for 24 hours, the newest {SESSION_MAX} of a session"
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"context_id: session {session_id!r} has {what}; {kept}")
        manifest = decode_manifest(entry.data)
        held = self._recent.get(manifest.context_id)
        return Recent(manifest, held.texts if held is not None and held.manifest.session_id == session_id else {})

    async def recent(self, session_id: str, count: int, *, after: str = "") -> tuple[Manifest, ...]:
        """Returns the newest manifests of a session, at most ``count``, the oldest first.

        Args:
            session_id: whose.
            count: how many.
            after: only those with greater ids than this, which are newer.
        """
        ref = await self._scribe.living(session_id)
        keys = KeyRange(CONTEXTS + after if after else None, None)
        page = await self._scribe.scan(ref, Scan(CONTEXTS, count, reverse=True, keys=keys))
        stored = {e.key: decode_manifest(e.data) for e in page.entries if e.live_until_ms > page.view.now_ms}
        for context_id, held in self._recent.items():
            if held.manifest.session_id == session_id and context_id > after and not self.shared:
                stored[CONTEXTS + context_id] = held.manifest
        return tuple(stored[key] for key in sorted(stored)[-count:])

    def _newest(self, session_id: str) -> Recent | None:
        held = (one for one in self._recent.values() if one.manifest.session_id == session_id)
        return max(held, key=lambda one: one.manifest.context_id, default=None)

    def forget(self, session_id: str) -> None:
        """Drops what is in memory of a session that is gone."""
        for context_id in [key for key, one in self._recent.items() if one.manifest.session_id == session_id]:
            del self._recent[context_id]
            self._waiting.pop(context_id, None)
        self._written.pop(session_id, None)

    def forget_all(self) -> None:
        """Drops what is in memory of manifests that are stored."""
        for context_id in [key for key in self._recent if key not in self._waiting]:
            del self._recent[context_id]

    async def run(self) -> None:
        """Writes manifests as they come, until it is cancelled."""
        while True:
            await self._more.wait()
            await self._clock.sleep(GATHER_MS / 1000)
            await self.settle()

    async def settle(self) -> None:
        """Writes everything that waits; returns when it is written, whoever had begun to."""
        async with self._writing:
            await self._settle()

    async def _settle(self) -> None:
        self._more.clear()
        while self._waiting:
            session_id = next(iter(self._waiting.values())).session_id
            batch = self._batch(session_id)
            try:
                await self._write(session_id, batch)
            except Refusal as refusal:
                # The session is gone, or the disk: either way nobody will ask for it.
                log.debug("manifests are not kept", reason=refusal.reason, count=len(batch))
            if self._lost:
                log.warning("manifests of contexts were not kept, the disk is too slow", count=self._lost)
                self._lost = 0

    def _batch(self, session_id: str) -> dict[str, tuple[bytes, int]]:
        """Takes what one commit holds; returns data and end by key."""
        batch: dict[str, tuple[bytes, int]] = {}
        size = 0
        for manifest in [one for one in self._waiting.values() if one.session_id == session_id]:
            if len(batch) >= _BATCH_MAX or size >= _BATCH_BYTES_MAX:
                break
            data = encode_manifest(manifest)
            batch[CONTEXTS + manifest.context_id] = (data, manifest.created_ms + KEPT_MS)
            size += len(data)
            del self._waiting[manifest.context_id]
        return batch

    async def _write(self, session_id: str, batch: Mapping[str, tuple[bytes, int]]) -> None:
        count = self._written.pop(session_id, _TRIM_EVERY)
        gone = await self._overdue(session_id) if count >= _TRIM_EVERY else ()
        self._written[session_id] = (0 if count >= _TRIM_EVERY else count) + len(batch)
        while len(self._written) > _RECENT_MAX:
            self._written.pop(next(iter(self._written)))

        def decide(look: Look, draft: Draft) -> None:
            for key, (encoded, ends_ms) in batch.items():
                draft.keep(key, encoded, live_until_ms=ends_ms)
            for key in gone:
                draft.forget(key)

        intent = Intent("context", keys=tuple(batch), glances=tuple(gone), need=Need.ANY, background=True)
        await self._scribe.write(BACKGROUND, session_id, intent, decide)

    async def _overdue(self, session_id: str) -> Sequence[str]:
        ref = await self._scribe.living(session_id)
        page = await self._scribe.scan(ref, Scan(CONTEXTS, SESSION_MAX + 2 * _TRIM_EVERY, reverse=True))
        return [entry.key for entry in page.entries[SESSION_MAX:]]
