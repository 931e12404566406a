"""Calls of scripts, whatever becomes of the connection: repeated where that is harmless, or refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from noosphere.consistency import Reason, Refusal, invalid

from ...ports.coordinator import Coordinator
from ...ports.runtime import Clock
from .fence import Fenced, fence
from .instance import UnfitRedis
from .scripts import Script
from .wire import Address, CommandError, Reply, Wire, WireLost

PAUSES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Before each repetition. Clients repeat calls as well, for longer, so this only bridges what is short."""

CALL_SECONDS_MAX = 6.0
"""After that nothing is repeated: a process that is there and silent takes seconds to be noticed each time."""

STALE_MAX = 3
"""How often a call may meet a namespace that somebody has used in a later epoch than the newest one known."""

# Answers of a process that is not the primary (any more, or not yet); it has executed nothing.
_ELSEWHERE = {"NOSCRIPT", "READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS", "MISCONF"}

log = logging.getLogger("noosphere.storage.redis")


class Engine:
    """The Redis primary, as whoever is primary at the moment.

    Args:
        addresses: where it may be.
        coordinator: knows the epochs.
        clock: for pauses.
        on_epoch: if given, is told of the first later epoch, from which on every call is refused.

    Attributes:
        epoch: the newest epoch under which a connection was fenced.
        changed: set, and replaced by a new one, each time a connection has been fenced.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        coordinator: Coordinator,
        clock: Clock,
        on_epoch: Callable[[int], None] | None = None,
    ) -> None:
        self._addresses = tuple(addresses)
        self._coordinator = coordinator
        self._clock = clock
        self._on_epoch = on_epoch
        self._epoch_ended = False
        self._fenced: Fenced | None = None
        self._fencing: asyncio.Task[Fenced] | None = None
        self._closed = False
        self._open_calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.epoch = 0
        self.changed = asyncio.Event()

    async def ready(self) -> Fenced:
        """Returns a fenced connection; whoever waits for the same one shares the work.

        Raises:
            WireLost, UnfitRedis, CommandError: see :func:`~.fence.fence`.
        """
        fenced = self._fenced
        if fenced is not None and not fenced.wire.lost:
            return fenced
        if self._fencing is None:
            self._fencing = asyncio.create_task(self._fence())
            self._fencing.add_done_callback(self._was_fenced)
        return await asyncio.shield(self._fencing)

    async def call(
        self, script: Script, key: bytes, *arguments: str | bytes | int, harmless: bool = True
    ) -> tuple[int, Reply]:
        """Executes a script; returns the epoch under which that was done, and the reply.

        Args:
            script: which one.
            key: the stem of its keys.
            arguments: its arguments.
            harmless: whether it may be executed twice, and so repeated if nobody knows whether it was.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, LIMIT_EXCEEDED if Redis is out of memory, or INVALID_FIELD.
        """
        self.check()
        self._open_calls += 1
        self._idle.clear()
        try:
            return await self._call(script, key, arguments, harmless)
        finally:
            self._open_calls -= 1
            if not self._open_calls:
                self._idle.set()

    async def _call(
        self, script: Script, key: bytes, arguments: Sequence[str | bytes | int], harmless: bool
    ) -> tuple[int, Reply]:
        problem: Exception | None = None
        stale = 0
        loop = asyncio.get_running_loop()
        ends = loop.time() + CALL_SECONDS_MAX
        for pause in PAUSES_SECONDS:
            if problem is not None:
                if loop.time() + pause > ends:
                    break
                await self._clock.sleep(pause)
                self.check()
            try:
                fenced = await self.ready()
                self.check()
            except (WireLost, CommandError) as error:
                problem = error
                continue
            except UnfitRedis as error:
                log.error("Redis cannot be used: %s", error)
                problem = error
                break
            try:
                reply = await fenced.wire.call("EVALSHA", fenced.scripts.digests[script], 1, key, *arguments)
            except WireLost as error:
                problem = error
                if error.sent and not harmless:
                    break
                continue
            except CommandError as error:
                problem = error
                if error.kind not in _ELSEWHERE:
                    raise _refusal(error) from None
                fenced.wire.abort(f"answered {error.kind}")
                continue
            except UnicodeEncodeError:
                raise invalid("key", "is not Unicode text") from None
            if reply == [b"E"]:
                stale += 1
                if stale > STALE_MAX:
                    break
                fenced.wire.abort("somebody is in a later epoch")
                problem = WireLost("somebody is in a later epoch", sent=False)
                continue
            return fenced.epoch, reply
        log.warning("a call of Redis failed: %s", problem)
        raise unavailable() from problem

    def check(self) -> None:
        """Checks that calls may still be made.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the working store is closed")
        if self._epoch_ended:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis has failed over; this server has to start again")

    async def close(self) -> None:
        """Lets calls under way end, and disconnects."""
        self._closed = True
        await self._idle.wait()
        if self._fencing is not None:
            await asyncio.wait((self._fencing,))
        if self._fenced is not None:
            await self._fenced.wire.close()
        # Connections that came to nothing are closed in the loop's next turn.
        await asyncio.sleep(0)

    @property
    def wire(self) -> Wire | None:
        """The present connection, if there is one."""
        return self._fenced.wire if self._fenced is not None else None

    async def _fence(self) -> Fenced:
        self._fenced = fenced = await fence(self._addresses, self._coordinator)
        before, self.epoch = self.epoch, fenced.epoch
        if before and before != fenced.epoch and self._on_epoch is not None and not self._epoch_ended:
            self._epoch_ended = True
            self._on_epoch(fenced.epoch)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return fenced

    def _was_fenced(self, task: asyncio.Task[Fenced]) -> None:
        self._fencing = None
        if not task.cancelled():
            # Seen: those who waited for it may all be gone.
            task.exception()


def unavailable() -> Refusal:
    """Returns the refusal of a call without an answer. What has failed, and where, is for the server's log."""
    return Refusal(Reason.ENGINE_UNAVAILABLE, "Redis does not answer, the outcome of this call is unknown")


def _refusal(error: CommandError) -> Refusal:
    if error.kind == "OOM":
        return Refusal(Reason.LIMIT_EXCEEDED, "the working store is full (maxmemory of Redis); nothing was written")
    if error.kind == "NAMESAKE":
        return Refusal(Reason.INVALID_FIELD, "namespace: another one has the same storage id")
    log.error("Redis has refused a script: %s", error)
    return Refusal(Reason.ENGINE_UNAVAILABLE, "Redis has refused a call; the server's log has the reason")
