"""Everything that a call can raise, by what the caller does about it.

::

    NoosphereError                      reason, code, request_id, outcome, message, head
    ├── Conflict[T]                     somebody else wrote: look at .theirs and decide again
    │   ├── VersionMismatch             expected_version is not the version
    │   ├── ContextTooOld               what was read is too old to judge an absent key
    │   ├── SiblingLimit                too many unresolved values: write one in their place
    │   ├── PreconditionRequired        nothing was read before writing over a live value
    │   └── SiblingConflict             not raised: several values, for a model to join in update()
    ├── Aborted                         read again and decide again
    │   ├── TransactionFailed           which parts failed, each with its own error
    │   ├── StaleRead                   what was read changed before the decision was written
    │   ├── ClaimLost                   somebody else may have the task; nothing was written
    │   ├── LockHeld                    the lock was not free in time
    │   ├── Contention                  the server gave up deciding against ever newer records
    │   ├── TranscriptMoved             the session has a newer message than the expected last one
    │   └── ToolResultSuperseded        the tool call already has its result, or none is wanted any more
    ├── FailedPrecondition              change the request
    │   ├── AgentActive                 another incarnation of this agent is alive
    │   ├── StaleIncarnation            this incarnation has ended: connect again
    │   ├── StaleFence                  a newer holder of the lock has written
    │   │   └── LockLost                somebody else may hold the lock by now
    │   ├── MergeTypeMismatch           the record has another merge type
    │   ├── NamespaceDeleted            ensure_namespace() opens it again
    │   ├── UncheckableGuard            a guard outside the written namespace can only be checked
    │   ├── NoConflict                  there is nothing to resolve
    │   ├── CrossNamespace              a transaction spans one namespace
    │   ├── SessionExists               a session of this id is there, with other settings
    │   ├── SessionClosed               the session is closed: read it, or fork it
    │   ├── TurnNotOpen                 the turn has not begun, or has ended
    │   ├── CallsPending                tool calls are under way that the call does not say what to do with
    │   ├── SessionOpen                 only a closed session is purged
    │   ├── ChildrenOpen                a fork still reads the session's messages
    │   └── NotParked                   the tool call has no result that waits for a review
    ├── InvalidArgument                 change the request
    │   ├── ValueTooLarge
    │   ├── RequestIdReused
    │   ├── InvalidPageToken
    │   └── BudgetTooSmall              what must be in the context does not fit its budget
    ├── OutOfRange
    │   ├── Compacted                   the log no longer reaches back so far
    │   └── FutureRevision              the revision was never issued
    ├── NotFound
    │   ├── SessionNotFound
    │   └── EntryNotFound               no such message, tool call, checkpoint, context, fact or candidate
    ├── Unauthenticated                 no credential, or one that is not valid, or not any more
    ├── PermissionDenied
    ├── LimitExceeded                   a capacity is exhausted
    │   └── SlowConsumer                a watch was read too slowly
    ├── Unimplemented
    ├── Unavailable                     the server cannot be reached, or is stopping
    ├── DeadlineExceeded                no answer in time
    ├── AckedWritesLost                 an acknowledged write did not survive: tell its owner
    ├── NotKept                         a lost write was too large to keep, so it cannot be written again
    ├── ServerError                     the server broke its contract
    ├── NotCached                       a near cache cannot tell: read from the server
    ├── ClientClosed                    the call came after, or was cut off by, the end of the client
    ├── UnresolvedSiblings              a record has several values: use .values
    ├── ValueMismatch                   a value does not fit the model; .raw has its bytes
    └── ValueAbsent                     a record has no value to show

The reasons of the server are those of ``noosphere.consistency.Reason``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ._error_base import NoosphereError as NoosphereError
from ._error_base import Outcome as Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._acked import AckedWrite


class Aborted(NoosphereError):
    """The state moved on: read again and decide again. Never retry blindly."""

    default_reason = "ABORTED"
    default_code = "ABORTED"


class TransactionFailed(Aborted):
    """Nothing of the transaction was applied.

    Attributes:
        failures: the failed parts in order, at least one; each has its own error, a :class:`Conflict`
            where a record was in the way.
    """

    def __init__(
        self,
        message: str,
        failures: Sequence[FailedPart],
        *,
        reason: str = "",
        code: str = "",
        request_id: str | None = None,
        head: int = 0,
    ) -> None:
        super().__init__(message, reason=reason, code=code, request_id=request_id, head=head)
        self.failures = tuple(failures)


class FailedPart:
    """One failed compare or operation of a transaction.

    Attributes:
        index: position among the compares or the operations.
        is_operation: whether ``index`` counts operations rather than compares.
        key: the key.
        error: why it failed.
    """

    __slots__ = ("error", "index", "is_operation", "key")

    def __init__(self, index: int, is_operation: bool, key: str, error: NoosphereError) -> None:
        self.index = index
        self.is_operation = is_operation
        self.key = key
        self.error = error

    def __repr__(self) -> str:
        part = "operation" if self.is_operation else "compare"
        return f"FailedPart({part} {self.index}, {self.key!r}, {self.error.reason})"


class ClaimLost(Aborted):
    """The claim is gone, or may be: whoever works on the task now, it is not this caller."""

    default_reason = "CLAIM_LOST"


class LockHeld(Aborted):
    """The lock was not free within the time to wait.

    Attributes:
        holder: who had it then, as ``agent#incarnation``; empty if nobody had any more.
    """

    default_reason = "LOCK_HELD"
    holder = ""


class Contention(Aborted):
    """The server decided again and again, and each time another write came first."""

    default_reason = "CONTENTION"


class TranscriptMoved(Aborted):
    """The session's newest message is not the expected one: read what came, and decide again."""

    default_reason = "TRANSCRIPT_MOVED"


