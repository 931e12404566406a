"""The recorder: one call for all attempts under one id, and doubt where there is doubt.

What it makes of each request and reply is tested with the real client and server in tests/e2e.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore] # ships no py.typed

from noosphere.server.checking import HistoryWriter, Outcome, Recorder, WriteKind, read_history, value_id
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

Answer = Any


class Channel:
    """Gives one scripted answer after the other, through the recorder as gRPC would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        clock = itertools.count(1_000, 10)
        self.writer = HistoryWriter(path, complete=["shared/x"])
        self.recorder = Recorder(self.writer, "p", clock_ns=lambda: next(clock))

    async def send(self, request: Any, answer: Answer) -> Any:
        async def continuation(_details: object, _request: object) -> Awaitable[Any]:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
            return future

        rpc = await self.recorder.intercept_unary_unary(continuation, None, request)
        return await rpc

    def history(self) -> Any:
        self.writer.close()
        return read_history(self.path)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    channel = Channel(tmp_path / "journal")
    yield channel
    channel.writer.close()


def failure(code: grpc.StatusCode, reason: str = "", head: int = 0) -> grpc.aio.AioRpcError:
    status = status_pb2.Status(message="no")
    for detail in (
        error_details_pb2.ErrorInfo(reason=reason, domain="noosphere"),
        errors_pb2.ConflictDetail(head=head),
    ):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    trailer = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailer, details="no")


def put(sequence: int, data: bytes = b"1", **precondition: Any) -> ms.PutRequest:
    call = pb.CallContext(
        actor=pb.Actor(agent_id="a", incarnation=1),
        request_id=pb.RequestId(sequence=pb.ClientSequence(sequence=sequence)),
    )
    operation = ms.PutOperation(key="k", value=pb.Value(data=data), precondition=pb.Precondition(**precondition))
    return ms.PutRequest(namespace="shared/x", put=operation, call=call)


def applied(revision: int) -> ms.PutResponse:
    context = pb.CausalContext(prefix=revision)
    return ms.PutResponse(applied=pb.Applied(revision=revision, version=revision, context=context), head=revision)


async def test_an_answered_call_is_recorded_with_its_times(channel: Channel) -> None:
    await channel.send(put(1), applied(7))
    [call] = channel.history().calls
    assert (call.process, call.call, call.start_ns, call.reply.return_ns) == ("p", 1, 1_000, 1_010)
    assert call.reply.outcome is Outcome.OK
    assert (call.reply.revision, call.reply.head) == (7, 7)
    assert call.writes[0].kind is WriteKind.PUT
    assert call.writes[0].value == value_id(b"1")


async def test_attempts_under_one_id_are_one_call(channel: Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.send(put(1), failure(grpc.StatusCode.UNAVAILABLE))
    await channel.send(put(1), applied(7))
    await channel.send(put(2), applied(8))
    first, second = channel.history().calls
    assert first.start_ns < first.reply.return_ns < second.start_ns
    assert (first.reply.revision, second.reply.revision) == (7, 8)


async def test_a_call_that_was_never_answered_is_unknown(channel: Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.send(put(1), failure(grpc.StatusCode.DEADLINE_EXCEEDED))
    with pytest.raises(asyncio.CancelledError):
        await channel.send(put(2), asyncio.CancelledError())
    assert [call.outcome for call in channel.history().calls] == [Outcome.UNKNOWN, Outcome.UNKNOWN]


async def test_a_refusal_is_recorded_with_reason_and_head(channel: Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.send(put(1), failure(grpc.StatusCode.ABORTED, "CONFLICT", 9))
    [call] = channel.history().calls
    assert call.outcome is Outcome.REFUSED
    assert (call.reply.reason, call.reply.head) == ("CONFLICT", 9)


async def test_a_refusal_after_a_doubtful_attempt_is_unknown(channel: Channel) -> None:
    for code, reason in ((grpc.StatusCode.UNAVAILABLE, ""), (grpc.StatusCode.ABORTED, "CONFLICT")):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.send(put(1), failure(code, reason))
    [call] = channel.history().calls
    assert call.outcome is Outcome.UNKNOWN


async def test_a_refusal_for_want_of_room_leaves_no_doubt(channel: Channel) -> None:
    for code, reason in ((grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT"), (grpc.StatusCode.ABORTED, "CONFLICT")):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.send(put(1), failure(code, reason))
    [call] = channel.history().calls
    assert call.outcome is Outcome.REFUSED


async def test_a_write_names_the_values_that_its_writer_had_read(channel: Channel) -> None:
    context = pb.CausalContext(prefix=5)
    live = pb.LiveValue(dot=5, value=pb.Value(data=b"seen"))
    record = pb.Record(key="k", version=5, context=context, values=[live])
    await channel.send(ms.GetRequest(namespace="shared/x", key="k"), ms.GetResponse(record=record, head=6))
    await channel.send(put(1, b"2", context=context), applied(7))
    await channel.send(put(2, b"3", expected_version=7), applied(8))
    await channel.send(put(3, b"4", context=pb.CausalContext(prefix=3)), applied(9))
    await channel.send(put(4, b"5", expected_version=0), applied(10))
    bases = [call.writes[0].base for call in channel.history().calls[1:]]
    assert bases == [(value_id(b"seen"),), (value_id(b"2"),), None, ()]


def _requests() -> list[tuple[str, Callable[[], Any], Any]]:
    return [
        ("watch", lambda: ms.WatchRequest(namespace="shared/x"), ms.WatchResponse()),
        ("open", lambda: ms.OpenAgentRequest(agent_id="a"), ms.OpenAgentResponse()),
        ("ensure", lambda: ms.EnsureNamespaceRequest(namespace="shared/x"), ms.EnsureNamespaceResponse()),
        ("history", lambda: ms.ListHistoryRequest(namespace="shared/x"), ms.ListHistoryResponse()),
    ]


@pytest.mark.parametrize(("name", "request_of", "reply"), _requests(), ids=[name for name, _, _ in _requests()])
async def test_calls_that_are_no_operations_on_records_pass_unrecorded(
    channel: Channel, name: str, request_of: Callable[[], Any], reply: Any
) -> None:
    assert await channel.send(request_of(), reply) is reply
    assert channel.history().calls == ()
