"""Erasing from what Redis has on disk: its files are written anew from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noosphere.consistency import Reason, Refusal

from ...ports.runtime import Clock
from .engine import Engine, unavailable
from .fence import META, Fenced
from .instance import UnfitRedis, told
from .wire import CommandError, Reply, WireLost

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
        await self._ask("HINCRBY", META, "owed", 1)

    async def owed(self) -> bool:
        """Tells whether an erasure was begun and has not ended."""
        return bool(int(await self._ask("HGET", META, "owed") or 0))

    async def rewrite(self) -> None:
        """Returns when a rewrite that began after this call has ended.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        wanted = self._begun + 1
        async with self._one:
            if self._done >= wanted:
                return
            self._begun = number = self._begun + 1
            owed = int(await self._ask("HGET", META, "owed") or 0)
            if (await self._info())["aof_enabled"] == "1":
                await self._background("BGREWRITEAOF", "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
            if (await self._ready()).instance.saves:
                await self._background("BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status")
            # It keeps the beginnings of slow commands.
            await self._ask("SLOWLOG", "RESET")
            if owed:
                await self._ask("HINCRBY", META, "owed", -owed)
            self._done = number

    async def _background(self, command: str, running: str, status: str) -> None:
        """Runs a child of Redis from now; one that runs already may have begun too early."""
        await self._until(lambda info: info["aof_rewrite_in_progress"] == info["rdb_bgsave_in_progress"] == "0")
        await self._ask(command)
        info = await self._until(lambda info: info[running] == "0" and info["aof_rewrite_scheduled"] == "0")
        if info[status] != "ok":
            raise Refusal(Reason.ENGINE_UNAVAILABLE, f"Redis could not write its files anew ({command})")

    async def _until(self, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        for _ in range(POLLS_MAX):
            info = await self._info()
            if holds(info):
                return info
            await self._clock.sleep(POLL_SECONDS)
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis does not finish writing its files anew")

    async def _info(self) -> dict[str, str]:
        try:
            return await told((await self._ready()).wire)
        except (WireLost, CommandError) as error:
            raise unavailable() from error

    async def _ready(self) -> Fenced:
        self._engine.check()
        try:
            return await self._engine.ready()
        except (WireLost, CommandError, UnfitRedis) as error:
            raise unavailable() from error

    async def _ask(self, *command: str | int) -> Reply:
        try:
            return await (await self._ready()).wire.call(*command)
        except (WireLost, CommandError) as error:
            raise unavailable() from error
