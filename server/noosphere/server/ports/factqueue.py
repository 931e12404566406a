"""The fact queue port: work for the fact pipeline, durable, prioritised, at least once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

BATCH_MAX = 1_024
"""Most jobs, leases or ids of one call."""

PRIORITY_MAX = 9
ID_CHARS_MAX = 1_024
"""Longest id, group, lease and worker's name."""

BODY_BYTES_MAX = 1024 * 1024
CALL_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of bodies that one call queues."""

REASON_CHARS_MAX = 2_000
"""Longer reasons are cut."""

LEASE_MS_MAX = 24 * 60 * 60 * 1_000
"""Longest lease, and longest wait for the next attempt."""


class Job(NamedTuple):
    """A piece of work to be queued.

    Attributes:
        id: names it; queueing it again while it waits or runs changes nothing, and a dead one is queued anew.
        priority: 0 is taken before 1, up to 9; of equals the oldest first.
        body: what to do, as the service encodes it.
        group: whom it concerns, e.g. an owner, so that all of a group can be removed.
    """

    id: str
    priority: int
    body: bytes
    group: str = ""


class LeasedJob(NamedTuple):
    """A job that a worker holds.

    Attributes:
        job: the job.
        attempt: which attempt this is, from 1; those whose worker died count, so that whoever takes a job that keeps
            killing workers can give it up. Those that were given back as not counting do not.
        lease: proves that the worker still holds it. A lease that has ended is good until another worker takes the job.
        returned: how often it was given back as not counting.
    """

    job: Job
    attempt: int
    lease: str
    returned: int = 0


class DeadJob(NamedTuple):
    """A job that was given up, with the last reason."""

    job: Job
    attempts: int
    reason: str
    died_ms: int


class QueuedJob(NamedTuple):
    """A job wherever it is.

    Attributes:
        job: the job.
        attempts: how many attempts at it count.
        dead: whether it was given up.
        reason: why, if it was.
    """

    job: Job
    attempts: int
    dead: bool
    reason: str


class QueueStats(NamedTuple):
    """How much a queue holds."""

    waiting: int
    leased: int
    dead: int
    oldest_ms: int
    """Since when the oldest waiting job has waited; 0 if none does."""


class FactQueue(Protocol):
    """What every backend provides.

    Any method may raise ``Refusal``: ENGINE_UNAVAILABLE if the queue is closed or has failed, INVALID_FIELD or
    VALUE_TOO_LARGE for an argument beyond its limit, before anything is done.
    """

    @property
    def may_lose(self) -> bool:
        """Whether a failover of its engine may lose what was acknowledged, as one of the working store may."""
        ...

    async def put(self, jobs: Sequence[Job]) -> None:
        """Queues jobs, durable when it returns; all or none.

        Raises:
            Refusal: LIMIT_EXCEEDED, if the queue is full; the dead count too.
        """
        ...

    async def take(
        self, worker: str, limit: int, lease_ms: int, *, priority_min: int = 0, priority_max: int = PRIORITY_MAX
    ) -> tuple[LeasedJob, ...]:
        """Leases up to ``limit`` jobs of these priorities, those of ended leases too."""
        ...

    async def extend(self, leases: Sequence[str], lease_ms: int) -> tuple[bool, ...]:
        """Extends leases; False for one that has been lost."""
        ...

    async def done(self, leases: Sequence[str]) -> tuple[bool, ...]:
        """Removes finished jobs; False for one whose lease was lost, whose job somebody else holds."""
        ...

    async def fail(self, lease: str, reason: str, *, retry_after_ms: int | None, counts: bool = True) -> bool:
        """Gives a job back to be tried again later, or for good to the dead-letter list; False if it was lost.

        Args:
            lease: that of the job.
            reason: why it failed.
            retry_after_ms: when it is tried again; None gives it up.
            counts: whether this attempt counts. What could not even be tried has not failed; the next attempt then has
                the same number. Of a job that is given up all attempts count.
        """
        ...

    async def find(self, ids: Sequence[str]) -> tuple[QueuedJob | None, ...]:
        """Returns jobs in the order asked for, None for one that is done or was never put; changes nothing."""
        ...

    async def members(self, group: str, after: str, limit: int) -> tuple[QueuedJob, ...]:
        """Lists the jobs of a group, the dead too, by id, by pages."""
        ...

    async def dead(self, after: str, limit: int) -> tuple[DeadJob, ...]:
        """Lists dead jobs by id, by pages."""
        ...

    def everything(self) -> AsyncIterator[QueuedJob]:
        """Streams every job: the dead by id, then the others in the order in which they were queued.

        What comes or goes meanwhile may be among them or not.
        """
        ...

    async def revive(self, ids: Sequence[str]) -> int:
        """Queues dead jobs again; returns how many there were."""
        ...

    async def remove(self, *, ids: Sequence[str] = (), group: str = "") -> int:
        """Removes jobs wherever they are, the dead too: by id, or all of a group. Returns how many there were.

        For good: what they said, and what finished jobs said, is overwritten, not only unlinked.
        """
        ...

    async def stats(self) -> QueueStats:
        """Returns how much it holds."""
        ...

    async def close(self) -> None:
        """Closes; later calls raise ENGINE_UNAVAILABLE."""
        ...
