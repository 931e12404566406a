"""Every reason for which a call is refused, in one table that server and client share.

A refusal is raised as :class:`Refusal` by the pure rules and by the services; ``rpc`` turns it into a
``google.rpc.Status``, the client turns that back into its own exception tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """The gRPC status codes in use, by their standard names."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"


class Reason(StrEnum):
    """Why a call was refused; the value of ``ErrorInfo.reason``."""

    # The caller re-reads and decides again.
    VERSION_MISMATCH = "VERSION_MISMATCH"
    CONFLICT = "CONFLICT"
    CONTEXT_TOO_OLD = "CONTEXT_TOO_OLD"
    SIBLING_LIMIT = "SIBLING_LIMIT"
    STALE_READ_SET = "STALE_READ_SET"
    CLAIM_LOST = "CLAIM_LOST"
    CONTENTION = "CONTENTION"
    TRANSCRIPT_MOVED = "TRANSCRIPT_MOVED"
    TOOL_RESULT_SUPERSEDED = "TOOL_RESULT_SUPERSEDED"
    # The caller changes the request.
    PRECONDITION_REQUIRED = "PRECONDITION_REQUIRED"
    MERGE_TYPE_MISMATCH = "MERGE_TYPE_MISMATCH"
    NAMESPACE_DELETED = "NAMESPACE_DELETED"
    # Reserved: no request of this version can name a second namespace to write to.
    CROSS_NAMESPACE = "CROSS_NAMESPACE"
    UNCHECKABLE_GUARD = "UNCHECKABLE_GUARD"
    NO_CONFLICT = "NO_CONFLICT"
    AGENT_ACTIVE = "AGENT_ACTIVE"
    STALE_INCARNATION = "STALE_INCARNATION"
    STALE_FENCE = "STALE_FENCE"
    INVALID_FIELD = "INVALID_FIELD"
    VALUE_TOO_LARGE = "VALUE_TOO_LARGE"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    INVALID_PAGE_TOKEN = "INVALID_PAGE_TOKEN"
    COMPACTED = "COMPACTED"
    FUTURE_REVISION = "FUTURE_REVISION"
    NAMESPACE_NOT_FOUND = "NAMESPACE_NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    ENTRY_NOT_FOUND = "ENTRY_NOT_FOUND"
    SESSION_EXISTS = "SESSION_EXISTS"
    SESSION_CLOSED = "SESSION_CLOSED"
    TURN_NOT_OPEN = "TURN_NOT_OPEN"
    CALLS_PENDING = "CALLS_PENDING"
    SESSION_OPEN = "SESSION_OPEN"
    CHILDREN_OPEN = "CHILDREN_OPEN"
    NOT_PARKED = "NOT_PARKED"
    TOKENS_OFF = "TOKENS_OFF"
    BUDGET_TOO_SMALL = "BUDGET_TOO_SMALL"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    # The caller waits, or is told what was lost.
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    OVERLOADED = "OVERLOADED"
    SLOW_CONSUMER = "SLOW_CONSUMER"
    DRAINING = "DRAINING"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    ACKED_WRITES_LOST = "ACKED_WRITES_LOST"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    TRUST_DENIED = "TRUST_DENIED"


CONFLICTS = frozenset(
    {
        Reason.VERSION_MISMATCH,
        Reason.CONFLICT,
        Reason.CONTEXT_TOO_OLD,
        Reason.SIBLING_LIMIT,
        Reason.STALE_READ_SET,
        Reason.CLAIM_LOST,
        Reason.CONTENTION,
        Reason.TRANSCRIPT_MOVED,
        Reason.TOOL_RESULT_SUPERSEDED,
    }
)
"""Refusals because somebody else was faster: the caller re-reads and decides again."""

