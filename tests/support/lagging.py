"""A fact store whose searches lag behind its writes, as those of a replica of Weaviate may. What is read by key is new.

Both halves are real stores: one takes every write, and the searches see another, which catches up when a test says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from noosphere.server.drivers import Drivers, open_drivers
from noosphere.server.ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from noosphere.server.storage.facts import EmbeddedFactStore

SEARCHES = ("by_keywords", "by_vector", "statistics", "matching", "versions")


class LaggingStore:
    """See the module.

    Args:
        whole: takes what is written.
        behind: is searched.
        now_ms: tells store time.
    """

    def __init__(self, whole: FactStore, behind: FactStore, now_ms: Any) -> None:
        self._whole = whole
        self._behind = behind
        self._now_ms = now_ms
        self._missing: dict[FactKey, FactContent] = {}
        self._complete_ms = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind if name in SEARCHES else self._whole, name)

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Writes where it is read by key, and not yet where it is searched."""
        await self._whole.write(contents)
        self._missing |= {content.key: content for content in contents}

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes everywhere: what is gone is found by nobody either way, as the ledger does not name it."""
        for key in keys:
            self._missing.pop(key, None)
        await self._behind.remove(keys)
        return await self._whole.remove(keys)

    async def watermark(self) -> int:
        """Tells when it last caught up."""
        return self._complete_ms

    async def catch_up(self) -> None:
        """Has searches find everything that was written until now."""
        missing, self._missing = list(self._missing.values()), {}
        for start in range(0, len(missing), BATCH_MAX):
            await self._behind.write(missing[start : start + BATCH_MAX])
        self._complete_ms = self._now_ms()


class Lag:
    """Opens drivers as servers do, with a store that lags; ``store`` is the one of the newest life."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self.store: LaggingStore | None = None

    @contextlib.asynccontextmanager
    async def open(self, *given: Any, **options: Any) -> AsyncIterator[Drivers]:
        """See :func:`~noosphere.server.drivers.open_drivers`."""
        async with open_drivers(*given, **options) as drivers:
            self._lives += 1
            folder = self._folder / f"behind-{self._lives}"
            folder.mkdir(parents=True)
            model = (await drivers.fact_store.stats()).model
            behind = await EmbeddedFactStore.open(folder, model=model, durability="os")
            self.store = LaggingStore(drivers.fact_store, behind, drivers.store.now_ms)
            try:
                yield drivers._replace(fact_store=self.store)
            finally:
                await behind.close()

    async def catch_up(self) -> None:
        """Has searches find everything that was written until now."""
        assert self.store is not None, "no server has started"
        await self.store.catch_up()
