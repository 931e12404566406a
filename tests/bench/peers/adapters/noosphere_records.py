"""Ours by default: ``update``, strict, and boards. Who is told of a loss writes it again."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.client import AckedWritesLost, ClaimLost, NamespacePolicy

from ..adapter import Perform
from .noosphere_keys import Keys


class Update(Keys):
    async def prepare(self) -> None:
        # A list in one record is larger than the 1 KiB that a record may have by default.
        await self.client.ensure_namespace(self.keys.name, NamespacePolicy(item_bytes_max=64 * 1024))

    async def add(self, key: str, item: str) -> int:
        async def added(items: list[str] | None) -> list[str]:
            return [*(items or []), item]

        return await self.change(key, added)

    async def note(self, key: str, item: str) -> None:
        try:
            self.wrote[await self.add(key, item)] = item
        except AckedWritesLost as lost:
            await self.recover(lost)
            await self.note(key, item)

    async def recover(self, lost: AckedWritesLost) -> None:
        self.told += [self.wrote[write.revision] for write in lost.own_writes if write.revision in self.wrote]
        for outcome in await self.client.resubmit(lost):
            if outcome.error is not None:
                await self.note(outcome.write.key, self.wrote[outcome.write.revision])

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
