"""The fact queue on Redis: a stream for each priority, whose consumers are the workers of all servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from noosphere.consistency import Reason, Refusal, exhausted, invalid, to_hex

from ...ports.factqueue import (
    BATCH_MAX,
    PRIORITY_MAX,
    REASON_CHARS_MAX,
    DeadJob,
    Job,
    LeasedJob,
    QueuedJob,
    QueueStats,
)
from ..facts.attempts import attempt_of, returned_of
from ..facts.checks import check_jobs, check_limit, check_names, check_span, distinct
from .engine import Engine
from .fence import QUEUE as KEY
from .queue_packing import Lease, dead_of, job_of, lease_of, lease_text, queued_of
from .rewriting import Rewriter
from .scripts import Script
from .store import RedisStore
from .storetime import StoreTime
from .wire import Reply

JOBS_MAX = 1_000_000
"""Most jobs, the dead too."""

BYTES_MAX = 1024 * 1024 * 1024
"""Most bytes of jobs: a queue that nobody empties must not take the memory that commits need."""

PAGE_BYTES_MAX = 8 * 1024 * 1024
"""A script stops to read on past this many bytes of jobs: while it runs, Redis does nothing else."""

PAGE_JOBS_MAX = 128


class RedisFactQueue:
    """See :class:`~noosphere.server.ports.factqueue.FactQueue`. Lives on the event loop of its store.

    Leases are in store time, which is that of Redis, and outlast the process that took them: what a dead worker held
    is taken again once its lease has ended. What Redis loses in a failover the queue loses too, leases among it; one
    that was lost is never mistaken for one that was granted later.

    Args:
        engine: executes scripts.
        time: store time.
        rewriter: has files written anew.
        jobs_max: most jobs, the dead too.
        bytes_max: most bytes of jobs.
    """

    def __init__(
        self,
        engine: Engine,
        time: StoreTime,
        rewriter: Rewriter,
        *,
        jobs_max: int = JOBS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._engine = engine
        self._time = time
        self._rewriter = rewriter
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._closed = False

    @classmethod
    def beside(cls, store: RedisStore, *, jobs_max: int = JOBS_MAX, bytes_max: int = BYTES_MAX) -> RedisFactQueue:
        """Returns the queue on the Redis of an open store, over its connection and under its epoch.

        Args:
            store: the store; to be closed after the queue.
            jobs_max: most jobs, the dead too.
            bytes_max: most bytes of jobs.
        """
        return cls(store.scripts, store.time, store.rewriter, jobs_max=jobs_max, bytes_max=bytes_max)

    @property
    def may_lose(self) -> bool:
        """Always: a promoted replica may lack what the old primary had acknowledged."""
        return True

    async def put(self, jobs: Sequence[Job]) -> None:
        """Queues jobs; see the port.

        Raises:
            Refusal: also LIMIT_EXCEEDED, if Redis is out of memory.
        """
        self._check()
        check_jobs(jobs)
        first: dict[str, Job] = {}
        for job in jobs:
            first.setdefault(job.id, job)
        if not first:
            return
        parts: list[str | bytes | int] = []
        for job in first.values():
            parts += (job.id, job.group, job.priority, job.body)
        reply = await self._call(Script.QUEUE_PUT, self._jobs_max, self._bytes_max, *parts)
        if reply[0] == b"L":
            raise exhausted("jobs", reply[2], self._jobs_max, "the queue is full")
        if reply[0] == b"B":
            raise exhausted("jobs.bytes", reply[2], self._bytes_max, "the queue is full")

    async def take(
        self, worker: str, limit: int, lease_ms: int, *, priority_min: int = 0, priority_max: int = PRIORITY_MAX
    ) -> tuple[LeasedJob, ...]:
        """Leases jobs, fewer than there are if they are large; see the port."""
        self._check()
        check_names("worker", (worker,))
        check_limit(limit, BATCH_MAX)
        check_span("lease_ms", lease_ms, 1)
        priorities = max(0, priority_min), min(PRIORITY_MAX, priority_max)
        epoch, reply = await self._answered(Script.QUEUE_TAKE, worker, limit, lease_ms, *priorities, PAGE_BYTES_MAX)
        leased = []
        for number, stored, record in reply[2]:
            job = job_of(record)
            lease = lease_text(Lease(int(number, 16), job.priority, epoch, stored))
            leased.append(LeasedJob(job, attempt_of(stored), lease, returned_of(stored)))
        return tuple(leased)

    async def extend(self, leases: Sequence[str], lease_ms: int) -> tuple[bool, ...]:
        """Extends leases; see the port."""
        self._check()
        check_span("lease_ms", lease_ms, 1)
        return await self._held(leases, "x", lease_ms)

    async def done(self, leases: Sequence[str]) -> tuple[bool, ...]:
        """Removes finished jobs; see the port."""
        self._check()
        return await self._held(leases, "d", 0)

    async def fail(self, lease: str, reason: str, *, retry_after_ms: int | None, counts: bool = True) -> bool:
        """Gives a job back or up; see the port."""
        self._check()
        if retry_after_ms is not None:
            check_span("retry_after_ms", retry_after_ms, 0)
            (held,) = await self._held((lease,), "r" if counts else "b", retry_after_ms)
        else:
            (held,) = await self._held((lease,), "f", reason[:REASON_CHARS_MAX].encode("utf-8", "replace"))
        return held

    async def find(self, ids: Sequence[str]) -> tuple[QueuedJob | None, ...]:
        """Returns jobs wherever they are; see the port."""
        self._check()
        check_names("ids", ids)
        found: list[QueuedJob | None] = []
        for start in range(0, len(ids), PAGE_JOBS_MAX):
            reply = await self._call(Script.QUEUE_FIND, *ids[start : start + PAGE_JOBS_MAX])
            found += (None if told is None else queued_of(told) for told in reply[2])
        return tuple(found)

    async def members(self, group: str, after: str, limit: int) -> tuple[QueuedJob, ...]:
        """Lists the jobs of a group; see the port."""
        self._check()
        check_names("group", (group,))
        return tuple(queued_of(told) for told in await self._listed(group, after, limit))

    async def dead(self, after: str, limit: int) -> tuple[DeadJob, ...]:
        """Lists dead jobs; see the port."""
        self._check()
        return tuple(dead_of(told) for told in await self._listed("", after, limit))

    async def everything(self) -> AsyncIterator[QueuedJob]:
        """Streams every job; see the port. Keeps all ids in memory meanwhile, because Redis keeps no order of them."""
        self._check()
        places: list[tuple[bool, bytes, bytes]] = []
        cursor = b"0"
        while True:
            cursor, pairs = await self._engine.ask(KEY, "HSCAN", KEY + b":i", cursor, "COUNT", PAGE_JOBS_MAX)
            for id, place in zip(pairs[::2], pairs[1::2], strict=True):
                dead = place[:1] == b"d"
                places.append((not dead, id if dead else place[2:], id))
            if cursor == b"0":
                break
        # A hash that grows or shrinks meanwhile may tell of a field twice.
        ids = [id.decode() for _, _, id in sorted(set(places))]
        for start in range(0, len(ids), PAGE_JOBS_MAX):
            for found in await self.find(ids[start : start + PAGE_JOBS_MAX]):
                if found is not None:
                    yield found

    async def revive(self, ids: Sequence[str]) -> int:
        """Queues dead jobs again; see the port."""
        self._check()
        check_names("ids", ids)
        _, _, revived = await self._call(Script.QUEUE_REVIVE, *distinct(ids), harmless=False)
        return int(revived)

    async def remove(self, *, ids: Sequence[str] = (), group: str = "") -> int:
        """Removes jobs for good; see the port. Has Redis write its files anew; replicas have files of their own.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also if this Redis may not be told to write its files anew.
        """
        self._check()
        check_names("ids", ids)
        check_names("group", (group,), empty=True)
        if bool(ids) == bool(group):
            raise invalid("ids", "is needed or group, and not both")
        await self._rewriter.owe()
        removed = await self._remove_group(group) if group else await self._remove_ids(distinct(ids))
        await self._rewriter.rewrite()
        return removed

    async def stats(self) -> QueueStats:
        """Returns how much it holds; see the port."""
        self._check()
        _, _, waiting, leased, dead, oldest = await self._call(Script.QUEUE_STATS)
        return QueueStats(waiting, leased, dead, int(oldest, 16))

    async def close(self) -> None:
        """Ends it; its store stays open."""
        self._closed = True

    async def _held(self, leases: Sequence[str], what: str, how: int | bytes) -> tuple[bool, ...]:
        """Does something to the jobs of leases that still hold; tells which do."""
        check_names("leases", leases)
        if not leases:
            return ()
        parts: list[str | int] = []
        for one in map(lease_of, leases):
            parts += (to_hex(one.number), one.priority, f"{one.epoch:06x}", one.attempt)
        # Whoever only extends may do so twice; of the others the second would be told that it was too late.
        reply = await self._call(Script.QUEUE_HELD, what, how, *parts, harmless=what == "x")
        return tuple(held == 1 for held in reply[2])

    async def _listed(self, group: str, after: str, limit: int) -> list[Reply]:
        check_names("after", (after,), empty=True)
        check_limit(limit, BATCH_MAX)
        found: list[Reply] = []
        while True:
            count = min(limit - len(found), PAGE_JOBS_MAX)
            _, _, page, cut = await self._call(Script.QUEUE_LIST, group, after, count, PAGE_BYTES_MAX)
            found += page
            if len(found) >= limit or not (cut or len(page) == count):
                return found
            after = queued_of(page[-1]).job.id

    async def _remove_ids(self, ids: Sequence[str]) -> int:
        removed = 0
        for start in range(0, len(ids), PAGE_JOBS_MAX):
            part = ids[start : start + PAGE_JOBS_MAX]
            _, _, count, _ = await self._call(Script.QUEUE_REMOVE, "", "", 0, *part, harmless=False)
            removed += int(count)
        return removed

    async def _remove_group(self, group: str) -> int:
        # Over its ids once, so it ends whatever is put meanwhile.
        removed, after = 0, ""
        while True:
            _, _, count, last = await self._call(Script.QUEUE_REMOVE, group, after, PAGE_JOBS_MAX, harmless=False)
            removed += int(count)
            if last is None:
                return removed
            after = last.decode()

    async def _call(self, script: Script, *arguments: str | bytes | int, harmless: bool = True) -> Reply:
        _, reply = await self._answered(script, *arguments, harmless=harmless)
        return reply

    async def _answered(
        self, script: Script, *arguments: str | bytes | int, harmless: bool = True
    ) -> tuple[int, Reply]:
        """Returns the epoch under which a script was executed, and its reply, which has store time in second place."""
        told = to_hex(self._time.told_ms)
        epoch, reply = await self._engine.call(script, KEY, told, *arguments, harmless=harmless)
        self._time.heard(int(reply[1], 16))
        return epoch, reply

    def _check(self) -> None:
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the fact queue is closed")
