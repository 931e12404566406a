"""Ours: a connection per agent, and what needs no policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, ClassVar

from noosphere.client import Client, Put, ReservePolicy, StaleRead, TransactionFailed, View, connect
from noosphere.consistency.limits import TRANSACTION_PARTS_MAX as MOST

from ..adapter import ATTEMPTS_MAX, Adapter, Think


class Keys(Adapter):
    mode = "loop"
    reserve: ClassVar[ReservePolicy] = "never"

    async def open(self) -> None:
        self.scope = connect(self.place.address, agent=f"bench/{self.agent}", in_order=True, takeover=True)
        self.client: Client = await self.scope.__aenter__()

    async def close(self) -> None:
        await self.scope.__aexit__(None, None, None)

    def begin(self, space: str) -> None:
        self.keys = self.client.shared(space)
        self.wrote: dict[int, str] = {}

    async def get(self, key: str) -> Any:
        return getattr(await self.keys.get(key), "value", None)

    async def put(self, key: str, value: Any) -> None:
        await self.keys.put(key, value, blind=True)

    async def change(self, key: str, function: Callable[[Any], Awaitable[Any]]) -> int:
        async def changed(value: Any, _: Any) -> Any:
            return await function(value)

        return (await self.keys.key(key).update(changed, attempts=ATTEMPTS_MAX, reserve=self.reserve)).version or 0

    async def decide(self, guard: str, target: str, think: Think, *, again: bool) -> bool:
        async def decided(view: View) -> list[Put]:
            found, _ = await view.get_many([guard, target])
            return [Put(target, await think(found.value))]

        try:
            return bool(await self.keys.decide(decided, guard=guard, attempts=ATTEMPTS_MAX if again else 1))
        except (StaleRead, TransactionFailed):
            return False

    async def batch(self, values: Mapping[str, Any]) -> None:
        writes = [Put(key, value, blind=True) for key, value in values.items()]
        for first in range(0, len(writes), MOST):
            await self.keys.transact(operations=writes[first : first + MOST])

    async def watch(self, key: str) -> AsyncIterator[Any]:
        async with self.keys.watch(key.rpartition("/")[0] + "/", snapshot=True) as batches:
            yield None
            async for event in (event async for batch in batches for event in batch.events if event.key == key):
                yield getattr(event.record, "value", None)
