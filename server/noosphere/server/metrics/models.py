"""What calls of models cost, as counters."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class PrometheusModelMetrics:
    """Keeps the counters; see :class:`~noosphere.server.ports.metrics.ModelMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "noosphere_model_calls",
            "Calls of models behind endpoints, by what they are for and how they ended.",
            ("purpose", "outcome"),
            registry=registry,
        )
        self._tokens = Counter(
            "noosphere_model_tokens",
            "Tokens that models behind endpoints read and wrote, as the endpoint says; an upper estimate where it does "
            "not.",
            ("purpose",),
            registry=registry,
        )

    def called(self, purpose: str, outcome: str, tokens: int) -> None:
        """Counts one call."""
        self._calls.labels(purpose, outcome).inc()
        self._tokens.labels(purpose).inc(tokens)
