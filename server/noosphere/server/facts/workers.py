"""Workers: take jobs from the queue under leases, do them, and give up what fails too often. Nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import Code, Reason, Refusal

from ..ports.factqueue import PRIORITY_MAX, FactQueue, LeasedJob
from ..ports.runtime import Clock

log = structlog.get_logger(__name__)

BATCH = 32
"""Most jobs that a worker holds at once."""

AT_ONCE = 8
"""Most jobs under way: enough to share the disk's time, few enough for whoever calls meanwhile."""

LEASE_MS = 60_000
ATTEMPTS_MAX = 8
"""So often a job is tried before it is given up; attempts that failed because an engine is away do not count."""

RETRY_MS = 500
RETRY_MS_MAX = 30_000
POLL_SECONDS = 1.0
"""How long what is due for another attempt may lie unnoticed."""

POLL_SECONDS_MAX = 10.0
"""The same once there has been nothing to do for a while. New work of this server is told of, not that of others, nor
what they have given back."""

AWAY_SECONDS_MAX = 10.0
"""Longest rest before jobs are taken again while an engine is away."""


class Retry(Exception):
    """A job could not be done now, and has to be tried again."""


class GiveUp(Exception):
    """A job can never be done."""


class Handler(NamedTuple):
    """Does jobs of one kind.

    Attributes:
        do: does a job, given its id, body and attempt. Doing it again must change nothing. May raise Retry or GiveUp.
        give_up: records that a job was given up, given its id, body and the reason.
        prepare: is told of a job that is about to be done, given its body, and may begin what takes time. Never waits.
    """

    do: Callable[[str, bytes, int], Awaitable[None]]
    give_up: Callable[[str, bytes, str], Awaitable[None]]
    prepare: Callable[[bytes], None] | None = None


class Lane(NamedTuple):
    """Which jobs a worker takes: so many at once, of which priorities, and as many batches before the first is done.

    With a second batch work goes on while the queue's disk is busy with the first.
    """

    batch: int = BATCH
    batches: int = 2
    priority_min: int = 0
    priority_max: int = PRIORITY_MAX


ALL = Lane()


class _Kind(msgspec.Struct):
    kind: str


_kinds = msgspec.json.Decoder(_Kind)