CODE_OF: dict[Reason, Code] = {
    Reason.VERSION_MISMATCH: Code.ABORTED,
    Reason.CONFLICT: Code.ABORTED,
    Reason.CONTEXT_TOO_OLD: Code.ABORTED,
    Reason.SIBLING_LIMIT: Code.ABORTED,
    Reason.STALE_READ_SET: Code.ABORTED,
    Reason.CLAIM_LOST: Code.ABORTED,
    Reason.CONTENTION: Code.ABORTED,
    Reason.TRANSCRIPT_MOVED: Code.ABORTED,
    Reason.TOOL_RESULT_SUPERSEDED: Code.ABORTED,
    Reason.PRECONDITION_REQUIRED: Code.FAILED_PRECONDITION,
    Reason.MERGE_TYPE_MISMATCH: Code.FAILED_PRECONDITION,
    Reason.NAMESPACE_DELETED: Code.FAILED_PRECONDITION,
    Reason.CROSS_NAMESPACE: Code.FAILED_PRECONDITION,
    Reason.UNCHECKABLE_GUARD: Code.FAILED_PRECONDITION,
    Reason.NO_CONFLICT: Code.FAILED_PRECONDITION,
    Reason.AGENT_ACTIVE: Code.FAILED_PRECONDITION,
    Reason.STALE_INCARNATION: Code.FAILED_PRECONDITION,
    Reason.STALE_FENCE: Code.FAILED_PRECONDITION,
    Reason.SESSION_EXISTS: Code.FAILED_PRECONDITION,
    Reason.SESSION_CLOSED: Code.FAILED_PRECONDITION,
    Reason.TURN_NOT_OPEN: Code.FAILED_PRECONDITION,
    Reason.CALLS_PENDING: Code.FAILED_PRECONDITION,
    Reason.SESSION_OPEN: Code.FAILED_PRECONDITION,
    Reason.CHILDREN_OPEN: Code.FAILED_PRECONDITION,
    Reason.NOT_PARKED: Code.FAILED_PRECONDITION,
    Reason.TOKENS_OFF: Code.FAILED_PRECONDITION,
    Reason.INVALID_FIELD: Code.INVALID_ARGUMENT,
    Reason.VALUE_TOO_LARGE: Code.INVALID_ARGUMENT,
    Reason.REQUEST_ID_REUSED: Code.INVALID_ARGUMENT,
    Reason.INVALID_PAGE_TOKEN: Code.INVALID_ARGUMENT,
    Reason.BUDGET_TOO_SMALL: Code.INVALID_ARGUMENT,
    Reason.COMPACTED: Code.OUT_OF_RANGE,
    Reason.FUTURE_REVISION: Code.OUT_OF_RANGE,
    Reason.NAMESPACE_NOT_FOUND: Code.NOT_FOUND,
    Reason.SESSION_NOT_FOUND: Code.NOT_FOUND,
    Reason.ENTRY_NOT_FOUND: Code.NOT_FOUND,
    Reason.NOT_IMPLEMENTED: Code.UNIMPLEMENTED,
    Reason.LIMIT_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.OVERLOADED: Code.RESOURCE_EXHAUSTED,
    Reason.SLOW_CONSUMER: Code.RESOURCE_EXHAUSTED,
    Reason.DRAINING: Code.UNAVAILABLE,
    Reason.ENGINE_UNAVAILABLE: Code.UNAVAILABLE,
    Reason.ACKED_WRITES_LOST: Code.DATA_LOSS,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: Code.PERMISSION_DENIED,
    Reason.TRUST_DENIED: Code.PERMISSION_DENIED,
}


class Dot(NamedTuple):
    """A value or tombstone without its content."""

    dot: int
    actor: str
    time_ms: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class ConflictInfo:
    """What a refused write had not seen, newest first."""

    key: str
    version: int
    unseen: tuple[Dot, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """Which field of a request breaks which limit."""

    field: str
    actual: int
    limit: int


@dataclass(frozen=True, slots=True)
class LostInfo:
    """Revisions in ``(after, through]`` did not survive an epoch change."""

    after: int
    through: int


@dataclass(frozen=True, slots=True)
class LogRangeInfo:
    """A watch start that the log cannot serve."""

    requested: int
    floor: int


@dataclass(frozen=True, slots=True)
class PartFailure:
    """One failed compare or operation of a transaction."""

    index: int
    is_operation: bool
    key: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The failed parts of a transaction, in order."""

    failures: tuple[PartFailure, ...]


class StaleChange(NamedTuple):
    """One change that made something stale; ``actor`` is empty for an expiry."""

    key: str
    actor: str
    revision: int


class StaleEntry(NamedTuple):
    """Something that changed after a model saw it.

    Attributes:
        namespace: where.
        name: the key or collection.
        is_collection: which of the two.
        seen: the version or stamp that was seen.
        now: the present one; 0 for a key without a live value.
        changes: what changed, newest first, as far as the log reaches back; at most 16.
    """

    namespace: str
    name: str
    is_collection: bool
    seen: int
    now: int
    changes: tuple[StaleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class StaleInfo:
    """What changed after the model saw it."""

    stale: tuple[StaleEntry, ...]


Detail = ConflictInfo | LimitInfo | LostInfo | LogRangeInfo | TransactionInfo | StaleInfo


class Refusal(Exception):
    """A call that was refused; nothing was written.

    Attributes:
        reason: why, from the table above.
        message: one sentence for people, naming field, value and limit where there is one.
        detail: the typed detail, if the reason has one.
        namespace: the namespace concerned, filled in by the service.
        head: the namespace's head when this was decided, filled in by the service.
        retry_after_ms: after which time the same call may succeed; None if time alone does not mend it.
    """

    def __init__(
        self, reason: Reason, message: str, detail: Detail | None = None, *, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.detail = detail
        self.namespace = ""
        self.head = 0
        self.retry_after_ms = retry_after_ms

    @property
    def code(self) -> Code:
        """The gRPC status code that goes with the reason."""
        return CODE_OF[self.reason]

    def __repr__(self) -> str:
        return f"Refusal({self.reason}, {self.message!r})"


def invalid(field: str, problem: str) -> Refusal:
    """Returns the refusal of a malformed field."""
    return Refusal(Reason.INVALID_FIELD, f"{field}: {problem}")


def too_large(field: str, actual: int, limit: int, unit: str = "bytes") -> Refusal:
    """Returns the refusal of a value above its limit."""
    return Refusal(
        Reason.VALUE_TOO_LARGE,
        f"{field} has {actual} {unit}, the limit is {limit}",
        LimitInfo(field, actual, limit),
    )


def exhausted(field: str, actual: int, limit: int, what: str) -> Refusal:
    """Returns the refusal of a call that would exceed a capacity."""
    return Refusal(
        Reason.LIMIT_EXCEEDED, f"{field}: {what} ({actual}, the limit is {limit})", LimitInfo(field, actual, limit)
    )
