"""LangGraph's store in memory: an item per key, put and got. Items have no version; a put replaces what is there.

Default: get, think, put, as its guides do. Best: notes are items of their own; before a put an agent looks whether the
item is still what it has seen; all agents share one event loop, where nothing comes between look and put.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from ..adapter import Adapter, Mode, Place

_MEMORY = InMemoryStore()
_ABSENT = {"absent": True}


class MemoryDefault(Adapter):
    def __init__(self, place: Place, agent: str) -> None:
        super().__init__(place, agent)
        self.store: Any = _MEMORY

    def load(self, key: str) -> Any:
        item = self.store.get((self.space,), key)
        return (None, None) if item is None else (item.value["value"], None)

    def save(self, key: str, value: Any, version: Any) -> bool:
        self.store.put((self.space,), key, {"value": value})
        return True

    async def batch(self, values: Mapping[str, Any]) -> None:
        self.store.batch([PutOp((self.space,), key, {"value": value}) for key, value in values.items()])


class MemoryBest(MemoryDefault):
    mode: ClassVar[Mode] = "loop"

    def load(self, key: str) -> Any:
        item = self.store.get((self.space,), key)
        return (None, _ABSENT) if item is None else (item.value["value"], item.value)

    def save(self, key: str, value: Any, version: Any) -> bool:
        return (version is None or self.load(key)[1] == version) and super().save(key, value, version)

    async def note(self, key: str, item: str) -> None:
        self.store.put((self.space, key), item, {"value": item})

    async def items(self, key: str) -> list[str]:
        return [i.key for i in self.store.search((self.space, key), limit=100_000)] or await self.get(key) or []
