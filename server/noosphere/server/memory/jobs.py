"""A write as asked for, and what one attempt at it has read and decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from noosphere.consistency import KeySeen, NamespacePolicy, Record

from ..ports.store import Fence, Mutation, ReadResult
from .extension import NO_ADDITIONS, Additions
from .guards import Validation
from .types import AppendOp, Call, Compare, DeleteOp, MergeOperation, Operation, PutOp, WriteOp


class Job(NamedTuple):
    """A write as asked for.

    Attributes:
        asked: every operation, in order.
        ops: those on keys.
        keys: the keys of operations and compares.
        extra: keys that the namespace's extension decides on.
        seen: what a put or delete without a precondition replaces.
    """

    call: Call
    namespace: str
    asked: tuple[Operation, ...]
    ops: tuple[WriteOp, ...]
    compares: tuple[Compare, ...]
    awaited: tuple[str, ...]
    keys: tuple[str, ...]
    extra: tuple[str, ...]
    extended: bool
    meaning: bytes
    as_transaction: bool
    seen: Mapping[str, KeySeen]

    @property
    def appends(self) -> tuple[AppendOp, ...]:
        """The operations that append."""
        return tuple(op for op in self.asked if isinstance(op, AppendOp))


class Attempt(NamedTuple):
    """What one attempt read."""

    read: ReadResult
    records: dict[str, Record | None]
    policy: NamespacePolicy
    config_version: int
    fences: tuple[Fence, ...]
    validation: Validation
    mutations: tuple[Mutation, ...] = ()
    additions: Additions = NO_ADDITIONS


def may_create(op: Operation) -> bool:
    """Tells whether an operation may write a key that is not stored."""
    return not (isinstance(op, PutOp) and op.put.precondition.expected_version)


def always_applies(op: Operation) -> bool:
    """Tells whether no version of a record would have an operation refused."""
    return isinstance(op, MergeOperation) or (isinstance(op, PutOp) and op.put.precondition.blind)


def replaced(job: Job) -> tuple[str, int] | None:
    """Returns the key and version that a write replaces, if it is of one key and about nothing else."""
    if len(job.asked) != 1 or job.compares or job.extended:
        return None
    if job.call.tokens is not None and job.call.tokens.read_set is not None:
        return None
    op = job.asked[0]
    if isinstance(op, PutOp):
        version = op.put.precondition.expected_version
    elif isinstance(op, DeleteOp):
        version = op.precondition.expected_version
    else:
        return None
    return (op.key, version) if version else None
