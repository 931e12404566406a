"""Figures for Prometheus: what the services tell, and the page on which it is read."""

from .exporter import Exporter
from .models import PrometheusModelMetrics
from .sessions import PrometheusSessionMetrics

__all__ = ["Exporter", "PrometheusModelMetrics", "PrometheusSessionMetrics"]
