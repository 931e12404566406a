"""Loading: a namespace's contents come into memory when somebody asks for them."""

from __future__ import annotations

import asyncio

from ...ports.runtime import Clock
from .body import Body
from .journal import Journal
from .namespace import Namespace
from .pipeline import Pipeline, as_failure
from .worker import Worker, run


class Loader:
    """Loads namespaces of one store on a worker of its own, beside commits to others."""

    def __init__(self, journal: Journal, reader: Worker, pipeline: Pipeline, clock: Clock) -> None:
        self._journal = journal
        self._reader = reader
        self._pipeline = pipeline
        self._clock = clock
        self._loading: dict[Namespace, asyncio.Task[None]] = {}

    async def load(self, namespace: Namespace) -> Body | None:
        """Loads a namespace, once for everybody who waits; returns None if it was dropped.

        Raises:
            Refusal: ENGINE_UNAVAILABLE; the store has then stopped.
        """
        if namespace.body is None and not namespace.deleted:
            task = self._loading.get(namespace)
            if task is None:
                task = asyncio.create_task(self._load(namespace), name="noosphere-load")
                self._loading[namespace] = task
            # Shielded: the others still want it if this caller is cancelled.
            await asyncio.shield(task)
            self._pipeline.check()
        return namespace.body

    async def settle(self) -> None:
        """Returns when no load is under way."""
        await asyncio.gather(*self._loading.values())

    async def _load(self, namespace: Namespace) -> None:
        storage_id, floor, stamps_floor = namespace.ref.storage_id, namespace.floor, namespace.stamps_floor
        replay = namespace.replay

        def load() -> Body:
            return Body.restore(self._journal.load(storage_id, floor), replay, floor, stamps_floor)

        try:
            body = await run(self._reader, load)
        except Exception as error:
            # What was acknowledged cannot be read any more: to go on would be to forget it.
            self._pipeline.fail(as_failure(error))
            return
        finally:
            del self._loading[namespace]
        if not namespace.deleted:
            namespace.body = body
            namespace.replay = []
            namespace.used_ms = self._clock.monotonic_ms()