class Workers:
    """One worker of this process, which does many jobs at once.

    Args:
        queue: where jobs wait.
        clock: the source of time.
        handlers: what does them, by the field ``kind`` of their bodies.
        name: the worker's name.
        lane: which jobs it takes. A slow job holds up those that were taken with it, so slow ones have their own.
        pause: returns when there is nothing more urgent to do than facts.
        ready: asks whether the engine that jobs need is there, and refuses as a job would; None if a job has to try.
    """

    def __init__(
        self,
        queue: FactQueue,
        clock: Clock,
        handlers: Mapping[str, Handler],
        *,
        name: str = "facts",
        lane: Lane = ALL,
        pause: Callable[[], Awaitable[None]] | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._handlers = handlers
        self._name = name
        self._lane = lane
        self._pause = pause
        self._ready = ready
        self._woken = asyncio.Event()
        self._poll_seconds = POLL_SECONDS
        self._rest_seconds = 0.0
        self._away: Refusal | None = None
        self._told_away = ""
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def waits_for(self) -> str:
        """Why nothing is done, in words, while an engine is away; empty if nothing is known to be."""
        return self._told_away if self._rest_seconds else ""

    def wake(self) -> None:
        """Tells that there is work."""
        self._woken.set()

    async def run(self) -> None:
        """Works until cancelled."""
        batches = asyncio.Semaphore(self._lane.batches)
        async with asyncio.TaskGroup() as group:
            while True:
                await batches.acquire()
                while self._rest_seconds:
                    # All jobs would only fail like the last ones.
                    await self._clock.sleep(self._rest_seconds)
                    if await self._may_begin():
                        break
                doing = group.create_task(self._do_all(await self._take()), name="noosphere-fact-jobs")
                doing.add_done_callback(lambda _: batches.release())

    async def _may_begin(self) -> bool:
        """Tells whether jobs may be taken again. Without the engine they stay for servers that can do them."""
        try:
            if self._ready is not None:
                await self._ready()
        except Refusal as refusal:
            self._is_away("fact jobs wait for an engine", refusal)
            return False
        return True

    async def _take(self) -> tuple[LeasedJob, ...]:
        """Returns the next jobs as soon as there are any."""
        self._poll_seconds = POLL_SECONDS
        away = False
        while True:
            self._woken.clear()
            try:
                taken = await self._queue.take(
                    self._name,
                    self._lane.batch,
                    LEASE_MS,
                    priority_min=self._lane.priority_min,
                    priority_max=self._lane.priority_max,
                )
            except Refusal as refusal:
                self._is_away("fact jobs cannot be taken", refusal)
                await self._clock.sleep(self._rest_seconds)
                away = True
                continue
            if away:
                self._is_back()
                away = False
            if taken:
                return taken
            waiter = asyncio.ensure_future(self._woken.wait())
            try:
                await self._clock.wait(waiter, self._poll_seconds)
            finally:
                waiter.cancel()
            self._poll_seconds = min(2 * self._poll_seconds, POLL_SECONDS_MAX)

    async def _do_all(self, taken: tuple[LeasedJob, ...]) -> None:
        self._prepare(taken)
        keeper = asyncio.create_task(self._keep([leased.lease for leased in taken]), name="noosphere-fact-leases")
        try:
            ended = await asyncio.gather(*(self._in_turn(leased) for leased in taken))
        finally:
            keeper.cancel()
        if self._away is not None and not any(ended):
            self._is_away("fact jobs wait for an engine", self._away)
        # Part of a store may be away; what can be done goes on.
        self._away = None
        finished = [leased.lease for leased, done in zip(taken, ended, strict=True) if done]
        if finished:
            try:
                await self._queue.done(finished)
            except Refusal as refusal:
                # They are done again, which changes nothing.
                log.warning("finished fact jobs stay queued", reason=refusal.reason, message=refusal.message)

    def _prepare(self, taken: tuple[LeasedJob, ...]) -> None:
        for leased in taken:
            try:
                handler = self._handlers.get(_kinds.decode(leased.job.body).kind)
                if handler is not None and handler.prepare is not None:
                    handler.prepare(leased.job.body)
            except Exception as error:
                # Doing the job will fail in the same way, and be told of.
                log.debug("a fact job was not prepared", job=leased.job.id, error=type(error).__name__)

    async def _keep(self, leases: list[str]) -> None:
        """Extends leases while their jobs are being done."""
        while True:
            await self._clock.sleep(LEASE_MS / 3000)
            try:
                await self._queue.extend(leases, LEASE_MS)
            except Refusal as refusal:
                log.warning("leases of fact jobs cannot be extended", reason=refusal.reason, message=refusal.message)

    async def _in_turn(self, leased: LeasedJob) -> bool:
        # Each step of a job keeps the event loop for a moment; with few under way a call in between waits for few.
        async with self._places:
            if self._pause is not None:
                await self._pause()
            return await self._do(leased)

    async def _do(self, leased: LeasedJob) -> bool:
        """Does a job; returns whether it is finished."""
        job, attempt = leased.job, leased.attempt
        handler: Handler | None = None
        try:
            handler = self._handlers.get(_kinds.decode(job.body).kind)
            if handler is None:
                raise GiveUp("it is of a kind that this server does not know")
            await handler.do(job.id, job.body, attempt)
            self._is_back()
            return True
        except GiveUp as error:
            reason, patient = str(error), False
        except Retry as error:
            reason, patient = str(error), attempt < ATTEMPTS_MAX
        except Refusal as refusal:
            reason = f"{refusal.reason}: {refusal.message}"
            if refusal.reason is Reason.ENGINE_UNAVAILABLE:
                self._away = refusal
                await self._give_back(leased, refusal)
                return False
            patient = refusal.code is Code.UNAVAILABLE or attempt < ATTEMPTS_MAX
        except Exception as error:
            log.error("a fact job failed", job=job.id, attempt=attempt, exc_info=error)
            reason, patient = f"{type(error).__name__} in the server", attempt < ATTEMPTS_MAX
        await self._fail(leased, handler, reason, patient)
        return False

    def _is_away(self, what: str, refusal: Refusal) -> None:
        """Rests for longer each time until a job is done, and tells of the first time only."""
        told = log.debug if self._rest_seconds else log.warning
        told(what, worker=self._name, reason=refusal.reason, message=refusal.message)
        self._told_away = refusal.message
        self._rest_seconds = min(AWAY_SECONDS_MAX, 2 * self._rest_seconds or RETRY_MS / 1000)

    def _is_back(self) -> None:
        if self._rest_seconds:
            log.info("fact jobs are done again", worker=self._name)
            self._rest_seconds = 0.0

    async def _fail(self, leased: LeasedJob, handler: Handler | None, reason: str, patient: bool) -> None:
        wait_ms = min(RETRY_MS_MAX, RETRY_MS * 2 ** min(max(leased.attempt, 1) - 1, 10))
        try:
            if not patient and handler is not None:
                await handler.give_up(leased.job.id, leased.job.body, reason)
            await self._queue.fail(leased.lease, reason, retry_after_ms=wait_ms if patient else None)
            self._due_again()
        except Refusal as refusal:
            self._keeps_lease(refusal)

    async def _give_back(self, leased: LeasedJob, refusal: Refusal) -> None:
        """Gives a job back that could not be done because an engine is away, which is no failure of its own."""
        # Longer than a rest in the end: where a part of a store is away, the rest has its turn.
        wait_ms = min(RETRY_MS_MAX, RETRY_MS * 2 ** min(leased.returned, 10))
        reason = f"{refusal.reason}: {refusal.message}"
        try:
            await self._queue.fail(leased.lease, reason, retry_after_ms=wait_ms, counts=False)
            self._due_again()
        except Refusal as refused:
            self._keeps_lease(refused)

    def _due_again(self) -> None:
        # Before long, and whoever waits for work may wait for longer.
        self._poll_seconds = POLL_SECONDS
        self._woken.set()

    def _keeps_lease(self, refusal: Refusal) -> None:
        # The lease ends by itself, and the job is taken again. That the queue is away is told once, for all jobs.
        told = log.debug if refusal.reason is Reason.ENGINE_UNAVAILABLE else log.warning
        told("a failed fact job keeps its lease", reason=refusal.reason, message=refusal.message)
