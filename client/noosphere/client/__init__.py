"""Async client of Noosphere: shared working memory that cannot silently lose an update.

::

    async with connect(agent="planner-0") as client:
        plan = client.shared("launch").key("plan", Plan)
        record = await plan.update(revise)

Everything that was read is a :class:`Record`, which holds its own causal context; ``record.replace``
writes in place of what *that* read has seen, and a :class:`Conflict` says what it had not.
"""

from noosphere.consistency import (
    CausalContext,
    ConflictPolicy,
    Encoding,
    Guard,
    MergeType,
    NamespacePolicy,
    Order,
    Scalar,
    StaleChange,
    StaleEntry,
    VersionClock,
)

from ._acked import AckedWrite
from ._board import Board
from ._cache import NearCache
from ._causal import Consistency
from ._claim import Claim
from ._client import Client, NamespaceState, ServerInfo, connect, new_request_id
from ._conflict import (
    Action,
    Conflict,
    ContextTooOld,
    PreconditionRequired,
    SiblingConflict,
    SiblingLimit,
    VersionMismatch,
)
from ._errors import (
    Aborted,
    AckedWritesLost,
    AgentActive,
    ClaimLost,
    ClientClosed,
    Compacted,
    Contention,
    CrossNamespace,
    DeadlineExceeded,
    FailedPart,
    FailedPrecondition,
    FutureRevision,
    InvalidArgument,
    InvalidPageToken,
    LimitExceeded,
    LostRevisions,
    MergeTypeMismatch,
    NamespaceDeleted,
    NoConflict,
    NoosphereError,
    NotCached,
    NotFound,
    NotKept,
    Outcome,
    OutOfRange,
    PermissionDenied,
    RequestIdReused,
    ServerError,
    SlowConsumer,
    StaleFence,
    StaleIncarnation,
    TransactionFailed,
    Unavailable,
    UncheckableGuard,
    Unimplemented,
    UnresolvedSiblings,
    ValueAbsent,
    ValueMismatch,
    ValueTooLarge,
)
from ._key import Key
from ._listing import ChangeEvent, HistoryEntry
from ._namespace import Namespace
from ._operations import (
    Compare,
    Delete,
    Increment,
    KeepMax,
    KeepMin,
    LogAppend,
    MapUpdate,
    Operation,
    Put,
    SetUpdate,
)
from ._pending import PendingConflict
from ._record import Applied, ClaimState, Record, Written
from ._reserve import Reservation, ReservePolicy
from ._resubmit import Resubmitted
from ._retry import RetryPolicy
from ._space import MergeResult, TransactResult
from ._stale import Notes, StaleRead
from ._view import Decision, NamespaceView, View
from ._watch import Watch, WatchBatch
from ._wire import Dot

__all__ = [
    "Aborted",
    "AckedWrite",
    "AckedWritesLost",
    "Action",
    "AgentActive",
    "Applied",
    "Board",
    "CausalContext",
    "ChangeEvent",
    "Claim",
    "ClaimLost",
    "ClaimState",
    "Client",
    "ClientClosed",
    "Compacted",
    "Compare",
    "Conflict",
    "ConflictPolicy",
    "Consistency",
    "Contention",
    "ContextTooOld",
    "CrossNamespace",
    "DeadlineExceeded",
    "Decision",
    "Delete",
    "Dot",
    "Encoding",
    "FailedPart",
    "FailedPrecondition",
    "FutureRevision",
    "Guard",
    "HistoryEntry",
    "Increment",
    "InvalidArgument",
    "InvalidPageToken",
    "KeepMax",
    "KeepMin",
    "Key",
    "LimitExceeded",
    "LogAppend",
    "LostRevisions",
    "MapUpdate",
    "MergeResult",
    "MergeType",
    "MergeTypeMismatch",
    "Namespace",
    "NamespaceDeleted",
    "NamespacePolicy",
    "NamespaceState",
    "NamespaceView",
    "NearCache",
    "NoConflict",
    "NoosphereError",
    "NotCached",
    "NotFound",
    "NotKept",
    "Notes",
    "Operation",
    "Order",
    "OutOfRange",
    "Outcome",
    "PendingConflict",
    "PermissionDenied",
    "PreconditionRequired",
    "Put",
    "Record",
    "RequestIdReused",
    "Reservation",
    "ReservePolicy",
    "Resubmitted",
    "RetryPolicy",
    "Scalar",
    "ServerError",
    "ServerInfo",
    "SetUpdate",
    "SiblingConflict",
    "SiblingLimit",
    "SlowConsumer",
    "StaleChange",
    "StaleEntry",
    "StaleFence",
    "StaleIncarnation",
    "StaleRead",
    "TransactResult",
    "TransactionFailed",
    "Unavailable",
    "UncheckableGuard",
    "Unimplemented",
    "UnresolvedSiblings",
    "ValueAbsent",
    "ValueMismatch",
    "ValueTooLarge",
    "VersionClock",
    "VersionMismatch",
    "View",
    "Watch",
    "WatchBatch",
    "Written",
    "connect",
    "new_request_id",
]
