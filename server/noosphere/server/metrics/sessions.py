"""The health of sessions as histograms by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

CLASSES_MAX = 32
OTHER = "other"
"""The class of sessions whose own would be one too many."""

UNNAMED = "default"
_BUCKETS = {
    "context_utilization": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
    "state_hit_rate": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "state_lifespan": (1, 2, 3, 5, 8, 11, 15, 20, 30, 50, 100),
    "token_growth": (-0.1, -0.05, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
}
_NAMES = {
    "context_utilization": ("context_utilization_ratio", "Tokens used by contexts over tokens allowed."),
    "state_hit_rate": ("state_hit_ratio", "Entries that contexts recalled and models used, over those recalled."),
    "state_lifespan": ("state_lifespan_turns", "Mean life of items that have left working memory, in turns."),
    "token_growth": ("token_growth_ratio", "Growth of contexts per turn, as a share."),
}


class ClassHealth(NamedTuple):
    """How sessions of one class have fared: means since the start, None of what is not known.

    Attributes:
        turns: of which something is known.
        means: each figure's mean, by its metric.
    """

    turns: int
    means: Mapping[str, float]


class PrometheusSessionMetrics:
    """Keeps the histograms; see :class:`~noosphere.server.ports.metrics.SessionMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._histograms = {
            metric: Histogram(
                f"noosphere_session_{name}",
                f"{text} One observation at the end of each turn.",
                ("class",),
                buckets=_BUCKETS[metric],
                registry=registry,
            )
            for metric, (name, text) in _NAMES.items()
        }
        self._decisions = Counter(
            "noosphere_session_transitions",
            "Decisions of the controller that changed something.",
            ("class", "action"),
            registry=registry,
        )
        self._classes: set[str] = set()
        self._fared: dict[str, dict[str, tuple[int, float]]] = {}

    def observe(self, session_class: str, metric: str, value: float) -> None:
        """Takes one figure."""
        name = self._class(session_class)
        self._histograms[metric].labels(name).observe(value)
        # Histograms keep no sum of what may be negative.
        figures = self._fared.setdefault(name, {})
        count, total = figures.get(metric, (0, 0.0))
        figures[metric] = (count + 1, total + value)

    def decided(self, session_class: str, action: str) -> None:
        """Counts one decision."""
        self._decisions.labels(self._class(session_class), action).inc()

    def health(self) -> dict[str, ClassHealth]:
        """Returns how sessions have fared, by class."""
        found: dict[str, ClassHealth] = {}
        for name, figures in sorted(self._fared.items()):
            means = {metric: total / count for metric, (count, total) in figures.items()}
            found[name] = ClassHealth(max(count for count, _ in figures.values()), means)
        return found

    def _class(self, session_class: str) -> str:
        name = session_class or UNNAMED
        if name not in self._classes:
            if len(self._classes) >= CLASSES_MAX:
                return OTHER
            self._classes.add(name)
        return name
