"""The watch that keeps a process's view up to date, whatever becomes of connections."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging

from noosphere.consistency import Refusal

from ...ports.runtime import Clock
from . import wire_pb2 as wire
from .client import EtcdClient, unavailable
from .view import View

PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0
REACH_SECONDS_MAX = 2.0
"""How long a caller waits for the watch to bring what etcd has already told."""

log = logging.getLogger("noosphere.storage.etcd")


class Feed:
    """Reads everything under a prefix once, then watches from that revision on.

    A watch resumes after the last revision of which something was delivered, not after the one that a response
    names in its header: that is the store's, which may be ahead of what was delivered. If etcd has compacted past
    it, everything is read anew.
    """

    def __init__(self, client: EtcdClient, prefix: bytes, view: View, clock: Clock) -> None:
        self._client = client
        self._prefix = prefix
        self._view = view
        self._clock = clock
        self._reached = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiters = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads everything and begins to watch.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
            ValueError: something is not readable.
        """
        await self._load()
        self._task = asyncio.create_task(self._run())

    async def reach(self, revision: int) -> None:
        """Waits until the view shows what was written at a revision under the prefix.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, if it does not come in time.
        """
        if revision <= self._reached:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters += 1
        heapq.heappush(self._waiting, (revision, self._waiters, future))
        try:
            await self._clock.wait(future, REACH_SECONDS_MAX)
            if not future.done():
                self._client.check()
                raise unavailable()
        finally:
            # Whoever has given up is taken off with those before it, also while nothing moves.
            future.cancel()
            self._move(self._reached)

    async def close(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _load(self) -> None:
        revision, kvs = await self._client.read_all(self._prefix)
        self._view.reset(kvs)
        self._move(revision)

    async def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        broken = False
        while True:
            try:
                async with contextlib.aclosing(self._client.watch(self._prefix, self._reached)) as responses:
                    async for response in responses:
                        if broken:
                            broken = False
                            log.warning("etcd is watched again")
                        pause = PAUSE_SECONDS_MIN
                        if not await self._take(response):
                            break
            except Refusal as refusal:
                if not broken:
                    broken = True
                    log.warning("etcd is not watched, what others change is seen later: %s", refusal)
            except ValueError:
                # The watch stays where it is, so callers are refused rather than served by half of the rules.
                log.exception("etcd holds what this version cannot read")
            except Exception:
                # Nobody would look any more if this ended the task that does.
                log.exception("the watch of etcd has failed")
            await self._clock.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _take(self, response: wire.WatchResponse) -> bool:
        """Takes what a response brings; returns whether the watch goes on."""
        if response.compact_revision:
            log.warning("etcd has compacted past what was seen: everything is read anew")
            await self._load()
            return False
        if response.canceled:
            log.debug("etcd has ended the watch: %s", response.cancel_reason)
            return False
        if response.events:
            self._view.apply(response.events)
            self._move(response.events[-1].kv.mod_revision)
        return True

    def _move(self, revision: int) -> None:
        self._reached = max(self._reached, revision)
        while self._waiting and (self._waiting[0][0] <= self._reached or self._waiting[0][2].done()):
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
