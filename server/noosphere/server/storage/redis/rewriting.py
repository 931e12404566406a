"""Erasing from what Redis has on disk: its files are written anew from memory.

In a cluster those of all primaries: a namespace may have been on another node before, whose files still tell of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noosphere.consistency import Reason, Refusal

from ...ports.runtime import Clock
from .engine import Engine, unavailable
from .fence import META
from .instance import told
from .survey import Node
from .wire import CommandError, WireLost

POLL_SECONDS = 0.01
POLLS_MAX = 60_000
"""After ten minutes a rewrite is taken for failed."""


class Rewriter:
    """Rewrites the append-only file and the snapshot; calls that are made at once share one rewrite.

    Replicas have files of their own, which they write anew by their own rules; allocators may keep what they have
    freed in memory until it is used again.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._one = asyncio.Lock()
        self._begun = 0
        self._done = 0

    async def owe(self) -> None:
        """Notes that files hold what is to be erased, before anything is."""
        await self._engine.ask(META, "HSET", META, "erased", 1)
        await self._engine.ask(META, "HINCRBY", META, "owed", 1)

    async def owed(self) -> bool:
        """Tells whether an erasure was begun and has not ended."""
        return bool(await self._count())

    async def rewrite(self) -> None:
        """Returns when a rewrite that began after this call has ended.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also if a primary is missing.
        """
        wanted = self._begun + 1
        async with self._one:
            if self._done >= wanted:
                return
            self._begun = number = self._begun + 1
            owed = await self._count()
            try:
                # All of them end, one way or the other, before somebody else begins.
                results = await asyncio.gather(
                    *(self._rewrite(node) for node in await self._engine.nodes()), return_exceptions=True
                )
                for result in results:
                    if result is not None:
                        raise result
            except (WireLost, CommandError) as error:
                raise unavailable() from error
            if owed:
                await self._engine.ask(META, "HINCRBY", META, "owed", -owed)
            self._done = number

    async def _count(self) -> int:
        return int(await self._engine.ask(META, "HGET", META, "owed") or 0)

    async def _rewrite(self, node: Node) -> None:
        if (await told(node.wire))["aof_enabled"] == "1":
            await self._background(node, "BGREWRITEAOF", "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
        # One that was a replica has a snapshot of its first synchronisation on disk, even if it makes none itself.
        if node.instance.saves or node.instance.identity.was_replica:
            await self._background(node, "BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status")
        # It keeps the beginnings of slow commands.
        await node.wire.call("SLOWLOG", "RESET")

    async def _background(self, node: Node, command: str, running: str, status: str) -> None:
        """Runs a child of Redis from now; one that runs already may have begun too early."""
        await self._until(node, lambda info: info["aof_rewrite_in_progress"] == info["rdb_bgsave_in_progress"] == "0")
        await node.wire.call(command)
        info = await self._until(node, lambda info: info[running] == "0" and info["aof_rewrite_scheduled"] == "0")
        if info[status] != "ok":
            raise Refusal(Reason.ENGINE_UNAVAILABLE, f"Redis could not write its files anew ({command})")

    async def _until(self, node: Node, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        for _ in range(POLLS_MAX):
            info = await told(node.wire)
            if holds(info):
                return info
            await self._clock.sleep(POLL_SECONDS)
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis does not finish writing its files anew")
