"""The one public face of the client, pinned: a name that comes or goes is a decision."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import noosphere.client as client

ALL = [
    "Aborted",
    "AckedWrite",
    "AckedWritesLost",
    "Action",
    "AgentActive",
    "Append",
    "Applied",
    "Basis",
    "BasisChange",
    "Blob",
    "Board",
    "BudgetTooSmall",
    "CallsPending",
    "CausalContext",
    "ChangeEvent",
    "Checkpoint",
    "CheckpointPolicy",
    "ChildrenOpen",
    "Claim",
    "ClaimLost",
    "ClaimState",
    "Client",
    "ClientClosed",
    "ClosedSession",
    "Compacted",
    "Compaction",
    "Compare",
    "Conflict",
    "ConflictPolicy",
    "Consistency",
    "Contention",
    "Context",
    "ContextPlan",
    "ContextTooOld",
    "Control",
    "ControlState",
    "CrossNamespace",
    "DeadlineExceeded",
    "Decision",
    "Delete",
    "Dot",
    "Encoding",
    "EndedTurn",
    "EntryFate",
    "EntryNotFound",
    "Evidence",
    "FailedPart",
    "FailedPrecondition",
    "FindEvidence",
    "FutureRevision",
    "Guard",
    "Handoff",
    "HealthFigure",
    "HealthMetric",
    "HealthVerdict",
    "HistoryEntry",
    "Increment",
    "InvalidArgument",
    "InvalidPageToken",
    "ItemDisposition",
    "KeepMax",
    "KeepMin",
    "Key",
    "LatePolicy",
    "LimitExceeded",
    "LogAppend",
    "LostRevisions",
    "Manifest",
    "ManifestEntry",
    "MapUpdate",
    "MergeResult",
    "MergeType",
    "MergeTypeMismatch",
    "Message",
    "MessageLike",
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
    "NotParked",
    "Notes",
    "OpenTurn",
    "Operation",
    "Order",
    "OutOfRange",
    "Outcome",
    "PendingCalls",
    "PendingConflict",
    "PermissionDenied",
    "PreconditionRequired",
    "Put",
    "Recipe",
    "Record",
    "RequestIdReused",
    "Reservation",
    "ReservePolicy",
    "Restored",
    "Resubmitted",
    "RetryPolicy",
    "Role",
    "Scalar",
    "Section",
    "SectionForm",
    "SectionKind",
    "SectionRule",
    "ServerError",
    "ServerInfo",
    "Session",
    "SessionClosed",
    "SessionExists",
    "SessionHealth",
    "SessionInfo",
    "SessionNotFound",
    "SessionOpen",
    "SessionSettings",
    "SessionStatus",
    "SetUpdate",
    "SiblingConflict",
    "SiblingLimit",
    "SlowConsumer",
    "StaleChange",
    "StaleEntry",
    "StaleFence",
    "StaleIncarnation",
    "StaleRead",
    "Summary",
    "ThinkInContext",
    "ToolCall",
    "ToolCallStatus",
    "ToolResultSuperseded",
    "ToolSchema",
    "ToolUse",
    "TransactResult",
    "TransactionFailed",
    "TranscriptMoved",
    "Transition",
    "TransitionAction",
    "Turn",
    "TurnNotOpen",
    "Unavailable",
    "UncheckableGuard",
    "Unimplemented",
    "UnresolvedSiblings",
    "Usage",
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
    "read_handoff",
]


def test_the_public_names_are_these() -> None:
    assert client.__all__ == ALL
    assert sorted(ALL) == ALL
    assert not [name for name in ALL if not hasattr(client, name)]


def test_every_other_module_is_private() -> None:
    folder = Path(client.__file__).parent
    assert not [path.name for path in folder.glob("*.py") if not path.name.startswith("_")]


def test_everything_public_is_documented() -> None:
    folder = Path(client.__file__).parent
    for path in sorted(folder.glob("*.py")):
        module = ast.parse(path.read_text())
        assert ast.get_docstring(module), path.name


def test_the_client_loads_nothing_of_the_server() -> None:
    """An agent that installs plain `noosphere` has grpcio, protobuf, googleapis-common-protos and pydantic."""
    program = (
        "import sys, noosphere.client\n"
        "print(*sorted(n for n in sys.modules if n.split('.')[0] in {'grpc_status', 'uvloop', 'structlog', 'typer', "
        "'msgspec', 'sqlite3'} or n.startswith('noosphere.server')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
