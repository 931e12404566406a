"""Who of several servers does what one has to do for all: sweeps, upkeep, rounds over all sessions.

The leader holds a lock of the coordinator under a lease. It counts the lease from before it asked, so it has stopped
before anybody else can have begun; one that was stopped by the system in between may do one step more. That is
harmless: each step is a commit that checks what it rests on, or drops what every server would drop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from noosphere.consistency import Reason, Refusal

from ..ports.locks import Locks
from ..ports.runtime import Clock

log = structlog.get_logger(__name__)

UPKEEP = "~upkeep"
"""The lock."""

LEASE_MS = 10_000
RENEWALS_PER_LEASE = 3
WAIT_MS = 30_000
"""How long one call waits for the lock; whoever still wants it then asks again."""

PAUSE_SECONDS = 1.0
"""Between two tries while the coordinator does not answer."""

Work = Callable[[], Awaitable[None]]
"""Works until it is cancelled."""


class Leads(Protocol):
    """Tells whether this server leads, and has the leader's work done."""

    @property
    def leads(self) -> bool:
        """Whether it leads now."""
        ...

    async def do(self, work: Work) -> None:
        """Does some work whenever this server leads, until it is cancelled or the work ends by itself."""
        ...


class AlwaysLeads:
    """A server that has its working store to itself."""

    leads = True

    async def do(self, work: Work) -> None:
        """Does the work."""
        await work()


class Leadership:
    """See the module. Lives on one event loop; :meth:`run` stands for election.

    Args:
        locks: where leaders are elected.
        owner: this server, as others see it.
        clock: the source of time.
    """

    def __init__(self, locks: Locks, owner: str, clock: Clock) -> None:
        self._locks = locks
        self._owner = owner
        self._clock = clock
        self._token = 0
        self._ends_ms = 0
        self._elected = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def leads(self) -> bool:
        """Whether it leads now."""
        return self._elected.is_set() and self._clock.monotonic_ms() < self._ends_ms

    async def do(self, work: Work) -> None:
        """Does some work whenever this server leads, until it is cancelled or the work ends by itself."""
        while True:
            await self._elected.wait()
            lost = self._lost
            doing = asyncio.ensure_future(work())
            self._working += 1
            self._idle.clear()
            try:
                await asyncio.wait((doing, lost), return_when=asyncio.FIRST_COMPLETED)
                if doing.done():
                    return doing.result()
            finally:
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
                self._working -= 1
                if not self._working:
                    self._idle.set()

    async def run(self) -> None:
        """Stands for election, leads, and stands again, until it is cancelled."""
        failing = False
        while True:
            try:
                await self._stand()
                failing = False
            except Refusal as refusal:
                if not failing:
                    failing = True
                    log.warning("no leader can be elected", reason=refusal.reason, message=refusal.message)
                await self._clock.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Hands leadership over: to be called after :meth:`run` has ended."""
        token, self._token = self._token, 0
        # Whoever is elected next must find nobody at work.
        await self._idle.wait()
        if token:
            # If the coordinator does not answer, the lease lapses.
            with contextlib.suppress(Refusal):
                await self._locks.release(UPKEEP, token)

    async def _stand(self) -> None:
        """Waits for the lock, at most for some time, and leads while it is held.

        Raises:
            Refusal: from the coordinator; nobody was elected.
        """
        held = await self._locks.acquire(UPKEEP, self._owner, LEASE_MS, WAIT_MS)
        if held is None:
            await self._clock.sleep(PAUSE_SECONDS)
            return
        self._token = held.token
        asked_ms = self._clock.monotonic_ms()
        # It may have waited, and then nobody knows how much of the lease is left.
        await self._locks.renew(UPKEEP, held.token)
        self._ends_ms = asked_ms + LEASE_MS
        self._lost = asyncio.get_running_loop().create_future()
        self._elected.set()
        log.info("this server leads", token=held.token)
        try:
            await self._keep(held.token)
        finally:
            self._elected.clear()
            self._lost.set_result(None)
        self._token = 0
        log.warning("this server leads no longer", token=held.token)
        await self._idle.wait()

    async def _keep(self, token: int) -> None:
        """Renews the lease; returns when it may have ended."""
        while (left_ms := self._ends_ms - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep(min(LEASE_MS / RENEWALS_PER_LEASE, left_ms) / 1000)
            asked_ms = self._clock.monotonic_ms()
            if asked_ms >= self._ends_ms:
                return
            renewal = asyncio.ensure_future(self._locks.renew(UPKEEP, token))
            try:
                await self._clock.wait(renewal, (self._ends_ms - asked_ms) / 1000)
                if not renewal.done():
                    return
                renewal.result()
                self._ends_ms = asked_ms + LEASE_MS
            except Refusal as refusal:
                if refusal.reason is Reason.STALE_FENCE:
                    return
                await self._clock.sleep(min(PAUSE_SECONDS, max(0, self._ends_ms - asked_ms) / 1000))
            finally:
                renewal.cancel()
