"""Who has moved: a subscription to what every commit of every process tells, and what to do when it was away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from noosphere.consistency import Refusal

from ...ports.runtime import Clock
from ..heads import HeadFeeds
from .engine import Engine
from .fence import channel_of
from .instance import UnfitRedis
from .wire import CommandError, Wire, WireLost

PING_SECONDS = 2.0
"""How often a silent subscription is asked whether it is there; a dead one ends with the wire's limit for replies."""

PAUSE_SECONDS = 0.1

log = logging.getLogger("noosphere.storage.redis")


class Tidings:
    """See the module.

    Args:
        engine: whose primary to listen to.
        feeds: whom to tell.
        clock: for pauses.
        poll: tells every namespace's head; called after a gap, in which anything may have moved.
    """

    def __init__(self, engine: Engine, feeds: HeadFeeds, clock: Clock, poll: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._feeds = feeds
        self._clock = clock
        self._poll = poll
        self._wire: Wire | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Subscribes; returns when nothing can be missed any more.

        Raises:
            WireLost, CommandError: there is nobody to listen to.
        """
        changed = await self._subscribe()
        self._following = asyncio.create_task(self._follow(changed))

    async def stop(self) -> None:
        """Ends the subscription."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        if self._wire is not None:
            await self._wire.close()

    async def _subscribe(self) -> asyncio.Event:
        address = (await self._engine.ready()).nodes[0].address
        changed = self._engine.changed
        if self._wire is not None:
            # Of a try that has failed later on.
            self._wire.abort("not needed")
        self._wire = wire = await Wire.connect(address)
        await wire.subscribe(channel_of(address), self._moved)
        return changed

    async def _follow(self, changed: asyncio.Event) -> None:
        while True:
            await self._listen(changed)
            failed = 0
            while True:
                await self._clock.sleep(PAUSE_SECONDS)
                try:
                    changed = await self._subscribe()
                    await self._poll()
                    break
                except (WireLost, CommandError, UnfitRedis, Refusal) as error:
                    failed += 1
                    if failed == 1:
                        log.warning("nobody tells of moved heads until Redis can be used again: %s", error)
                except Exception:
                    # Whoever waits for heads would wait for ever if this task ended.
                    log.exception("the heads could not be read after a gap")

    async def _listen(self, changed: asyncio.Event) -> None:
        """Returns when the connection is gone, or the primary may be another one."""
        wire = self._wire
        if wire is None:
            return
        ends = [asyncio.ensure_future(wire.ended()), asyncio.ensure_future(changed.wait())]
        pinging = asyncio.create_task(self._ping(wire))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, pinging):
                task.cancel()
            wire.abort("no longer listened to")

    async def _ping(self, wire: Wire) -> None:
        with contextlib.suppress(WireLost, CommandError):
            while True:
                await self._clock.sleep(PING_SECONDS)
                await wire.call("PING")

    def _moved(self, text: bytes) -> None:
        self._feeds.publish(bytes.fromhex(text[:20].decode()), int(text[20:], 16))
