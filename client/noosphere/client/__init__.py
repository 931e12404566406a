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
    MergeType,
    NamespacePolicy,
    Order,
    Scalar,
    VersionClock,
)

from ._board import Board
from ._cache import NearCache
from ._claim import Claim
from ._client import Client, NamespaceState, ServerInfo, connect, new_request_id
from ._conflict import (
    Action,
    Conflict,
    ContextTooOld,
    PreconditionRequired,
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
    MergeTypeMismatch,
    NamespaceDeleted,
    NoosphereError,
    NotCached,
    NotFound,
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
    Put,
    SetUpdate,
)
from ._record import Applied, ClaimState, Record, Written
from ._retry import RetryPolicy
from ._space import MergeResult, TransactResult
from ._watch import Watch, WatchBatch
from ._wire import Dot

__all__ = [
    "Aborted",
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
    "Contention",
    "ContextTooOld",
    "CrossNamespace",
    "DeadlineExceeded",
    "Delete",
    "Dot",
    "Encoding",
    "FailedPart",
    "FailedPrecondition",
    "FutureRevision",
    "HistoryEntry",
    "Increment",
    "InvalidArgument",
    "InvalidPageToken",
    "KeepMax",
    "KeepMin",
    "Key",
    "LimitExceeded",
    "LogAppend",
    "MapUpdate",
    "MergeResult",
    "MergeType",
    "MergeTypeMismatch",
    "Namespace",
    "NamespaceDeleted",
    "NamespacePolicy",
    "NamespaceState",
    "NearCache",
    "NoosphereError",
    "NotCached",
    "NotFound",
    "Order",
    "OutOfRange",
    "Outcome",
    "PermissionDenied",
    "PreconditionRequired",
    "Put",
    "Record",
    "RequestIdReused",
    "RetryPolicy",
    "Scalar",
    "ServerError",
    "ServerInfo",
    "SetUpdate",
    "SiblingLimit",
    "SlowConsumer",
    "StaleFence",
    "StaleIncarnation",
    "TransactResult",
    "TransactionFailed",
    "Unavailable",
    "Unimplemented",
    "UnresolvedSiblings",
    "ValueAbsent",
    "ValueMismatch",
    "ValueTooLarge",
    "VersionClock",
    "VersionMismatch",
    "Watch",
    "WatchBatch",
    "Written",
    "connect",
    "new_request_id",
]
