"""Has every process drop what it keeps in memory of what was forgotten.

Decoded records, prepared texts and parts of logs stay in memory for those who ask next; whoever forgets something
drops them in its own process. To have the others do the same it commits to a namespace of the server's, when nothing
can read any more what was forgotten. Each process looks at that namespace's head every second and, if it has moved,
drops everything of the kind: what was forgotten stands nowhere, so nobody could say what exactly to drop.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from noosphere.consistency import NEVER_MS, Reason, Refusal

from ..ports.runtime import Clock
from ..ports.store import Commit, Committed, Mutation, NamespaceRef
from .core import Core
from .directory import SYSTEM_PREFIX

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""How often a process looks whether anything was forgotten."""

AGAIN_MS = 10_000
"""So much later it drops everything once more: a call may have read something before it was forgotten, and put it into
a cache since."""

_NAMESPACE = NamespaceRef(f"{SYSTEM_PREFIX}forgotten")
_KEY = "forgotten"
_ATTEMPTS_MAX = 8


class CacheDrops:
    """Drops the caches of this process, and has all others drop theirs.

    Args:
        core: where it is told.
        clock: how often is looked.
        shared: whether there are other processes to tell, or to be told by.
    """

    def __init__(self, core: Core, clock: Clock, *, shared: bool) -> None:
        self._core = core
        self._clock = clock
        self.shared = shared
        """Whether there are other processes."""
        self._drops: list[Callable[[], None]] = []

    def register(self, drop: Callable[[], None]) -> None:
        """Has a callable drop all contents that some cache keeps; it must not wait or fail."""
        self._drops.append(drop)

    async def tell(self) -> None:
        """Has every process drop its caches, soon; called when what was forgotten cannot be read any more.

        Raises:
            Refusal: ENGINE_UNAVAILABLE; then nobody was told.
        """
        if not self.shared:
            return
        store = self._core.store
        for _ in range(_ATTEMPTS_MAX):
            view = (await store.read(_NAMESPACE, ())).view
            told = Mutation(_KEY, b"\x00", NEVER_MS, NEVER_MS, False, b"")
            if isinstance(await store.commit(_NAMESPACE, Commit(view.epoch, 0, mutations=(told,))), Committed):
                return
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "the other servers could not be told that something was forgotten")

    async def run(self) -> None:
        """Drops caches whenever something was forgotten, until cancelled. Only needed if there are other processes."""
        seen: int | None = None
        again_ms: int | None = None
        while True:
            now_ms = self._clock.monotonic_ms()
            try:
                head = (await self._core.store.read(_NAMESPACE, ())).view.head
            except Refusal as refusal:
                # Nobody can tell this process anything, and without the store its caches are of no use.
                log.debug("caches are dropped, since nobody can tell what is forgotten", reason=refusal.reason)
                seen = None
                self._drop()
            else:
                if head != seen:
                    self._drop()
                    again_ms = now_ms + AGAIN_MS
                elif again_ms is not None and now_ms >= again_ms:
                    self._drop()
                    again_ms = None
                seen = head
            await self._clock.sleep(LOOK_SECONDS)

    def _drop(self) -> None:
        for drop in self._drops:
            drop()
