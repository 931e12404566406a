"""Failed calls as they come from gRPC: status, reason, typed detail, advised delay.

The status details travel in the trailer ``grpc-status-details-bin`` as a ``google.rpc.Status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore] # ships no py.typed

from noosphere.v1 import errors_pb2

DOMAIN = "noosphere"
_TRAILER = "grpc-status-details-bin"
_DETAILS: tuple[type[Message], ...] = (
    errors_pb2.ConflictDetail,
    errors_pb2.LostRevisionsDetail,
    errors_pb2.LimitDetail,
    errors_pb2.LogRangeDetail,
    errors_pb2.TransactionDetail,
    errors_pb2.StaleReadSetDetail,
)

_CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed.

    Attributes:
        code: the gRPC status code by its standard name.
        message: the server's sentence, or gRPC's.
        reason: ``ErrorInfo.reason``, empty if the answer is not the server's own.
        metadata: ``ErrorInfo.metadata``.
        detail: the typed detail, if there is one.
        retry_delay: the delay that the server asks for, in seconds, or None.
    """

    code: str
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    detail: Message | None = None
    retry_delay: float | None = None


def read_failure(error: grpc.aio.AioRpcError) -> Failure:
    """Returns what a failed call tells. Details that cannot be read are left out, never raised."""
    code = error.code().name
    message = error.details() or code
    for name, value in error.trailing_metadata() or ():
        if name == _TRAILER and isinstance(value, bytes):
            return _with_details(code, message, value)
    return Failure(code, message)


def read_status(data: bytes) -> Failure:
    """Returns what a serialised ``google.rpc.Status`` tells, as answers on a stream carry it."""
    try:
        status = status_pb2.Status.FromString(data)
    except DecodeError:
        return Failure("INTERNAL", "the answer is neither a result nor a status")
    return _with_details(_CODES.get(status.code, "UNKNOWN"), status.message, data)


def _with_details(code: str, message: str, data: bytes) -> Failure:
    try:
        status = status_pb2.Status.FromString(data)
    except DecodeError:
        return Failure(code, message)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    reason, metadata, detail, delay = "", {}, None, None
    for packed in status.details:
        try:
            if packed.Is(info.DESCRIPTOR):
                packed.Unpack(info)
                if info.domain == DOMAIN:
                    reason, metadata = info.reason, dict(info.metadata)
            elif packed.Is(retry.DESCRIPTOR):
                packed.Unpack(retry)
                delay = max(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9, 0.0)
            else:
                for kind in _DETAILS:
                    if packed.Is(kind.DESCRIPTOR):
                        detail = kind()
                        packed.Unpack(detail)
        except DecodeError:
            continue
    return Failure(code, status.message or message, reason, metadata, detail, delay)
