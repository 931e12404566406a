"""Servers in this process whose facts are on a real Weaviate, each in a collection of its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from tests.support.weaviate import WeaviateProcess, drop_collections

from noosphere.server.drivers import Drivers, open_drivers
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.weaviate import WeaviateAccess, WeaviateFactStore

_numbers = itertools.count(1)


class OnWeaviate:
    """Opens drivers as servers do, with a fact store on Weaviate. Later lives of a server find what the first has left.

    Args:
        process: a Weaviate that runs.
        options: of :class:`WeaviateAccess`.

    Attributes:
        access: how it is reached.
        store: the one of the newest life.
    """

    def __init__(self, process: WeaviateProcess, **options: Any) -> None:
        self._process = process
        fields: dict[str, Any] = {
            "url": process.url,
            "grpc": process.grpc,
            "collection": f"Service{next(_numbers)}",
            "buckets": 2,
            "call_ms_max": 60_000,
            **options,
        }
        self.access = WeaviateAccess(**fields)
        self.store: WeaviateFactStore | None = None

    @contextlib.asynccontextmanager
    async def open(self, *given: Any, **options: Any) -> AsyncIterator[Drivers]:
        """See :func:`~noosphere.server.drivers.open_drivers`."""
        async with open_drivers(*given, **options) as drivers:
            model = (await drivers.fact_store.stats()).model
            self.store = await WeaviateFactStore.open(self.access, model=model, clock=SystemClock())
            try:
                yield drivers._replace(fact_store=self.store)
            finally:
                await self.store.close()

    def drop(self) -> None:
        """Removes what was written."""
        drop_collections(self._process, self.access.collection)