class ToolResultSuperseded(Aborted):
    """The tool call has its result from another attempt, or its late result is refused; nothing was written."""

    default_reason = "TOOL_RESULT_SUPERSEDED"


class FailedPrecondition(NoosphereError):
    """The request cannot succeed as it is."""

    default_reason = "FAILED_PRECONDITION"
    default_code = "FAILED_PRECONDITION"


class AgentActive(FailedPrecondition):
    """Another incarnation of the agent holds its lease; wait for it, or connect with ``takeover``."""


class StaleIncarnation(FailedPrecondition):
    """This incarnation has ended: its lease ran out, or another took over. Connect again."""


class StaleFence(FailedPrecondition):
    """A newer holder of the lock has already written."""

    default_reason = "STALE_FENCE"


class LockLost(StaleFence):
    """The lock is gone, or may be: its lease was not renewed in time. Whoever holds it now, it is not this caller."""


class MergeTypeMismatch(FailedPrecondition):
    """The record has another merge type than the operation."""


class NamespaceDeleted(FailedPrecondition):
    """The namespace was deleted; ``ensure_namespace`` opens a new generation."""


class UncheckableGuard(FailedPrecondition):
    """A guard elsewhere can only be checked before the commit: ``allow_checked`` accepts that, or narrow ``guard``."""


class NoConflict(FailedPrecondition):
    """The key has fewer than two live values, so there is nothing to resolve."""


class CrossNamespace(FailedPrecondition):
    """A transaction named two namespaces. Reserved: no call of this version can."""


class SessionExists(FailedPrecondition):
    """A session with this id was opened before, with other settings."""

    default_reason = "SESSION_EXISTS"


class SessionClosed(FailedPrecondition):
    """The session is closed and takes nothing more; it can be read and forked until it is purged."""

    default_reason = "SESSION_CLOSED"


class TurnNotOpen(FailedPrecondition):
    """The turn has not begun, or has ended."""

    default_reason = "TURN_NOT_OPEN"


class CallsPending(FailedPrecondition):
    """Tool calls are under way, and the request does not say what becomes of them."""

    default_reason = "CALLS_PENDING"


class SessionOpen(FailedPrecondition):
    """The session is in use: close it first."""

    default_reason = "SESSION_OPEN"


class ChildrenOpen(FailedPrecondition):
    """A fork of the session still reads messages through it: purge the fork first."""

    default_reason = "CHILDREN_OPEN"


class NotParked(FailedPrecondition):
    """The tool call has no result that waits for a review."""

    default_reason = "NOT_PARKED"


class InvalidArgument(NoosphereError):
    """A field of the request is malformed; the message names field, value and limit."""

    default_reason = "INVALID_FIELD"
    default_code = "INVALID_ARGUMENT"


class ValueTooLarge(InvalidArgument):
    """A field is larger than its limit.

    Attributes:
        field: the field, empty if not told.
        actual: its size.
        limit: the most that is allowed.
    """

    default_reason = "VALUE_TOO_LARGE"
    field = ""
    actual = 0
    limit = 0


class RequestIdReused(InvalidArgument):
    """The request id belongs to a different request."""


class InvalidPageToken(InvalidArgument):
    """The page token is damaged or belongs to a request with other arguments."""


class BudgetTooSmall(InvalidArgument):
    """Hard constraints, the current input and the newest messages alone exceed the context's budget.

    Attributes:
        needed: tokens that they need, 0 if not told.
        limit: tokens that the budget allows.
    """

    default_reason = "BUDGET_TOO_SMALL"
    needed = 0
    limit = 0


class OutOfRange(NoosphereError):
    """A revision lies outside what the server can serve."""

    default_reason = "OUT_OF_RANGE"
    default_code = "OUT_OF_RANGE"


