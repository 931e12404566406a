"""Sends traces to a collector, in the background and within bounds: what finds no room is dropped, no call waits."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from . import __version__
from .config import Settings
from .drivers import StartupError
from .rpc.gate import Step

QUEUE_SPANS_MAX = 2_048
FLUSH_MS_MAX = 3_000
"""How long what was not sent yet may take at the end."""

EXPORT_SECONDS_MAX = 5


@contextlib.asynccontextmanager
async def traced(settings: Settings, server_id: str) -> AsyncIterator[tuple[Step, ...]]:
    """Opens the way to the collector; afterwards sends what waits.

    Args:
        settings: the configuration.
        server_id: tells this life of this server from others.

    Yields:
        The step that traces calls; none, if no collector is configured.

    Raises:
        StartupError: OpenTelemetry is not installed.
    """
    if not settings.trace_endpoint:
        yield ()
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise StartupError(f"trace_endpoint needs another package: pip install 'noosphere[otel]' ({error})") from error
    from .rpc.steps.tracing import TracingStep

    resource = Resource.create(
        {"service.name": "noosphere", "service.version": __version__, "service.instance.id": server_id}
    )
    # Which calls are traced is decided before anything of it is made.
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=settings.trace_endpoint, timeout=EXPORT_SECONDS_MAX)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS_MAX))
    tracer = provider.get_tracer("noosphere.server", __version__)
    try:
        yield (TracingStep(tracer, settings.trace_sample_ratio, random.random),)
    finally:
        await asyncio.to_thread(provider.force_flush, FLUSH_MS_MAX)
        await asyncio.to_thread(provider.shutdown)
