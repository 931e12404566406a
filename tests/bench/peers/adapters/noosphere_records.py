"""Ours by default: ``update`` and ``decide``, strict, which ask the model again if somebody else was faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from noosphere.client import Client, Put, ReservePolicy, StaleRead, TransactionFailed, connect

from ..adapter import ATTEMPTS_MAX, Adapter, Think


class Update(Adapter):
    mode = "loop"
    reserve: ReservePolicy = "never"

    async def open(self) -> None:
        self.connection = connect(self.place.address, agent=f"bench/{self.agent}", in_order=True)
        self.client: Client = await self.connection.__aenter__()

    async def close(self) -> None:
        await self.connection.__aexit__(None, None, None)

    def begin(self, space: str) -> None:
        self.keys = self.client.shared(space)

    async def get(self, key: str) -> Any:
        return getattr(await self.keys.get(key), "value", None)

    async def put(self, key: str, value: Any) -> None:
        await self.keys.put(key, value, blind=True)

    async def change(self, key: str, function: Callable[[Any], Awaitable[Any]]) -> None:
        async def changed(value: Any, _: Any) -> Any:
            return await function(value)

        await self.keys.key(key).update(changed, attempts=ATTEMPTS_MAX, reserve=self.reserve)

    async def decide(self, guard: str, target: str, think: Think, *, again: bool) -> bool:
        async def decided(view: Any) -> Any:
            found, _ = await view.get_many([guard, target])
            return [Put(target, await think(found.value))]

        try:
            await self.keys.decide(decided, guard=guard, attempts=ATTEMPTS_MAX if again else 1)
        except (StaleRead, TransactionFailed):
            return False
        return True

    async def batch(self, values: Mapping[str, Any]) -> None:
        # Concurrent calls share a stream: that is the client's own way to do many things.
        await asyncio.gather(*(self.put(key, value) for key, value in values.items()))

    async def watch(self, key: str) -> AsyncIterator[Any]:
        async with self.keys.watch(key.rpartition("/")[0] + "/", snapshot=True) as batches:
            yield None
            async for batch in batches:
                for record in (event.record for event in batch.events if event.key == key):
                    yield getattr(record, "value", None)
