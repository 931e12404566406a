"""Figures for Prometheus: few series, readable over HTTP, and alerts that name what there is."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from noosphere.server.metrics import Exporter, PrometheusSessionMetrics
from noosphere.server.metrics.sessions import CLASSES_MAX, OTHER
from noosphere.server.transitions.health import Metric

ALERTS = Path(__file__).parents[3] / "docs" / "prometheus" / "alerts.yml"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_every_figure_has_a_histogram_by_class(registry: CollectorRegistry) -> None:
    metrics = PrometheusSessionMetrics(registry)
    for metric in Metric:
        metrics.observe("research", metric.value, 0.5)
    metrics.decided("", "archive")
    text = generate_latest(registry).decode()
    for name in ("context_utilization_ratio", "state_hit_ratio", "state_lifespan_turns", "token_growth_ratio"):
        assert f'noosphere_session_{name}_count{{class="research"}} 1.0' in text
    assert 'noosphere_session_transitions_total{action="archive",class="default"} 1.0' in text


def test_the_number_of_classes_is_bounded(registry: CollectorRegistry) -> None:
    metrics = PrometheusSessionMetrics(registry)
    for n in range(CLASSES_MAX + 10):
        metrics.observe(f"class-{n}", Metric.TOKEN_GROWTH.value, 0.0)
    found = set(re.findall(r'class="([^"]+)"', generate_latest(registry).decode()))
    assert len(found) == CLASSES_MAX + 1
    assert OTHER in found


def test_the_page_is_served_and_closed(registry: CollectorRegistry) -> None:
    PrometheusSessionMetrics(registry).observe("", Metric.TOKEN_GROWTH.value, 0.1)
    exporter = Exporter(registry)
    port = exporter.start("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            assert b"noosphere_session_token_growth_ratio" in page.read()
    finally:
        exporter.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_the_alerts_name_series_and_bounds_that_exist(registry: CollectorRegistry) -> None:
    metrics = PrometheusSessionMetrics(registry)
    for metric in Metric:
        metrics.observe("", metric.value, 0.5)
    text = generate_latest(registry).decode()
    alerts = ALERTS.read_text()
    named = set(re.findall(r"noosphere_\w+", alerts))
    assert len(named) == 8, "a _bucket and a _count of each figure"
    for name in named:
        assert f"{name}{{" in text
    for name, bound in re.findall(r'(noosphere_\w+_bucket)\{le="([^"]+)"\}', alerts):
        assert f'{name}{{class="default",le="{bound}"}}' in text, f"{name} has no bucket {bound}"