class Compacted(OutOfRange):
    """The log no longer reaches back to the revision.

    Attributes:
        floor: a watch may start after this revision or later; 0 if not told.
    """

    default_reason = "COMPACTED"
    floor = 0


class FutureRevision(OutOfRange):
    """The revision was never issued."""


class NotFound(NoosphereError):
    """There is no such namespace, unless a class below says what."""

    default_reason = "NAMESPACE_NOT_FOUND"
    default_code = "NOT_FOUND"


class SessionNotFound(NotFound):
    """There is no session of this id, or it was purged."""

    default_reason = "SESSION_NOT_FOUND"


class EntryNotFound(NotFound):
    """There is no such message, tool call, checkpoint, fact or candidate, or the context is no longer kept."""

    default_reason = "ENTRY_NOT_FOUND"


class Unauthenticated(NoosphereError):
    """The server wants to know who calls: there is no credential, or it is not valid, or not any more."""

    default_reason = "UNAUTHENTICATED"
    default_code = "UNAUTHENTICATED"


class PermissionDenied(NoosphereError):
    """The caller may not do this; it does not tell whether what it was about is there."""

    default_reason = "PERMISSION_DENIED"
    default_code = "PERMISSION_DENIED"


class LimitExceeded(NoosphereError):
    """A capacity is exhausted.

    Attributes:
        retry_after: seconds after which a retry may succeed, or None.
    """

    default_reason = "LIMIT_EXCEEDED"
    default_code = "RESOURCE_EXHAUSTED"
    retry_after: float | None = None


class SlowConsumer(LimitExceeded):
    """A watch was read too slowly; watches resume by themselves, so this is rarely seen."""


class Unimplemented(NoosphereError):
    """The server does not offer this."""

    default_reason = "NOT_IMPLEMENTED"
    default_code = "UNIMPLEMENTED"


class Unavailable(NoosphereError):
    """The server cannot be reached, is stopping, or its storage has failed."""

    default_reason = "UNAVAILABLE"
    default_code = "UNAVAILABLE"


class DeadlineExceeded(NoosphereError):
    """No answer within the call's deadline, which covers all its retries."""

    default_reason = "DEADLINE_EXCEEDED"
    default_code = "DEADLINE_EXCEEDED"


class LostRevisions(NamedTuple):
    """Revisions of ``namespace`` in ``(lost_after, lost_through]`` that are gone."""

    namespace: str
    lost_after: int
    lost_through: int


class AckedWritesLost(NoosphereError):
    """A revision that was presented did not survive a crash or failover. Tell the owner of the write.

    Attributes:
        namespace: where.
        lost_after: the last revision that survived.
        lost_through: every revision above ``lost_after`` up to this one is gone.
        own_writes: which of this client's own writes died, oldest first, as far as the last 256 tell;
            ``client.resubmit(error)`` writes them again.
        others: what else was lost, in other namespaces, if more than one was asked about; own writes there
            are among ``own_writes`` too.
    """

    default_reason = "ACKED_WRITES_LOST"
    default_code = "DATA_LOSS"
    namespace = ""
    lost_after = 0
    lost_through = 0
    own_writes: tuple[AckedWrite, ...] = ()
    others: tuple[LostRevisions, ...] = ()


class NotKept(NoosphereError):
    """What was lost was too large to keep a copy of (or is a completed task): its owner has to do it again."""

    default_reason = "NOT_KEPT"
    default_code = "NOT_FOUND"


class ServerError(NoosphereError):
    """The server failed in a way that its contract does not name."""


class ClientClosed(NoosphereError):
    """The client was closed before or during the call."""

    default_reason = "CLIENT_CLOSED"
    default_code = "CANCELLED"


class NotCached(NoosphereError, LookupError):
    """A near cache cannot answer by its rules (it lags behind, is cut off, or does not fit): read from the server."""

    default_reason = "NOT_CACHED"
    default_code = "UNAVAILABLE"


class UnresolvedSiblings(NoosphereError):
    """The record has several live values, so there is no *the* value: look at ``record.values``."""

    default_reason = "UNRESOLVED_SIBLINGS"
    default_code = "FAILED_PRECONDITION"


class ValueMismatch(NoosphereError, ValueError):
    """A stored value does not fit the model that it was read with.

    Attributes:
        raw: the value's bytes as they are stored.
    """

    default_reason = "VALUE_MISMATCH"
    default_code = "FAILED_PRECONDITION"

    def __init__(self, message: str, raw: bytes) -> None:
        super().__init__(message)
        self.raw = raw


class ValueAbsent(NoosphereError, LookupError):
    """The record has no live value, or was listed without values."""

    default_reason = "VALUE_ABSENT"
    default_code = "NOT_FOUND"
