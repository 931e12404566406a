"""How long what stands behind ports takes: stores, queue, coordinator, embedder."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from .latency import Latency


class PrometheusPortMetrics(Collector):
    """Keeps the figures; see :class:`~noosphere.server.ports.metrics.PortMetrics`. As many series as operations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._latencies: dict[tuple[str, str], Latency] = {}
        self._failed: dict[tuple[str, str], int] = {}
        registry.register(self)

    def took(self, port: str, operation: str, seconds: float, *, failed: bool) -> None:
        """Takes one operation."""
        key = (port, operation)
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._latencies[key] = Latency()
        latency.add(seconds)
        if failed:
            self._failed[key] = self._failed.get(key, 0) + 1

    def latency_of(self, port: str, operation: str) -> Latency:
        """Returns how long an operation took."""
        return self._latencies.get((port, operation)) or Latency()

    def collect(self) -> Iterator[Metric]:
        """Yields the figures as they are."""
        took = HistogramMetricFamily(
            "noosphere_port_duration_seconds",
            "How long operations of stores, queue, coordinator and embedder took.",
            labels=("port", "operation"),
        )
        for key, latency in list(self._latencies.items()):
            took.add_metric(key, latency.buckets(), latency.sum_seconds)
        yield took
        failed = CounterMetricFamily(
            "noosphere_port_failures", "Operations of these that failed.", labels=("port", "operation")
        )
        for key, count in list(self._failed.items()):
            failed.add_metric(key, count)
        yield failed
