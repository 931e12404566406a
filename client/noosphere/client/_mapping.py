"""Which exception stands for which reason: the client's half of the one error table."""

from __future__ import annotations

from noosphere.consistency import CODE_OF, Reason
from noosphere.v1 import errors_pb2

from . import _errors as e
from ._conflict import Conflict, ContextTooOld, PreconditionRequired, SiblingLimit, VersionMismatch
from ._errors import NoosphereError, Outcome
from ._stale import StaleRead, to_stale
from ._status import Failure
from ._wire import to_dots

CONFLICTS: dict[str, type[Conflict[object]]] = {
    Reason.CONFLICT: Conflict,
    Reason.VERSION_MISMATCH: VersionMismatch,
    Reason.CONTEXT_TOO_OLD: ContextTooOld,
    Reason.SIBLING_LIMIT: SiblingLimit,
    Reason.PRECONDITION_REQUIRED: PreconditionRequired,
}

OTHERS: dict[str, type[NoosphereError]] = {
    Reason.STALE_READ_SET: StaleRead,
    Reason.CLAIM_LOST: e.ClaimLost,
    Reason.CONTENTION: e.Contention,
    Reason.TRANSCRIPT_MOVED: e.TranscriptMoved,
    Reason.TOOL_RESULT_SUPERSEDED: e.ToolResultSuperseded,
    Reason.MERGE_TYPE_MISMATCH: e.MergeTypeMismatch,
    Reason.NAMESPACE_DELETED: e.NamespaceDeleted,
    Reason.CROSS_NAMESPACE: e.CrossNamespace,
    Reason.UNCHECKABLE_GUARD: e.UncheckableGuard,
    Reason.NO_CONFLICT: e.NoConflict,
    Reason.AGENT_ACTIVE: e.AgentActive,
    Reason.STALE_INCARNATION: e.StaleIncarnation,
    Reason.STALE_FENCE: e.StaleFence,
    Reason.SESSION_EXISTS: e.SessionExists,
    Reason.SESSION_CLOSED: e.SessionClosed,
    Reason.TURN_NOT_OPEN: e.TurnNotOpen,
    Reason.CALLS_PENDING: e.CallsPending,
    Reason.SESSION_OPEN: e.SessionOpen,
    Reason.CHILDREN_OPEN: e.ChildrenOpen,
    Reason.NOT_PARKED: e.NotParked,
    Reason.TOKENS_OFF: e.FailedPrecondition,
    Reason.INVALID_FIELD: e.InvalidArgument,
    Reason.VALUE_TOO_LARGE: e.ValueTooLarge,
    Reason.REQUEST_ID_REUSED: e.RequestIdReused,
    Reason.INVALID_PAGE_TOKEN: e.InvalidPageToken,
    Reason.BUDGET_TOO_SMALL: e.BudgetTooSmall,
    Reason.COMPACTED: e.Compacted,
    Reason.FUTURE_REVISION: e.FutureRevision,
    Reason.NAMESPACE_NOT_FOUND: e.NotFound,
    Reason.SESSION_NOT_FOUND: e.SessionNotFound,
    Reason.ENTRY_NOT_FOUND: e.EntryNotFound,
    Reason.NOT_IMPLEMENTED: e.Unimplemented,
    Reason.LIMIT_EXCEEDED: e.LimitExceeded,
    Reason.OVERLOADED: e.LimitExceeded,
    Reason.SLOW_CONSUMER: e.SlowConsumer,
    Reason.DRAINING: e.Unavailable,
    Reason.ENGINE_UNAVAILABLE: e.Unavailable,
    Reason.ACKED_WRITES_LOST: e.AckedWritesLost,
    Reason.UNAUTHENTICATED: e.Unauthenticated,
    Reason.PERMISSION_DENIED: e.PermissionDenied,
    Reason.TRUST_DENIED: e.PermissionDenied,
}

# For answers without a reason of ours: gRPC itself, a proxy, or a newer server.
_BY_CODE: dict[str, type[NoosphereError]] = {
    "ABORTED": e.Aborted,
    "FAILED_PRECONDITION": e.FailedPrecondition,
    "INVALID_ARGUMENT": e.InvalidArgument,
    "OUT_OF_RANGE": e.OutOfRange,
    "NOT_FOUND": e.NotFound,
    "PERMISSION_DENIED": e.PermissionDenied,
    "UNAUTHENTICATED": e.Unauthenticated,
    "RESOURCE_EXHAUSTED": e.LimitExceeded,
    "UNIMPLEMENTED": e.Unimplemented,
    "UNAVAILABLE": e.Unavailable,
    "DEADLINE_EXCEEDED": e.DeadlineExceeded,
    "DATA_LOSS": e.AckedWritesLost,
}

