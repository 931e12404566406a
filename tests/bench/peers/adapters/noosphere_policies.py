"""Ours at its best: boards, operations, losses resubmitted; who edits reserves the key, or (``Merge``) just adds."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.client import AckedWritesLost, ClaimLost

from ..adapter import Perform, Think
from .noosphere_records import Update


class Intents(Update):
    reserve = "first"

    def begin(self, space: str) -> None:
        super().begin(space)
        self.wrote: dict[int, str] = {}

    async def note(self, key: str, item: str) -> None:
        try:
            self.wrote[(await self.keys.key(key).log_append(item)).version] = item
        except AckedWritesLost as lost:
            await self.recover(lost)
            await self.note(key, item)

    async def recover(self, lost: AckedWritesLost) -> None:
        self.told += [self.wrote[write.revision] for write in lost.own_writes if write.revision in self.wrote]
        await self.client.resubmit(lost)

    async def settle(self) -> None:
        try:
            await self.client.observe(self.client.causal_token())
        except AckedWritesLost as lost:
            await self.recover(lost)

    async def post(self, board: str, tasks: Sequence[str]) -> None:
        for task in tasks:
            await self.keys.board(f"{board}/").add({"task": task}, key=task)

    async def take(self, board: str, tasks: Sequence[str], lease_s: float, perform: Perform) -> bool | None:
        try:
            async with self.keys.board(f"{board}/").claim(lease=lease_s) as claim:
                if claim is None:
                    return None
                await perform(claim.value["task"])
                await claim.complete()
        except ClaimLost:
            return False
        return True

    async def finished(self, board: str, task: str) -> bool:
        return bool(getattr((await self.keys.key(f"{board}/{task}").read()).claim, "done", False))


class Merge(Intents):
    async def edit(self, key: str, think: Think) -> None:
        await self.note(key, await think(await self.get(key) or []))
