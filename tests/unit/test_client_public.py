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
    "Applied",
    "Board",
    "BudgetTooSmall",
    "CallsPending",
    "CausalContext",
    "ChangeEvent",
    "ChildrenOpen",
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
    "EntryNotFound",
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
    "NotParked",
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
    "SessionClosed",
    "SessionExists",
    "SessionNotFound",
    "SessionOpen",
    "SetUpdate",
    "SiblingConflict",
    "SiblingLimit",
    "SlowConsumer",
    "StaleChange",
    "StaleEntry",
    "StaleFence",
    "StaleIncarnation",
    "StaleRead",
    "ToolResultSuperseded",
    "TransactResult",
    "TransactionFailed",
    "TranscriptMoved",
    "TurnNotOpen",
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
