"""Ours at its best. Intents: an agent reserves what it thinks about. Merge: what can be an operation is one."""

from __future__ import annotations

from ..adapter import Think
from .noosphere_records import Update


class Intents(Update):
    reserve = "first"

    async def add(self, key: str, item: str) -> int:
        return (await self.keys.key(key).log_append(item)).version


class Merge(Intents):
    async def edit(self, key: str, think: Think) -> None:
        await self.note(key, await think(await self.get(key) or []))
