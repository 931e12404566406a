"""What happens in shared memory, as figures: conflicts by kind of namespace, and how far watchers are behind."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from noosphere.consistency import ConflictPolicy

from .latency import Latency

CLASSES = ("agents", "facts", "sessions", "shared")
OTHER = "other"
_LAG_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0)


def namespace_class(namespace: str) -> str:
    """Returns of which kind a namespace is: one of few, whatever names there are."""
    first, slash, _ = namespace.partition("/")
    return first if slash and first in CLASSES else OTHER


class PrometheusMemoryMetrics(Collector):
    """Keeps the figures; see :class:`~noosphere.server.ports.metrics.MemoryMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._conflicts: dict[tuple[str, ConflictPolicy, str], int] = {}
        self.lag = Latency(_LAG_BOUNDS)
        registry.register(self)

    def conflict(self, namespace: str, policy: ConflictPolicy, outcome: str) -> None:
        """Counts one."""
        key = (namespace_class(namespace), policy, outcome)
        self._conflicts[key] = self._conflicts.get(key, 0) + 1

    def told(self, lag_ms: int) -> None:
        """Takes how old a change was."""
        self.lag.add(max(0, lag_ms) / 1000)

    @property
    def conflict_count(self) -> int:
        """Conflicts of all kinds."""
        return sum(self._conflicts.values())

    def collect(self) -> Iterator[Metric]:
        """Yields the figures as they are."""
        conflicts = CounterMetricFamily(
            "noosphere_conflicts",
            "Writes that had not seen all that they would have replaced, by kind of namespace, the rule that decided, "
            "and what became of them.",
            labels=("class", "policy", "outcome"),
        )
        for (kind, policy, outcome), count in list(self._conflicts.items()):
            conflicts.add_metric((kind, policy.name.lower(), outcome), count)
        yield conflicts
        lag = HistogramMetricFamily(
            "noosphere_watch_lag_seconds", "How old changes were when they were handed to watchers."
        )
        lag.add_metric((), self.lag.buckets(), self.lag.sum_seconds)
        yield lag
