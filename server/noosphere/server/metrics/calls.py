"""Calls as figures: how many, how they ended, how long they took; by method, never by caller."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from .latency import Latency


class _Method:
    """The figures of one method."""

    __slots__ = ("codes", "latency", "open", "replayed", "short")

    def __init__(self, method: str) -> None:
        self.short = method.rpartition(".")[2]
        self.codes: dict[str, int] = {}
        self.latency = Latency()
        self.open = 0
        self.replayed = 0


class PrometheusCallMetrics(Collector):
    """Keeps the figures; see :class:`~noosphere.server.ports.metrics.CallMetrics`.

    Counts are plain numbers: those of a client library cost several times as much, at every call. There are as many
    series as methods and reasons.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._methods: dict[str, _Method] = {}
        self._reasons: dict[str, int] = {}
        registry.register(self)

    def begun(self, method: str, *, streams: bool) -> None:
        """Hears that a call has come."""
        (self._methods.get(method) or self._new(method)).open += 1

    def ended(
        self, method: str, code: str, reason: str, seconds: float, *, streams: bool, replayed: bool = False
    ) -> None:
        """Hears how one has ended; how long a stream lasted says nothing, and is not kept."""
        figures = self._methods.get(method) or self._new(method)
        figures.open -= 1
        figures.codes[code] = figures.codes.get(code, 0) + 1
        if not streams:
            figures.latency.add(seconds)
        if reason:
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
        if replayed:
            figures.replayed += 1

    @property
    def call_count(self) -> int:
        """Calls that have ended."""
        return sum(sum(figures.codes.values()) for figures in self._methods.values())

    @property
    def refusal_count(self) -> int:
        """Calls refused, for whatever reason."""
        return sum(self._reasons.values())

    @property
    def open_count(self) -> int:
        """Calls under way."""
        return sum(figures.open for figures in self._methods.values())

    def latency_of(self, method: str) -> Latency:
        """Returns how long calls of a method took."""
        found = self._methods.get(method)
        return found.latency if found is not None else Latency()

    def collect(self) -> Iterator[Metric]:
        """Yields the figures as they are."""
        calls = CounterMetricFamily(
            "noosphere_rpc_calls", "Calls that have ended, by gRPC's code.", labels=("method", "code")
        )
        took = HistogramMetricFamily(
            "noosphere_rpc_duration_seconds", "How long calls took that answer once.", labels=("method",)
        )
        under_way = GaugeMetricFamily("noosphere_rpc_open", "Calls and streams under way.", labels=("method",))
        replayed = CounterMetricFamily(
            "noosphere_rpc_replays",
            "Retries of calls that had been applied before: they got the same answer again.",
            labels=("method",),
        )
        refused = CounterMetricFamily("noosphere_rpc_refusals", "Calls refused, by reason.", labels=("reason",))
        for figures in list(self._methods.values()):
            for code, count in list(figures.codes.items()):
                calls.add_metric((figures.short, code), count)
            if figures.latency.count:
                took.add_metric((figures.short,), figures.latency.buckets(), figures.latency.sum_seconds)
            under_way.add_metric((figures.short,), figures.open)
            if figures.replayed:
                replayed.add_metric((figures.short,), figures.replayed)
        for reason, count in list(self._reasons.items()):
            refused.add_metric((reason,), count)
        yield from (calls, took, under_way, replayed, refused)

    def _new(self, method: str) -> _Method:
        # Only methods of ours pass the gate, so nobody can make names up.
        figures = self._methods[method] = _Method(method)
        return figures
