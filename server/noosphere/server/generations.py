"""The services of a server: where the working store is on Redis, closed and opened anew whenever an epoch begins.

What services keep in memory of records may have been undone by the epoch, and none of them knows of it. So all of
them go, with their store; the process, its listener and what outlives an epoch (see ``drivers.Lasting``) stay.
Meanwhile, and while Redis is away, calls are refused with ENGINE_UNAVAILABLE, which clients repeat, and the server is
not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog

from noosphere.consistency import Refusal

from .assembly import Engine
from .drivers import StartupError
from .ports.runtime import Clock
from .ports.store import NamespaceRef, WorkingStore
from .rpc.encode import forget_shown
from .rpc.faces import Faces
from .rpc.server import RpcServer
from .supervision import cancel

log = structlog.get_logger(__name__)

PROBE_SECONDS = 1.0
"""How often the store is asked whether it answers."""

PROBE_SECONDS_MAX = 5.0
"""How long an answer may take, which on a busy machine is longer than anybody likes; without one it is not ready."""

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 2.0
"""Between two tries to open the store."""

TOLD_AGAIN_SECONDS = 60.0
"""How often it is logged that the store still cannot be opened."""

_PROBED = NamespaceRef("shared/~readiness")
_WHY = "an epoch of the working store has begun, and the server has to read everything anew; try again"

Probe = Callable[[], Awaitable[object]]

Open = Callable[[Callable[[int], None]], AbstractAsyncContextManager[Engine]]
"""Opens the store and the services, given what is to be told of the first epoch that begins afterwards.

Raises:
    StartupError, Refusal: the store cannot be used now.
"""


class Generations:
    """See the module. Lives on one event loop.

    Args:
        open_engine: opens store and services.
        faces: makes what answers calls.
        rpc: where calls come in.
        clock: for pauses.
        may_end: whether an epoch can begin while the process runs.
        probes: ask for what one service alone needs, by the full name of that service.

    :meth:`run` is only needed if an epoch can begin, or there are probes.
    """

    def __init__(
        self,
        open_engine: Open,
        faces: Callable[[Engine], Faces],
        rpc: RpcServer,
        clock: Clock,
        *,
        may_end: bool,
        probes: Mapping[str, Probe] | None = None,
    ) -> None:
        self._probes = dict(probes or {})
        self._open_engine = open_engine
        self._faces = faces
        self._rpc = rpc
        self._clock = clock
        self._may_end = may_end
        self._stack = contextlib.AsyncExitStack()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._engine: Engine | None = None

    async def open(self) -> Engine:
        """Opens the services and has calls answered by them.

        Raises:
            StartupError, Refusal: the store cannot be used now.
        """
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def begun(epoch: int) -> None:
            if not ended.done():
                ended.set_result(epoch)
                self._rpc.refuse(_WHY)

        engine = await self._stack.enter_async_context(self._open_engine(begun))
        self._ended, self._engine = ended, engine
        self._rpc.serve(self._faces(engine), may_end=self._may_end)
        if ended.done():
            self._rpc.refuse(_WHY)
        return engine

    async def run(self) -> None:
        """Opens them anew after each epoch, and reports whether they can work, until it is cancelled."""
        while True:
            if self._engine is not None:
                await self._watch_over(self._engine.store)
                log.warning("an epoch has begun; services are opened anew", epoch=self._ended.result())
                await self._rpc.withdraw(_WHY)
            await self._let_go()
            epoch = (await self._reopen()).store.epoch
            await self._rpc.set_ready(True, await self.away())
            log.info("services are open again", epoch=epoch)

    async def close(self) -> None:
        """Closes the services. Calls must be refused before."""
        self._engine = None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        await stack.aclose()

    async def _let_go(self) -> None:
        """Closes services whose epoch has ended."""
        try:
            await self.close()
        except Exception as error:
            # Nothing of it is used any more, and a store without its Redis has little to close.
            log.error("services could not be closed in good order", exc_info=error)
        # It holds records of a history that may have been undone.
        forget_shown()

    async def _watch_over(self, store: WorkingStore) -> None:
        """Returns when an epoch has begun."""
        while not self._ended.done():
            await self._clock.wait(self._ended, PROBE_SECONDS)
            if self._ended.done():
                return
            probe = asyncio.ensure_future(store.read(_PROBED, ()))
            others = self._ask_others()
            probes = (probe, *others.values())
            all_answered = asyncio.gather(*probes, return_exceptions=True)
            try:
                await asyncio.wait(
                    (all_answered, self._ended), timeout=PROBE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
                )
                ready = _answered(probe)
                away = _not_answered(others)
            finally:
                # Also if this is cancelled: closing the store waits for calls under way.
                await cancel(probes)
            if not self._ended.done():
                await self._rpc.set_ready(ready, away)

    async def away(self) -> list[str]:
        """Returns the services that cannot answer now, because what they alone need does not."""
        others = self._ask_others()
        try:
            if others:
                await asyncio.wait(others.values(), timeout=PROBE_SECONDS_MAX)
            return _not_answered(others)
        finally:
            await cancel(others.values())

    def _ask_others(self) -> dict[str, asyncio.Task[object]]:
        return {name: asyncio.create_task(_asked(ask)) for name, ask in self._probes.items()}

    async def _reopen(self) -> Engine:
        pause, told_ms = PAUSE_SECONDS, None
        while True:
            try:
                return await self.open()
            except (StartupError, Refusal) as error:
                now_ms = self._clock.monotonic_ms()
                if told_ms is None or now_ms - told_ms >= TOLD_AGAIN_SECONDS * 1000:
                    told_ms = now_ms
                    log.warning("services cannot be opened yet", why=str(error))
            await self._clock.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


async def _asked(ask: Probe) -> object:
    return await ask()


def _not_answered(probes: Mapping[str, asyncio.Future[Any]]) -> list[str]:
    return [name for name, probe in probes.items() if not _answered(probe)]


def _answered(probe: asyncio.Future[Any]) -> bool:
    return probe.done() and not probe.cancelled() and probe.exception() is None
