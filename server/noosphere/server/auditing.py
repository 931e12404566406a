"""Opens the audit log that is configured, and what notes calls in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence

from google.protobuf.descriptor import ServiceDescriptor
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from noosphere.v1 import (
    admin_service_pb2,
    context_service_pb2,
    coordination_service_pb2,
    fact_service_pb2,
    memory_service_pb2,
    session_service_pb2,
)

from .config import Settings
from .config.auditing import patterns
from .drivers import StartupError
from .ports.runtime import Clock
from .rpc.steps.audit import AuditStep
from .security.audit import AuditLog

_FILES = (
    memory_service_pb2,
    admin_service_pb2,
    session_service_pb2,
    context_service_pb2,
    fact_service_pb2,
    coordination_service_pb2,
)


def services() -> Sequence[ServiceDescriptor]:
    """Returns the services of ours."""
    return [service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()]


@contextlib.contextmanager
def audited(settings: Settings, clock: Clock, registry: CollectorRegistry) -> Iterator[tuple[AuditStep, ...]]:
    """Opens the audit log; afterwards writes what waits, and closes it.

    Args:
        settings: the configuration.
        clock: the time.
        registry: the figures, among which is how much was lost.

    Yields:
        The step that notes calls; none, if no log is configured.

    Raises:
        StartupError: it cannot be opened.
    """
    if not settings.audit_log:
        yield ()
        return
    try:
        audit = AuditLog(
            settings.audit_log,
            wall_ms=clock.wall_ms,
            bytes_max=settings.audit_file_mib_max << 20,
            files_max=settings.audit_files_max,
        )
    except OSError as error:
        raise StartupError(f"cannot open the audit log {settings.audit_log}: {error.strerror}") from None
    registry.register(_Figures(audit))
    step = AuditStep(
        audit,
        services(),
        wall_ms=clock.wall_ms,
        share=settings.audit_reads,
        full=patterns(settings.audit_reads_full),
        required=settings.audit_required,
        rng=random.random,
    )
    try:
        yield (step,)
    finally:
        audit.close()


class _Figures(Collector):
    """How the audit log fares."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "noosphere_audit_lost", "Entries that found no room on their way to the audit log.", value=self._audit.lost
        )
        yield GaugeMetricFamily(
            "noosphere_audit_failing",
            "Whether the audit log cannot be written at present.",
            value=int(self._audit.failing),
        )
