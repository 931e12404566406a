"""Every reason of the shared table has its exception, with what the status tells."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message
from tests.unit.client_support import Fault

import noosphere.client as client
from noosphere.client import (
    AckedWritesLost,
    BudgetTooSmall,
    Compacted,
    Conflict,
    LimitExceeded,
    NoosphereError,
    ServerError,
    TransactionFailed,
    Unavailable,
    ValueTooLarge,
)
from noosphere.client._errors import __doc__ as tree
from noosphere.client._mapping import CONFLICTS, OTHERS, is_ambiguous, outcome_of, to_error
from noosphere.client._status import Failure, read_failure
from noosphere.consistency import CODE_OF, Code, Reason
from noosphere.v1 import errors_pb2, types_pb2

CLASSES = sorted(
    (found for name in client.__all__ if isinstance(found := getattr(client, name), type)),
    key=lambda found: found.__name__,
)
ERRORS = [found for found in CLASSES if issubclass(found, NoosphereError)]


def rpc_error(fault: Fault) -> grpc.aio.AioRpcError:
    trailer = grpc.aio.Metadata(("grpc-status-details-bin", fault.status().SerializeToString()))
    return grpc.aio.AioRpcError(fault.status_code, grpc.aio.Metadata(), trailer, details=fault.message)


def raised(reason: Reason, detail: Message | None = None, retry_delay: float | None = None) -> NoosphereError:
    failure = read_failure(rpc_error(Fault(reason=reason.value, detail=detail, retry_delay=retry_delay)))
    return to_error(failure, request_id="a#1/3", outcome="not_applied", namespace="shared/x")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_an_exception(reason: Reason) -> None:
    error = raised(reason)
    assert error.reason == reason.value
    assert error.code == CODE_OF[reason].value
    assert (error.request_id, error.outcome, error.message) == ("a#1/3", "not_applied", "scripted")
    assert type(error) in ERRORS
    assert type(error) is not NoosphereError


def test_no_reason_is_mapped_twice() -> None:
    assert set(CONFLICTS).isdisjoint(OTHERS)
    assert set(CONFLICTS) | set(OTHERS) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_reasons_of_one_code_share_what_the_caller_does(reason: Reason) -> None:
    """`except InvalidArgument` and the like catch every reason of their code; conflicts stand apart."""
    error = raised(reason)
    if not isinstance(error, Conflict):
        assert isinstance(error, type(to_error(Failure(error.code, ""), request_id=None, outcome="not_applied")))


@pytest.mark.parametrize("code", Code)
def test_every_code_has_an_exception_without_a_reason(code: Code) -> None:
    error = to_error(Failure(code.value, "no details"), request_id=None, outcome="unknown")
    assert type(error) in ERRORS
    assert not isinstance(error, ServerError)
    assert (error.reason, error.code) == (code.value, code.value)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_the_drawn_tree_is_the_tree(error: type[NoosphereError]) -> None:
    lines = (tree or "").splitlines()
    depth = {line.lstrip(" │├└─").split("[")[0].split(" ")[0]: len(line) - len(line.lstrip(" │├└─")) for line in lines}
    assert error.__name__ in depth
    parents = [base for base in error.__bases__ if issubclass(base, NoosphereError)]
    if error is not NoosphereError:
        assert depth[error.__name__] == depth[parents[0].__name__] + 4


def test_a_conflict_tells_what_its_detail_tells() -> None:
    detail = errors_pb2.ConflictDetail(namespace="shared/x", key="k", version=9, head=12)
    detail.unseen.add(dot=9, actor="b#2", deleted=True).write_time.FromSeconds(60)
    error = raised(Reason.CONFLICT, detail)
    assert isinstance(error, Conflict)
    assert (error.namespace, error.key, error.head, error.theirs) == ("shared/x", "k", 12, None)
    assert [(dot.revision, dot.actor, dot.deleted) for dot in error.unseen] == [(9, "b#2", True)]
    assert error.unseen[0].time is not None
    assert error.unseen[0].time.timestamp() == 60


def test_lost_writes_name_the_range() -> None:
    detail = errors_pb2.LostRevisionsDetail(namespace="shared/x", to=20, head=30, **{"from": 10})
    error = raised(Reason.ACKED_WRITES_LOST, detail)
    assert isinstance(error, AckedWritesLost)
    assert (error.lost_after, error.lost_through, error.head) == (10, 20, 30)


def test_limits_and_floors_are_told() -> None:
    large = raised(Reason.VALUE_TOO_LARGE, errors_pb2.LimitDetail(field="value", actual=2000, limit=1024))
    assert isinstance(large, ValueTooLarge)
    assert (large.field, large.actual, large.limit) == ("value", 2000, 1024)
    small = raised(Reason.BUDGET_TOO_SMALL, errors_pb2.LimitDetail(field="budget_tokens", actual=900, limit=500))
    assert isinstance(small, BudgetTooSmall)
    assert (small.needed, small.limit) == (900, 500)
    compacted = raised(Reason.COMPACTED, errors_pb2.LogRangeDetail(requested=1, floor=5))
    assert isinstance(compacted, Compacted)
    assert compacted.floor == 5
    full = raised(Reason.LIMIT_EXCEEDED, retry_delay=1.5)
    assert isinstance(full, LimitExceeded)
    assert full.retry_after == 1.5


def test_a_failed_transaction_names_its_parts() -> None:
    detail = errors_pb2.TransactionDetail(head=4)
    detail.failures.add(index=1, is_operation=True, key="k", reason="CONFLICT", version=3)
    detail.failures.add(index=0, key="c", reason="VERSION_MISMATCH", version=2)
    error = raised(Reason.CONFLICT, detail)
    assert isinstance(error, TransactionFailed)
    assert [(part.index, part.is_operation, part.key, part.error.reason) for part in error.failures] == [
        (1, True, "k", "CONFLICT"),
        (0, False, "c", "VERSION_MISMATCH"),
    ]


def test_details_of_others_and_broken_details_are_no_reason() -> None:
    foreign = Fault("UNAVAILABLE").status()
    foreign.details.add().Pack(types_pb2.Actor(agent_id="x"))
    for trailer in (foreign.SerializeToString(), b"\xff\xff\xff", b""):
        error = grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(("grpc-status-details-bin", trailer)),
            details="gone",
        )
        failure = read_failure(error)
        assert (failure.code, failure.reason, failure.detail) == ("UNAVAILABLE", "", None)
        assert isinstance(to_error(failure, request_id=None, outcome="unknown"), Unavailable)


UNKNOWN_AFTER_DOUBT = {
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
    Reason.SESSION_NOT_FOUND,
    Reason.ENTRY_NOT_FOUND,
    Reason.SESSION_EXISTS,
    Reason.SESSION_CLOSED,
    Reason.TURN_NOT_OPEN,
    Reason.CALLS_PENDING,
    Reason.SESSION_OPEN,
    Reason.CHILDREN_OPEN,
    Reason.NOT_PARKED,
    Reason.UNAUTHENTICATED,
    Reason.TRANSCRIPT_MOVED,
    Reason.TOOL_RESULT_SUPERSEDED,
}


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_proves_that_an_earlier_attempt_was_not_applied_only_if_a_replay_would_have_won(
    reason: Reason,
) -> None:
    """What is checked before the request id, or after the memory of it was dropped, proves nothing."""
    failure = Failure(CODE_OF[reason].value, "", reason.value)
    proven = outcome_of(failure, mutating=True, doubt=True) == "not_applied"
    assert proven == (reason not in UNKNOWN_AFTER_DOUBT)


def test_without_doubt_a_refusal_is_a_refusal() -> None:
    for reason in set(Reason) - {Reason.ENGINE_UNAVAILABLE}:
        assert outcome_of(Failure(CODE_OF[reason].value, "", reason.value), mutating=True, doubt=False) == "not_applied"
    for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"):
        failure = Failure(code, "")
        assert is_ambiguous(failure)
        assert outcome_of(failure, mutating=True, doubt=False) == "unknown"
        assert outcome_of(failure, mutating=False, doubt=False) == "not_applied"
