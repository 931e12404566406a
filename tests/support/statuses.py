"""Errors as a caller in any language sees them: a ``google.rpc.Status`` taken apart and held against the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from noosphere.consistency import CODE_OF, Reason
from noosphere.v1 import errors_pb2

STATUS_KEY = "grpc-status-details-bin"
DETAILS_BYTES_MAX = 4096
METADATA_BYTES_MAX = 8192
"""Above gRPC's default soft limit for metadata a client may see RESOURCE_EXHAUSTED instead of the error."""

_DETAILS: tuple[type[Message], ...] = (
    errors_pb2.ConflictDetail,
    errors_pb2.LostRevisionsDetail,
    errors_pb2.LimitDetail,
    errors_pb2.LogRangeDetail,
    errors_pb2.TransactionDetail,
    errors_pb2.StaleReadSetDetail,
)

_DETAIL_OF: Mapping[Reason, type[Message]] = {
    Reason.CONFLICT: errors_pb2.ConflictDetail,
    Reason.VERSION_MISMATCH: errors_pb2.ConflictDetail,
    Reason.CONTEXT_TOO_OLD: errors_pb2.ConflictDetail,
    Reason.SIBLING_LIMIT: errors_pb2.ConflictDetail,
    Reason.PRECONDITION_REQUIRED: errors_pb2.ConflictDetail,
    Reason.CLAIM_LOST: errors_pb2.ConflictDetail,
    Reason.ACKED_WRITES_LOST: errors_pb2.LostRevisionsDetail,
    Reason.VALUE_TOO_LARGE: errors_pb2.LimitDetail,
    Reason.LIMIT_EXCEEDED: errors_pb2.LimitDetail,
    Reason.BUDGET_TOO_SMALL: errors_pb2.LimitDetail,
    Reason.COMPACTED: errors_pb2.LogRangeDetail,
    Reason.FUTURE_REVISION: errors_pb2.LogRangeDetail,
    Reason.STALE_READ_SET: errors_pb2.StaleReadSetDetail,
}
"""The typed detail that ``errors.proto`` promises for a reason."""

_WITH_HEAD = frozenset(_DETAIL_OF) - {Reason.VALUE_TOO_LARGE, Reason.LIMIT_EXCEEDED, Reason.BUDGET_TOO_SMALL} | {
    Reason.MERGE_TYPE_MISMATCH,
    Reason.NAMESPACE_DELETED,
    Reason.STALE_FENCE,
    Reason.REQUEST_ID_REUSED,
    Reason.CONTENTION,
    Reason.DRAINING,
    Reason.UNCHECKABLE_GUARD,
    Reason.NO_CONFLICT,
}
"""Reasons that are decided on a namespace's state."""


