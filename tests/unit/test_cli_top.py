"""What `noosphere top` computes and draws: rates between two looks, frames that fit."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from noosphere.server.cli.shapes import ServerShape
from noosphere.server.cli.top_figures import figures, quantile
from noosphere.server.cli.top_frame import frame
from noosphere.v1 import admin_overview_pb2 as pb
from noosphere.v1 import admin_usage_pb2 as usage_pb


def overview(seconds: float, **fields: Any) -> pb.GetOverviewResponse:
    """Returns an overview of a server that has served so long."""
    found = pb.GetOverviewResponse(
        monotonic_ms=int(seconds * 1000), uptime_seconds=seconds, server_id="s", state_known=True, **fields
    )
    found.time.FromMilliseconds(int(seconds * 1000))
    return found


def used(name: str, calls: int, *, since_ms: int = 0, conflicts: int = 0) -> usage_pb.UsageEntry:
    entry = usage_pb.UsageEntry(name=name, call_count=calls, conflict_count=conflicts, refusals={"CONFLICT": conflicts})
    entry.start_time.FromMilliseconds(since_ms)
    return entry


def test_rates_are_those_between_two_looks() -> None:
    before = overview(100, call_count=1_000, agents=[used("a", 50, conflicts=2), used("b", 900)])
    after = overview(
        110, call_count=1_100, conflict_count=5, agents=[used("b", 910), used("a", 130, conflicts=7), used("c", 10_000)]
    )
    found = figures(after, before, 10)
    assert (found["window_seconds"], found["calls_per_second"], found["conflicts_per_second"]) == (10, 10, 0.5)
    # Somebody who has not been among the latest callers is known by their count, and not by a rate.
    assert [(one["name"], one["calls_per_second"]) for one in found["agents"]] == [("a", 8), ("b", 1), ("c", 0)]
    assert found["agents"][0]["conflicts_per_second"] == 0.5
    assert [one["name"] for one in figures(after, before, 1)["agents"]] == ["a"]


def test_a_name_that_came_between_two_looks_has_a_rate() -> None:
    found = figures(overview(110, agents=[used("new", 30, since_ms=105_000)]), overview(100), 10)
    assert found["agents"][0]["calls_per_second"] == 3


def test_a_server_that_was_restarted_begins_anew() -> None:
    after = overview(5, call_count=10)
    after.server_id = "another"
    found = figures(after, overview(100, call_count=1_000), 10)
    assert (found["window_seconds"], found["calls_per_second"]) == (5, 2)


@given(st.lists(st.integers(0, 1_000), min_size=4, max_size=4), st.floats(0.01, 1.0))
def test_a_quantile_is_the_first_bound_that_enough_do_not_exceed(counts: list[int], share: float) -> None:
    bounds = (0.1, 1.0, 10.0)
    found = quantile(bounds, counts, share)
    if not sum(counts):
        assert found is None
        return
    assert found in bounds
    below = sum(count for bound, count in zip(bounds, counts, strict=False) if bound <= found)
    assert below >= share * sum(counts) - 1e-6 or found == bounds[-1]


SERVERS: list[ServerShape] = [
    {
        "server_id": str(n),
        "address": f"10.0.0.{n}:7443",
        "version": "0.1.0",
        "start_time": None,
        "leader": n == 0,
        "answered": n == 1,
    }
    for n in range(5)
]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (60, 20)])
@pytest.mark.parametrize("trouble", ["", "no answer for 3 s: " + "cannot reach it " * 20])
def test_a_frame_fits_whatever_names_there_are(width: int, height: int, trouble: str) -> None:
    names = ["plain", "a" * 300, "b\n\x1b[2J[bold red]c[/]", "\u202e\u202exyz", "漢字" * 60, "e\u0301" * 100]
    agents = [used(f"{name}-{n}", 10 ** (n % 12)) for n, name in enumerate(names * 20)]
    now = overview(
        10.0**6,
        call_count=10**9,
        record_bytes=10**12,
        record_count=10**9,
        agents=agents,
        namespaces=agents,
        latencies=[pb.LatencyInfo(name="Get", bounds=[0.1], counts=[5, 5])],
        sessions=[
            pb.SessionClassHealth(session_class=f"{name}{n}", turn_count=10**6, context_utilization=0.5)
            for n, name in enumerate(names)
        ],
    )
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    console.print(frame(figures(now, None, 50), SERVERS, "x\n" * 100, trouble, width, height))
    lines = out.getvalue().rstrip("\n").split("\n")
    assert len(lines) <= height
    plain = "\n".join(lines)
    assert "\x1b[2J" not in plain
    assert "\u202e" not in plain
    assert "[bold red]" in plain or width < 80
    measured = Console(width=10_000)
    assert max(measured.measure(line).maximum for line in lines) <= width


def test_a_store_that_is_away_is_said() -> None:
    now = overview(1)
    now.state_known = False
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    console.print(frame(figures(now, None, 5), (), "x", "", 80, 24))
    text = console.export_text()
    assert "the store does not tell" in text
    assert "none has called" in text
