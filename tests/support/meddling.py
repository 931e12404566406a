"""A store through which somebody is always faster: for what happens when every attempt loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from noosphere.server.ports.store import Commit, CommitResult, NamespaceRef, WorkingStore


class MeddlingStore:
    """The real store, except that ``meddle`` runs before each commit and may change what was decided on."""

    def __init__(self, store: WorkingStore, meddle: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._meddle = meddle
        self._inside = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, namespace: NamespaceRef, commit: Commit) -> CommitResult:
        """Lets the meddler commit first."""
        if not self._inside:
            self._inside = True
            try:
                await self._meddle()
            finally:
                self._inside = False
        return await self._store.commit(namespace, commit)