@dataclass
class Refused(Exception):
    """A call that ended with a status.

    Attributes:
        code: the gRPC code.
        message: the status's sentence.
        reason: ``ErrorInfo.reason``, empty if there is none.
        domain: ``ErrorInfo.domain``.
        metadata: ``ErrorInfo.metadata``.
        detail: the typed detail, None if there is none.
        details_bytes: size of the whole Status.
        metadata_bytes: size of the trailers that carry it, as a bound.
        retry_ms: after how many milliseconds the call may succeed, None if it does not say.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    domain: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    detail: Message | None = None
    details_bytes: int = 0
    metadata_bytes: int = 0
    retry_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.code.name} {self.reason}: {self.message}"

    @property
    def head(self) -> int:
        """The head that the error carries, 0 without one."""
        return int(self.metadata.get("head", "0"))

    def conflict(self) -> errors_pb2.ConflictDetail:
        """Returns the typed detail of a conflict."""
        assert isinstance(self.detail, errors_pb2.ConflictDetail), self
        return self.detail

    def limit(self) -> errors_pb2.LimitDetail:
        """Returns the typed detail of a broken limit."""
        assert isinstance(self.detail, errors_pb2.LimitDetail), self
        return self.detail

    def lost(self) -> errors_pb2.LostRevisionsDetail:
        """Returns the typed detail of lost revisions."""
        assert isinstance(self.detail, errors_pb2.LostRevisionsDetail), self
        return self.detail

    def log_range(self) -> errors_pb2.LogRangeDetail:
        """Returns the typed detail of a position that the log cannot serve."""
        assert isinstance(self.detail, errors_pb2.LogRangeDetail), self
        return self.detail

    def stale(self) -> errors_pb2.StaleReadSetDetail:
        """Returns the typed detail of a decision whose grounds have changed."""
        assert isinstance(self.detail, errors_pb2.StaleReadSetDetail), self
        return self.detail

    def transaction(self) -> errors_pb2.TransactionDetail:
        """Returns the typed detail of a failed transaction."""
        assert isinstance(self.detail, errors_pb2.TransactionDetail), self
        return self.detail


def refused(code: grpc.StatusCode, message: str | None, trailers: object) -> Refused:
    """Returns the error in a call's end: code, message and trailing metadata."""
    pairs = list(trailers) if isinstance(trailers, (tuple, list, grpc.aio.Metadata)) else []
    packed = next((value for name, value in pairs if name == STATUS_KEY), None)
    if packed is None:
        return Refused(code, message or "")
    assert isinstance(packed, bytes)
    status = status_pb2.Status.FromString(packed)
    assert status.code == code.value[0], "the Status and the call end with different codes"
    assert status.message == message
    found = Refused(code, status.message, details_bytes=len(packed))
    # Percent-encoding trebles what is not ASCII, base64 adds a third; HTTP/2 counts 32 bytes an entry.
    found.metadata_bytes = sum(1 if 32 <= b < 127 and b != 37 else 3 for b in status.message.encode())
    found.metadata_bytes += (len(packed) + 2) // 3 * 4 + len(STATUS_KEY) + len("grpc-message") + 96
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            assert not found.reason, "two ErrorInfo in one status"
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            found.reason, found.domain, found.metadata = info.reason, info.domain, dict(info.metadata)
            continue
        if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            found.retry_ms = retry.retry_delay.ToMilliseconds()
            continue
        kind = next(kind for kind in _DETAILS if detail.Is(kind.DESCRIPTOR))
        assert found.detail is None, "two typed details in one status"
        found.detail = kind()
        detail.Unpack(found.detail)
    return found


@contextmanager
def refusal(*reasons: Reason) -> Iterator[Refused]:
    """Expects a call to be refused for one of ``reasons`` and checks everything that the contract says of errors.

    Yields:
        What is filled in with the error once the block has ended.
    """
    holder = Refused(grpc.StatusCode.OK, "")
    with pytest.raises(Refused) as caught:
        yield holder
    check_contract(caught.value)
    assert caught.value.reason in {reason.value for reason in reasons}, f"wanted {reasons}, got {caught.value}"
    holder.__dict__.update(caught.value.__dict__)


def check_contract(error: Refused) -> None:
    """Checks what holds for every error of ours."""
    assert error.reason, f"no ErrorInfo: {error}"
    reason = Reason(error.reason)
    assert error.code.name == CODE_OF[reason].value
    assert error.domain == "noosphere"
    assert error.message, "an error needs a sentence for people"
    assert error.details_bytes <= DETAILS_BYTES_MAX
    assert error.metadata_bytes <= METADATA_BYTES_MAX
    if reason in _WITH_HEAD:
        assert error.metadata["namespace"]
        assert "head" in error.metadata, f"{reason} should say at which head it was decided"
    if error.detail is None:
        assert reason not in _DETAIL_OF, f"{reason} came without its typed detail"
        return
    if isinstance(error.detail, errors_pb2.TransactionDetail):
        assert error.detail.failures[0].reason == reason.value, "the status gives the first failed part's reason"
    else:
        assert isinstance(error.detail, _DETAIL_OF[reason])
    head = getattr(error.detail, "head")  # noqa: B009 # every typed detail of ours has one; the base class has not
    assert head == error.head, "the head of the detail and of the ErrorInfo differ"
