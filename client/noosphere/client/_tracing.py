"""Traces of calls, where the program that uses the client traces with OpenTelemetry; without it nothing is done.

The client needs no package for that: a program that traces has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

_PACKAGE = "opentelemetry.trace"
_NOTHING: AbstractContextManager[None] = nullcontext()


def traced(request: Any) -> AbstractContextManager[None]:
    """Returns a block in which a call is made; the caller's trace, if there is one, has a span for it.

    Args:
        request: tells the server of the trace, if it has a field ``call``.
    """
    trace = sys.modules.get(_PACKAGE)
    # While it is being loaded by another thread it lacks what comes last.
    if trace is None or not hasattr(trace, "get_current_span") or not hasattr(trace, "get_tracer"):
        return _NOTHING
    if not trace.get_current_span().get_span_context().is_valid:
        return _NOTHING
    return _span(trace, request)


@contextmanager
def _span(trace: Any, request: Any) -> Iterator[None]:
    name = type(request).__name__.removesuffix("Request")
    tracer = trace.get_tracer("noosphere.client")
    # Messages of errors may hold names, which are nobody's business here.
    options = {"kind": trace.SpanKind.CLIENT, "record_exception": False, "set_status_on_exception": False}
    with tracer.start_as_current_span(f"noosphere {name}", **options) as span:
        found = span.get_span_context()
        fields = getattr(getattr(request, "DESCRIPTOR", None), "fields_by_name", {})
        if "call" in fields:
            request.call.traceparent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
