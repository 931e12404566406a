"""The harness finds what is planted, finds nothing where nothing is, and counts nothing that may be right."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.lost_updates import scenarios
from tests.bench.lost_updates.gates import gates
from tests.bench.lost_updates.oracle import Played, judge
from tests.bench.lost_updates.run import Clock, Comparison, compare
from tests.bench.lost_updates.scenarios import Director, Sizes
from tests.bench.peers.adapter import Place
from tests.bench.peers.catalogue import Variant
from tests.bench.peers.group import Group
from tests.bench.peers.sites import Site

AGENTS = [f"agent-{number}" for number in range(4)]
SIZES = Sizes(edits=3, notes=3, tasks=1, decisions=4, rounds=1, endured=4, scenario_seconds_max=60.0)


def variant(kind: str) -> Variant:
    adapter = f"tests.bench.lost_updates.planted:{kind}"
    return Variant("planted", "planted", "best", adapter, "", "nothing", 1, "none", "as a test says")


async def played(kind: str, names: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(scenarios, "_STOPPED_S", 0.01)
    monkeypatch.setattr(scenarios, "_STOP_AFTER_S", 0.0)
    place = Place(str(folder), "")
    found = {}
    async with Group(variant(kind), place, AGENTS, folder) as group:
        director = Director(group, Site(place), SIZES, seed=1, think_ms=2.0)
        for name in names:
            found[name] = judge("planted", await director.play(name))
    return found


async def test_what_is_planted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await played("Lossy", ["plan", "notes", "tasks"], tmp_path, monkeypatch)
    # One change of each agent was acknowledged and thrown away.
    assert (found["plan"]["commits"], found["plan"]["lost"]) == (12, 4)
    assert (found["notes"]["commits"], found["notes"]["lost"]) == (12, 4)
    # Every agent has got some task although another had it, so there are more completions than tasks.
    assert found["tasks"]["completions_per_task"] > 1.0
    assert found["tasks"]["duplicates"] == found["tasks"]["starts"] - 4 > 0
    missed = {gate["what"] for gate in gates(list(found.values())) if not gate["ok"]}
    assert {"lost updates", "completions per task"} <= missed


async def test_nothing_is_found_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await played("Sound", ["plan", "notes", "tasks", "decide", "late"], tmp_path, monkeypatch)
    for run in found.values():
        assert (run["lost"], run["stale"], run["duplicates"], run["failed"], run["not_run"]) == (0, 0, 0, 0, "")
    assert found["plan"]["commits"] == found["notes"]["commits"] == 12
    assert found["plan"]["model_calls_per_commit"] >= 1.0
    assert found["tasks"]["completions_per_task"] == 1.0
    assert found["decide"]["commits"] == 12
    assert [gate for gate in gates(list(found.values())) if not gate["ok"]] == []


async def test_what_dies_with_its_process_is_lost_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = (await played("Sound", ["failover"], tmp_path, monkeypatch))["failover"]
    assert run["lost"] == run["silent"] > 0
    assert run["signalled"] == 0


@given(left=st.integers(1, 6), later=st.integers(0, 100), seconds=st.floats(-10.0, 300.0))
def test_a_scenario_may_take_some_shares_of_the_time_that_is_left(left: int, later: int, seconds: float) -> None:
    clock = Clock(time.monotonic() + seconds, later)
    limit_s = clock.limit_s(left, 15.0)
    assert 3.0 <= limit_s <= max(3.0, min(15.0, 3.0 * seconds / (left + later)))


async def test_peers_for_whom_no_time_is_left_are_told_of(tmp_path: Path) -> None:
    peer = replace(variant("Sound"), name="peer", environment="langgraph")
    comparison = Comparison(
        [peer], ["plan"], agents=2, seed=1, think_ms=1.0, quick=True, install=False, seconds_max=0.0
    )
    result = await compare(comparison, tmp_path, lambda _: None, lambda _: None)
    assert [one["unavailable"] for one in result["variants"]] == ["the comparison's 0 s were over"]


def decided(seen: int, thought: float, **more: Any) -> dict[str, Any]:
    said = {"agent": "a", "acked": "d", "guard": "goal", "target": "next/a", "revision": seen, "thought": thought}
    return {**said, "began": 0.0, "at": thought + 1.0, "calls": 1, **more}


def changed(revision: int, began: float, at: float) -> dict[str, Any]:
    return {"agent": "b", "changed": "goal", "revision": revision, "began": began, "at": at}


@given(
    seen=st.integers(1, 5),
    revision=st.integers(1, 5),
    at=st.floats(0.0, 10.0),
    thought=st.floats(0.0, 10.0),
)
def test_a_decision_is_stale_if_a_later_change_was_acknowledged_before_it_was_written(
    seen: int, revision: int, at: float, thought: float
) -> None:
    logs = [changed(revision, at / 2, at), decided(seen, thought)]
    values = {"next/a": {"item": "d", "revision": seen}}
    run = judge("planted", Played("decide", 2, logs, values=values))
    assert run["stale"] == (revision > seen and at < thought)
    assert run["lost"] == 0


def test_a_thought_is_overtaken_only_by_a_change_that_began_before_the_next_look() -> None:
    considered = {"agent": "a", "considered": "goal", "item": "d", "revision": 1, "looked": 0.0, "thought": 1.0}
    again = {**considered, "revision": 2, "looked": 2.0, "thought": 3.0}
    logs: list[dict[str, Any]] = [
        considered,
        changed(2, 0.5, 0.6),
        again,
        changed(3, 9.0, 9.1),
        decided(2, 3.0, calls=2),
    ]
    run = judge("planted", Played("decide", 2, logs, values={"next/a": {"item": "d", "revision": 2}}))
    assert (run["model_calls"], run["overtaken"]) == (2, 1)


@pytest.mark.parametrize(
    ("there", "lost"),
    [
        (None, 1),
        ({"item": "late", "revision": 1}, 1),
        ({"item": "late", "revision": 2}, 0),
        ({"item": "d", "revision": 2}, 0),
    ],
)
def test_a_result_is_lost_if_one_for_an_older_goal_stands_in_its_place(there: Any, lost: int) -> None:
    late = decided(there["revision"] if there else 2, 0.4, acked="late", agent="b", at=9.0)
    logs = [decided(2, 3.0), *([late] if there and there["item"] == "late" else [])]
    run = judge("planted", Played("late", 2, logs, values={"next/a": there}))
    assert run["lost"] == lost


def test_an_execution_is_no_duplicate_if_a_lease_has_run_out() -> None:
    def execution(agent: str, until: float, accepted: bool) -> list[dict[str, Any]]:
        began = {"agent": agent, "asked": 0.0, "at": 0.0}
        return [
            {**began, "begun": "task"},
            {**began, "ended": "task", "until": until, "accepted": accepted, "error": ""},
        ]

    def run(*logs: dict[str, Any]) -> Any:
        return judge("planted", Played("tasks", 2, logs, values={"task": True}, tasks=1, lease_s=1.0))

    expired = run(*execution("a", 1.5, False), *execution("b", 0.5, True))
    assert (expired["starts"], expired["expired"], expired["duplicates"]) == (2, 1, 0)
    twice = run(*execution("a", 0.6, True), *execution("b", 0.5, True))
    assert (twice["starts"], twice["expired"], twice["duplicates"], twice["completions_per_task"]) == (2, 0, 1, 2.0)


def test_what_was_told_is_not_silent() -> None:
    acked = [{"agent": "a", "acked": f"a-{n}", "began": 0.0, "at": 1.0, "calls": 1} for n in range(3)]
    logs: list[dict[str, Any]] = [*acked, {"agent": "a", "told": "a-0"}, {"agent": "a", "told": "a-1"}]
    run = judge("planted", Played("failover", 1, logs, items=["a-1"]))
    assert (run["lost"], run["signalled"], run["silent"]) == (2, 2, 1)
