"""OpenTelemetry traces of calls: a few of them, or those whose caller traces them already.

A span is named by its method. What it tells beside that are kinds: the code, the reason of a refusal, the kind of
namespace; never a name of an agent, a namespace or a key, which may be people's, and never a value or a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import grpc

from ...ports.tracing import tracing
from ..gate import Rpc
from ..requests import namespace_of, traceparent_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

TRACEPARENT = "traceparent"
_FORM = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_NOTE = "span"
_CLASSES = frozenset({"agents", "facts", "sessions", "shared"})
_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Codes that are a server's fault, as OpenTelemetry's conventions have it; refusals are answers."""


class _Trace:
    """What services are given of a sampled trace, for as long as its call is under way."""

    __slots__ = ("_rpc", "_tracer")

    def __init__(self, tracer: Tracer, rpc: Rpc) -> None:
        self._tracer = tracer
        self._rpc = rpc

    def span(self, name: str) -> AbstractContextManager[object]:
        if self._rpc.ended:
            # Work that a call has begun and that outlives it would go on telling for ever.
            return nullcontext()
        # Messages of errors hold names and, in a bug's case, values.
        return self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=True)


class TracingStep:
    """See the module. The first of all steps.

    Args:
        tracer: makes spans, all of which are exported.
        ratio: which share of calls is traced whose caller does not trace them, 0 to 1.
        chance: returns a number from 0 up to 1.
    """

    def __init__(self, tracer: Tracer, ratio: float, chance: Callable[[], float]) -> None:
        # Only a server that traces has the package.
        from opentelemetry import context, trace
        from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

        self._tracer = tracer
        self._ratio = ratio
        self._chance = chance
        self._attach = context.attach
        self._with = trace.set_span_in_context
        self._server = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)
        self._none = context.Context()
        self._remote: Callable[[int, int], Any] = lambda trace_id, span_id: trace.set_span_in_context(
            NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))), self._none
        )

    def begin(self, rpc: Rpc) -> None:
        """Begins a span for a call that is to be traced."""
        found = _FORM.fullmatch(_parent_of(rpc))
        if found is None:
            if self._chance() >= self._ratio:
                return
            parent = None
        elif not int(found[3], 16) & 1:
            # Its caller has decided that it is not.
            return
        else:
            parent = self._remote(int(found[1], 16), int(found[2], 16))
        service, _, method = rpc.method[1:].partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        if rpc.message is not None and (kind := namespace_of(rpc.message).partition("/")[0]):
            attributes["noosphere.namespace_class"] = kind if kind in _CLASSES else "other"
        # Not the trace of whoever opened the stream: that of this call, or none.
        span = self._tracer.start_span(
            rpc.method[1:], self._none if parent is None else parent, kind=self._server, attributes=attributes
        )
        rpc.notes[_NOTE] = span
        if not rpc.streams and rpc.message is not None:
            # What a stream does as long as it lasts would be a trace without end.
            self._attach(self._with(span))
            tracing.set(_Trace(self._tracer, rpc))

    def end(self, rpc: Rpc) -> None:
        """Ends the span."""
        span: Span | None = rpc.notes.get(_NOTE)
        if span is None:
            return
        span.set_attribute("rpc.grpc.status_code", rpc.code.value[0])
        if rpc.refusal is not None:
            span.set_attribute("noosphere.reason", rpc.refusal.reason.value)
        if rpc.code in _FAULTS:
            span.set_status(self._error)
        span.end()


def _parent_of(rpc: Rpc) -> str:
    """Returns what a call says of its caller's trace; "" if nothing."""
    if rpc.message is not None and (found := traceparent_of(rpc.message)):
        return found
    if rpc.context is None or rpc.parent is not None:
        return ""
    for name, value in rpc.context.invocation_metadata() or ():
        if name == TRACEPARENT:
            return value if isinstance(value, str) else ""
    return ""
