"""Figures for Prometheus: what the services tell, and the page on which it is read."""

from .calls import PrometheusCallMetrics
from .exporter import Exporter
from .measured import measured
from .memory import PrometheusMemoryMetrics
from .models import PrometheusModelMetrics
from .overview import Overview
from .ports import PrometheusPortMetrics
from .sessions import PrometheusSessionMetrics
from .state import PrometheusState, State

__all__ = [
    "Exporter",
    "Overview",
    "PrometheusCallMetrics",
    "PrometheusMemoryMetrics",
    "PrometheusModelMetrics",
    "PrometheusPortMetrics",
    "PrometheusSessionMetrics",
    "PrometheusState",
    "State",
    "measured",
]
