"""How jobs and leases are written on Redis."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import REVISION_MAX, invalid

from ...ports.factqueue import DeadJob, Job, QueuedJob
from ..facts.attempts import attempt_of
from .wire import Reply

_LEASE_CHARS_MAX = 40
_ATTEMPT_BITS = 32
_EPOCH_MAX = 0xFFFFFF


class Lease(NamedTuple):
    """What proves that a worker holds a job.

    Attributes:
        number: the job's.
        priority: the job's.
        epoch: in which it was granted: one whose grant was lost in a failover is not the one that was granted after.
        attempt: which attempt it is, as it is stored.
    """

    number: int
    priority: int
    epoch: int
    attempt: int


def lease_text(lease: Lease) -> str:
    """Returns a lease as workers have it."""
    return f"{lease.number * 10 + lease.priority}.{lease.epoch << _ATTEMPT_BITS | lease.attempt}"


def lease_of(text: str) -> Lease:
    """Reads a lease. One that no queue has ever granted may come out as another one that none has.

    Raises:
        Refusal: INVALID_FIELD.
    """
    job, dot, grant = text.partition(".")
    if not (dot and len(text) <= _LEASE_CHARS_MAX and job.isdecimal() and grant.isdecimal()):
        raise invalid("lease", "is none of this queue's")
    number, priority = divmod(int(job), 10)
    epoch, attempt = divmod(int(grant), 1 << _ATTEMPT_BITS)
    return Lease(min(number, REVISION_MAX), priority, min(epoch, _EPOCH_MAX), attempt)


def job_of(record: bytes) -> Job:
    """Reads a job's record; see ``lua/queue_prelude.lua``."""
    id_bytes, group_bytes = int(record[17:21], 16), int(record[21:25], 16)
    body_at = 25 + id_bytes + group_bytes
    return Job(
        record[25 : 25 + id_bytes].decode(),
        int(record[:1]),
        record[body_at:],
        record[25 + id_bytes : body_at].decode(),
    )


def queued_of(told: Reply) -> QueuedJob:
    """Reads what is told of a job wherever it is."""
    dead, attempts, _, record, reason = told
    return QueuedJob(job_of(record), attempt_of(attempts), dead == 1, reason.decode())


def dead_of(told: Reply) -> DeadJob:
    """Reads what is told of a dead job."""
    _, attempts, died, record, reason = told
    return DeadJob(job_of(record), attempt_of(attempts), reason.decode(), int(died, 16))
