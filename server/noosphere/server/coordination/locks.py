"""Locks of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from noosphere.consistency import exhausted

from ..memory.core import Core, draining
from ..memory.reads import check_page_size
from ..memory.signals import HeadSignals
from ..memory.types import Call
from ..ports.locks import Held
from .callers import OWN_MARK, check_name, owner_of, require_incarnation

NAME = "lock.name"
WAITING_MAX = 5_000
"""Calls that wait in one process, for whichever locks; each keeps its place alive."""

T = TypeVar("T")


class LockPage(NamedTuple):
    """Locks by name, and the name after which the next page begins; None on the last one."""

    locks: tuple[Held, ...]
    following: str | None


class LockService:
    """Takes, keeps and gives back locks for incarnations of agents.

    Args:
        core: knows who calls, and the coordinator.
        signals: tell of the shutdown, which ends all waiting.
    """

    def __init__(self, core: Core, signals: HeadSignals) -> None:
        self._core = core
        self._locks = core.coordinator.locks
        self._signals = signals
        self._waiting = 0

    async def acquire(self, call: Call, name: str, *, lease_ms: int, wait_ms: int, data: bytes) -> Held | None:
        """Takes a lock, in the order of those who wait; None if it is not free in time.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, STALE_INCARNATION, LIMIT_EXCEEDED, REQUEST_ID_REUSED, CONTENTION,
                DRAINING, ENGINE_UNAVAILABLE.
        """
        life = require_incarnation(self._core, call)
        check_name(NAME, name)
        request = "" if call.request is None else call.request.uuid or str(call.request.sequence)
        taking = self._locks.acquire(name, owner_of(life), lease_ms, wait_ms, data, life=life, request=request)
        if not wait_ms:
            return await taking
        if self._waiting >= WAITING_MAX:
            taking.close()
            raise exhausted(NAME, self._waiting + 1, WAITING_MAX, "too many calls wait for locks at this server")
        self._waiting += 1
        try:
            return await _unless_draining(taking, self._signals)
        finally:
            self._waiting -= 1

    async def renew(self, call: Call, name: str, token: int) -> None:
        """Begins a lease anew.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, STALE_FENCE, ENGINE_UNAVAILABLE.
        """
        require_incarnation(self._core, call)
        check_name(NAME, name)
        await self._locks.renew(name, token)

    async def release(self, call: Call, name: str, token: int) -> bool:
        """Gives a lock back; returns whether it was still held under this token.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        require_incarnation(self._core, call)
        check_name(NAME, name)
        return await self._locks.release(name, token)

    async def get(self, call: Call, name: str) -> Held | None:
        """Returns who holds a lock.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        self._core.require_current(call)
        check_name(NAME, name)
        return await self._locks.holder(name)

    async def list(self, call: Call, prefix: str, *, page_size: int, after: str) -> LockPage:
        """Returns the locks that are held, by name; the server's own are not among them.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        self._core.require_current(call)
        check_name("prefix", prefix)
        size = check_page_size(page_size)
        found: list[Held] = []
        while len(found) <= size:
            page = await self._locks.held(prefix, after, size + 1)
            found += (held for held in page if not held.name.startswith(OWN_MARK))
            if len(page) <= size:
                break
            after = page[-1].name
        return LockPage(tuple(found[:size]), found[size - 1].name if len(found) > size else None)


async def _unless_draining(work: Coroutine[Any, Any, T], signals: HeadSignals) -> T:
    """Returns what ``work`` returns, unless the process begins to shut down before.

    Raises:
        Refusal: DRAINING.
    """
    task = asyncio.create_task(work)
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    unsubscribe = signals.on_drain(lambda: None if drained.done() else drained.set_result(None))
    try:
        await asyncio.wait((task, drained), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise draining()
    finally:
        unsubscribe()
        # Whoever is not interested any more leaves the queue before the call ends.
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
