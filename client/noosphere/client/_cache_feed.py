"""Keeps a near cache up to date: a watch of the whole namespace, resumed by itself, flushed when in doubt."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from noosphere.v1 import memory_service_pb2 as ms

from ._background import noticed
from ._cache_state import CacheState
from ._cache_time import StoreClock
from ._errors import LimitExceeded, NoosphereError, NotCached
from ._space import Space
from ._transport import LOG
from ._values import JSON
from ._watch import SNAPSHOT_RECORDS_MAX, Watch, WatchBatch

TIME_RENEWAL = 30.0
"""Seconds after which the store's clock is asked again."""

_TIME_RETRY = 1.0


class Feed:
    """What fills one cache. Bound to one event loop.

    Args:
        space: the namespace.
        bytes_max: how much the cache may hold.

    Attributes:
        state: what is held now; replaced as a whole when it is forgotten.
        time: the store's clock.
        told_at: when the server last told that nothing is missing, by the client's clock.
        failure: why the cache has ended for good, once it has.
    """

    def __init__(self, space: Space, bytes_max: int) -> None:
        self.state = CacheState(space)
        self.time = StoreClock(space.transport.clock)
        self.told_at = -math.inf
        self.failure: NoosphereError | None = None
        self._space = space
        self._bytes_max = bytes_max
        self._time_due = asyncio.Event()
        self._progress: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to fill the cache."""
        self._time_due.set()
        self._tasks = [
            asyncio.create_task(self._run(), name=f"near cache of {self._space.name}"),
            asyncio.create_task(self._keep_time(), name=f"store time for {self._space.name}"),
        ]
        for task in self._tasks:
            noticed(task, self._failed)

    async def stop(self) -> None:
        """Stops, and forgets everything."""
        self._flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._wake()

    @property
    def runs(self) -> bool:
        """Whether it still fills the cache."""
        return self.failure is None and bool(self._tasks) and not self._tasks[0].done()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Returns once ``reached`` holds, or the cache has ended."""
        while not reached() and self.runs:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = (reached, future)
            self._progress.append(waiting)
            try:
                await future
            finally:
                self._progress.remove(waiting)

    async def _run(self) -> None:
        watch: Watch[Any] = Watch(
            self._space,
            JSON,
            "",
            resume=None,
            after=None,
            snapshot=True,
            patience=math.inf,
            snapshot_records_max=SNAPSHOT_RECORDS_MAX,
            snapshot_bytes_max=self._bytes_max,
            on_failure=self._disconnected,
        )
        try:
            async with watch as batches:
                async for batch in batches:
                    await self._apply(batch)
        except NoosphereError as error:
            self._end(error)
        finally:
            self._flush()
            self._wake()

    async def _apply(self, batch: WatchBatch[Any]) -> None:
        match batch.kind:
            case "snapshot" | "reset":
                state = CacheState(self._space)
                await state.fill(batch.events, batch.revision)
                self.state = state
            case "changes":
                self.state.change(batch.events, batch.revision)
            case "bookmark":
                self.state.advance(batch.revision)
            case "epoch":
                self._flush()
                return
        state = self.state
        if state.size > self._bytes_max:
            raise LimitExceeded(
                f"the near cache of {self._space.name} would take {state.size} bytes, the limit is "
                f"{self._bytes_max} (bytes_max)"
            )
        self.told_at = self._space.transport.clock()
        if not self.time.known:
            self._time_due.set()
        self._wake()

    def _disconnected(self) -> None:
        """Answers no causal read until the server has told that nothing was lost meanwhile."""
        self.state.live = False
        self.time.forget()

    def _flush(self) -> None:
        self.state.live = False
        self.state = CacheState(self._space)

    def _end(self, error: NoosphereError) -> None:
        LOG.debug("the near cache of %s has ended: %s", self._space.name, error)
        self.failure = error

    def _failed(self, error: Exception) -> None:
        # A mistake of ours: what is here is not kept up to date any more.
        self._end(NotCached(f"has failed: {type(error).__name__}"))
        self._flush()
        self._wake()

    def _wake(self) -> None:
        for reached, future in self._progress:
            if not future.done() and (reached() or self.failure is not None or self._tasks[0].done()):
                future.set_result(None)

    async def _keep_time(self) -> None:
        transport, loop = self._space.transport, asyncio.get_running_loop()
        while True:
            await self._time_due.wait()
            self._time_due.clear()
            asked, pause = self.time.ask(), TIME_RENEWAL
            try:
                reply: ms.GetServerInfoResponse = await transport.invoke(
                    transport.stub.GetServerInfo, ms.GetServerInfoRequest(), timeout=transport.timeout
                )
            except NoosphereError as error:
                LOG.debug("store time is unknown: %s", error)
                pause = _TIME_RETRY
            else:
                self.time.told(asked, reply.store_time.seconds * 1000 - (-reply.store_time.nanos // 1_000_000))
            self._wake()
            loop.call_later(pause, self._time_due.set)
