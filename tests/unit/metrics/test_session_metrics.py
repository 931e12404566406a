"""Figures for Prometheus: few series, readable over HTTP, and alerts that name what there is."""

from __future__ import annotations

import asyncio
import re
import threading
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from noosphere.consistency import ConflictPolicy, Reason, Refusal
from noosphere.server.auditing import audited
from noosphere.server.config import Settings
from noosphere.server.metrics import (
    Exporter,
    PrometheusCallMetrics,
    PrometheusMemoryMetrics,
    PrometheusModelMetrics,
    PrometheusPortMetrics,
    PrometheusSessionMetrics,
    PrometheusState,
    State,
)
from noosphere.server.metrics.latency import BOUNDS, Latency
from noosphere.server.metrics.memory import namespace_class
from noosphere.server.metrics.sessions import CLASSES_MAX, OTHER
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.transitions.health import Metric

ALERTS = Path(__file__).parents[3] / "k8s" / "components" / "servicemonitor" / "alerts.yaml"
DASHBOARD = ALERTS.with_name("dashboard.json")


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


def test_the_health_of_a_class_is_that_of_its_turns(registry: CollectorRegistry) -> None:
    metrics = PrometheusSessionMetrics(registry)
    for growth in (-0.5, 0.1, 0.1):
        metrics.observe("research", Metric.TOKEN_GROWTH.value, growth)
    metrics.observe("", Metric.STATE_LIFESPAN.value, 7)
    health = metrics.health()
    assert health["research"].turns == 3
    assert health["research"].means == {"token_growth": pytest.approx(-0.1)}
    assert health["default"].means == {"state_lifespan": 7}


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


def everything(registry: CollectorRegistry) -> str:
    """Returns the page of a server on which everything has happened once."""
    sessions = PrometheusSessionMetrics(registry)
    for metric in Metric:
        sessions.observe("", metric.value, 0.5)
    sessions.decided("", "archive")
    models = PrometheusModelMetrics(registry)
    models.called("embedder", "answered", 3)
    calls = PrometheusCallMetrics(registry)
    for method in ("Get", "Put"):
        calls.begun(f"/noosphere.v1.MemoryService/{method}", streams=False)
        calls.ended(f"/noosphere.v1.MemoryService/{method}", "OK", "CONFLICT", 0.01, streams=False, replayed=True)
    memory = PrometheusMemoryMetrics(registry)
    memory.conflict("shared/x", ConflictPolicy.REJECT, "refused")
    memory.told(5)
    PrometheusPortMetrics(registry).took("store", "commit", 0.001, failed=True)
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    try:
        PrometheusState(registry, _state, loop)
        ProcessCollector(registry=registry)
        return generate_latest(registry).decode()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()


async def _state() -> State:
    return State(agents=3, jobs_dead=2, oldest_job_seconds=1.5, epoch=7)


def test_alerts_and_dashboard_name_series_and_bounds_that_exist(registry: CollectorRegistry, tmp_path: Path) -> None:
    with audited(Settings(audit_log=str(tmp_path / "audit.jsonl")), SystemClock(), registry):
        text = everything(registry)
    for file in (ALERTS, DASHBOARD):
        shown = file.read_text().replace('\\"', '"')
        named = set(re.findall(r"(?:noosphere|process)_\w+", shown))
        assert len(named) > 15
        for name in named:
            assert re.search(rf"^(# TYPE )?{name}(\{{| )", text, re.MULTILINE), f"{file.name}: there is no {name}"
        for name, labels in re.findall(r"(noosphere_\w+)\{([^}]*)\}", shown):
            for label, bound in re.findall(r'(\w+)="([^"]+)"', labels):
                values = re.findall(rf'^{name}\{{[^}}]*\b{label}="([^"]+)"', text, re.MULTILINE)
                # These depend on what has happened; bounds and states do not.
                assert values, f"{name} has no label {label}"
                if label in {"le", "state", "method", "outcome"}:
                    assert bound in values, f"{name} is never with {label}={bound}"


def test_state_is_told_as_it_is(registry: CollectorRegistry) -> None:
    text = everything(registry)
    assert "noosphere_agents 3.0" in text
    assert 'noosphere_fact_jobs{state="dead"} 2.0' in text
    assert "noosphere_fact_job_oldest_seconds 1.5" in text
    assert "noosphere_epoch 7.0" in text


def test_while_the_store_is_away_other_figures_are_shown(registry: CollectorRegistry) -> None:
    async def away() -> State:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis does not answer")

    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    try:
        PrometheusState(registry, away, loop)
        calls = PrometheusCallMetrics(registry)
        calls.begun("/noosphere.v1.MemoryService/Get", streams=False)
        text = generate_latest(registry).decode()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()
    assert "noosphere_state_known 0.0" in text
    assert "noosphere_agents" not in text
    assert 'noosphere_rpc_open{method="MemoryService/Get"} 1.0' in text


@given(st.lists(st.floats(0, 100, allow_nan=False), max_size=50))
def test_durations_are_counted_in_the_bucket_that_they_fall_into(seconds: list[float]) -> None:
    latency = Latency()
    for one in seconds:
        latency.add(one)
    for bound, count in latency.buckets():
        assert count == sum(one <= float(bound) for one in seconds)
    assert latency.count == len(seconds)
    assert sum(latency.counts) == len(seconds)
    assert len(latency.counts) == len(BOUNDS) + 1


def test_kinds_of_namespaces_are_few() -> None:
    names = ("agents/a", "sessions/s/x", "shared/", "facts/user/1", "shared", "", "Shared/x", "else/shared/x")
    assert [namespace_class(name) for name in names] == ["agents", "sessions", "shared", "facts", *["other"] * 4]
