"""Figures for Prometheus: what the services tell, and the page on which it is read."""

from .exporter import Exporter
from .sessions import PrometheusSessionMetrics

__all__ = ["Exporter", "PrometheusSessionMetrics"]