# The server decides these before it looks up the request id, or after it has dropped what it
# remembered: they say nothing about an earlier attempt of the same call.
_SILENT_ABOUT_EARLIER = frozenset(
    {
        Reason.UNAUTHENTICATED,
        Reason.PERMISSION_DENIED,
        Reason.TRUST_DENIED,
        Reason.NAMESPACE_DELETED,
        Reason.STALE_INCARNATION,
        Reason.REQUEST_ID_REUSED,
        Reason.ACKED_WRITES_LOST,
        Reason.LIMIT_EXCEEDED,
        Reason.OVERLOADED,
        Reason.DRAINING,
        Reason.ENGINE_UNAVAILABLE,
        # Decided by the state of the session, which the earlier attempt itself may have brought about.
        Reason.SESSION_NOT_FOUND,
        Reason.ENTRY_NOT_FOUND,
        Reason.SESSION_EXISTS,
        Reason.SESSION_CLOSED,
        Reason.TURN_NOT_OPEN,
        Reason.CALLS_PENDING,
        Reason.SESSION_OPEN,
        Reason.CHILDREN_OPEN,
        Reason.NOT_PARKED,
        Reason.TRANSCRIPT_MOVED,
        Reason.TOOL_RESULT_SUPERSEDED,
    }
)
# The server has these from its own refusal, not from a failure half way.
_REFUSED_UNAVAILABLE = frozenset({Reason.DRAINING})
_AMBIGUOUS_CODES = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL", "CANCELLED"})


def is_ambiguous(failure: Failure) -> bool:
    """Tells whether the failed attempt may have been executed."""
    return failure.code in _AMBIGUOUS_CODES and failure.reason not in _REFUSED_UNAVAILABLE


def outcome_of(failure: Failure, *, mutating: bool, doubt: bool) -> Outcome:
    """Returns what a call's last failure says about whether it was applied.

    Args:
        failure: the last attempt's failure.
        mutating: whether the call could change anything.
        doubt: whether an earlier attempt may have been executed.
    """
    if not mutating:
        return "not_applied"
    if is_ambiguous(failure):
        return "unknown"
    unproven = not failure.reason or failure.reason in _SILENT_ABOUT_EARLIER
    return "unknown" if doubt and unproven else "not_applied"


def to_error(failure: Failure, *, request_id: str | None, outcome: Outcome, namespace: str = "") -> NoosphereError:
    """Returns the exception for a failed call, with what its typed detail tells."""
    detail = failure.detail
    head = _head(failure)
    if isinstance(detail, errors_pb2.TransactionDetail) and detail.failures and failure.reason in CONFLICTS:
        return _transaction_failed(failure, detail, request_id, namespace)
    if failure.reason in CONFLICTS:
        info = detail if isinstance(detail, errors_pb2.ConflictDetail) else errors_pb2.ConflictDetail()
        return CONFLICTS[failure.reason](
            failure.message,
            namespace=info.namespace or namespace,
            key=info.key,
            unseen=to_dots(info.unseen),
            reason=failure.reason,
            code=failure.code,
            request_id=request_id,
            head=head,
        )
    kind = OTHERS.get(failure.reason) or _BY_CODE.get(failure.code, e.ServerError)
    error = kind(
        failure.message,
        reason=failure.reason or failure.code,
        code=failure.code,
        request_id=request_id,
        outcome=outcome,
        head=head,
    )
    _fill(error, failure, namespace)
    return error


def _head(failure: Failure) -> int:
    # The typed detail is left out of a status that would be too large; the metadata never is.
    told = failure.metadata.get("head", "")
    return getattr(failure.detail, "head", 0) or (int(told) if told.isdecimal() else 0)


def _transaction_failed(
    failure: Failure, detail: errors_pb2.TransactionDetail, request_id: str | None, namespace: str
) -> NoosphereError:
    parts = []
    for part in detail.failures:
        code = CODE_OF[Reason(part.reason)].value if part.reason in set(Reason) else failure.code
        one = Failure(code, f"{part.reason} on {part.key!r}", part.reason)
        error = to_error(one, request_id=request_id, outcome="not_applied", namespace=namespace)
        if isinstance(error, Conflict):
            error.key = part.key
        parts.append(e.FailedPart(part.index, part.is_operation, part.key, error))
    return e.TransactionFailed(
        failure.message,
        parts,
        reason=failure.reason,
        code=failure.code,
        request_id=request_id,
        head=detail.head,
    )


def _fill(error: NoosphereError, failure: Failure, namespace: str) -> None:
    detail = failure.detail
    if isinstance(error, e.ValueTooLarge) and isinstance(detail, errors_pb2.LimitDetail):
        error.field, error.actual, error.limit = detail.field, detail.actual, detail.limit
    elif isinstance(error, e.BudgetTooSmall) and isinstance(detail, errors_pb2.LimitDetail):
        error.needed, error.limit = detail.actual, detail.limit
    elif isinstance(error, e.AckedWritesLost) and isinstance(detail, errors_pb2.LostRevisionsDetail):
        # `from` is a keyword here.
        error.namespace, error.lost_after, error.lost_through = detail.namespace, getattr(detail, "from"), detail.to
    elif isinstance(error, StaleRead) and isinstance(detail, errors_pb2.StaleReadSetDetail):
        error.stale, error.namespace = to_stale(detail.stale), namespace
    elif isinstance(error, e.Compacted) and isinstance(detail, errors_pb2.LogRangeDetail):
        error.floor = detail.floor
    elif isinstance(error, e.LimitExceeded):
        error.retry_after = failure.retry_delay
