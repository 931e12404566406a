"""Which calls are traced, and what their spans say."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.tracing import tracing
from noosphere.server.rpc.gate import Gate
from noosphere.server.rpc.steps.tracing import TracingStep
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

METHOD = "/noosphere.v1.MemoryService/Get"
SAMPLED = f"00-{'a1' * 16}-{'b2' * 8}-01"
UNSAMPLED = f"00-{'a1' * 16}-{'b2' * 8}-00"


class Traced:
    """A method behind a gate that traces."""

    def __init__(self, ratio: float, chance: float) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.step = TracingStep(provider.get_tracer("test"), ratio, lambda: chance)
        self.was_traced = False

    async def call(self, traceparent: str = "", refusal: Exception | None = None) -> None:
        async def answer(request: pb.GetRequest) -> pb.GetResponse:
            trace = tracing.get()
            self.was_traced = trace is not None
            if trace is not None:
                with trace.span("store read"):
                    pass
            if refusal is not None:
                raise refusal
            return pb.GetResponse()

        request = pb.GetRequest(namespace="sessions/s", call=types_pb2.CallContext(traceparent=traceparent))
        await Gate((self.step,)).passing_inside(METHOD, answer)(request)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.mark.parametrize(
    ("ratio", "chance", "traceparent", "traced"),
    [
        (0.01, 0.5, "", False),
        (0.01, 0.009, "", True),
        (0.0, 0.0, "", False),
        (1.0, 0.999, "", True),
        (0.0, 0.5, SAMPLED, True),
        (1.0, 0.5, UNSAMPLED, False),
        # What is malformed says nothing.
        (0.0, 0.5, SAMPLED.upper(), False),
        (0.0, 0.5, SAMPLED[:-1], False),
        (0.0, 0.5, "ff" + SAMPLED[2:], False),
        (0.0, 0.5, SAMPLED + "\n", False),
        (1.0, 0.5, "0" * 10_000, True),
        # Zeros are nobody's ids.
        (0.0, 0.5, f"00-{'0' * 32}-{'b2' * 8}-01", False),
    ],
)
async def test_which_calls_are_traced(ratio: float, chance: float, traceparent: str, traced: bool) -> None:
    method = Traced(ratio, chance)
    await method.call(traceparent)
    assert method.was_traced == traced
    assert bool(method.spans) == traced


async def test_a_span_belongs_to_its_callers_and_has_those_of_the_store() -> None:
    method = Traced(0.0, 0.5)
    await method.call(SAMPLED)
    call, store = method.spans["noosphere.v1.MemoryService/Get"], method.spans["store read"]
    assert call.context is not None
    assert f"{call.context.trace_id:032x}" == "a1" * 16
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == "b2" * 8
    assert store.parent is not None
    assert store.parent.span_id == call.context.span_id
    assert dict(call.attributes or {}) == {
        "rpc.system": "grpc",
        "rpc.service": "noosphere.v1.MemoryService",
        "rpc.method": "Get",
        "noosphere.namespace_class": "sessions",
        "rpc.grpc.status_code": 0,
    }


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (Refusal(Reason.CONFLICT, "secret"), grpc.StatusCode.ABORTED, StatusCode.UNSET),
        (Refusal(Reason.ENGINE_UNAVAILABLE, "secret"), grpc.StatusCode.UNAVAILABLE, StatusCode.ERROR),
        (ValueError("secret"), grpc.StatusCode.INTERNAL, StatusCode.ERROR),
    ],
)
async def test_a_span_tells_how_a_call_ended_and_no_message(
    error: Exception, code: grpc.StatusCode, status: StatusCode
) -> None:
    method = Traced(1.0, 0.5)
    with pytest.raises(type(error)):
        await method.call("", error)
    span = method.spans["noosphere.v1.MemoryService/Get"]
    assert (span.attributes or {})["rpc.grpc.status_code"] == code.value[0]
    assert span.status.status_code is status
    assert "secret" not in span.to_json()
