"""What a refusal is sent as."""

from __future__ import annotations

from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore] # ships no py.typed

from noosphere.server.rpc import errors


def test_the_same_refusal_is_the_same_bytes() -> None:
    """protobuf writes a map's entries in an order that differs from process to process, unless it is told not to."""
    info = error_details_pb2.ErrorInfo(reason="STALE_FENCE", metadata={f"key-{n}": str(n) for n in range(20)})
    status = status_pb2.Status()
    errors._pack(status, info)
    assert status.details[0].value == info.SerializeToString(deterministic=True)
