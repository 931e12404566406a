"""What Noosphere has to reach, whatever others do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noosphere.server.cli.lost_updates_shapes import LostUpdatesGateShape, LostUpdatesRunShape

CALLS_PER_EDIT_MAX = {"noosphere-merge": 1.05, "noosphere-redis-merge": 1.05, "noosphere-intents": 1.3}
"""Model calls per acknowledged edit of one plan, by policy; without intents it is only told."""

CALLS_AGENTS = 16
"""With so many agents, or fewer."""


def gates(runs: Sequence[LostUpdatesRunShape]) -> list[LostUpdatesGateShape]:
    """Returns what was to be reached in runs of ours, and whether it is."""
    return [
        {"variant": run["variant"], "scenario": run["scenario"], "what": what, "value": value, "limit": limit, "ok": ok}
        for run in runs
        for what, value, limit, ok in _of(run)
    ]


def _of(run: LostUpdatesRunShape) -> Iterator[tuple[str, float, float, bool]]:
    yield "runs that ended early", float(bool(run["not_run"])), 0.0, not run["not_run"]
    if run["not_run"] and not run["commits"]:
        return
    yield _most("lost updates", run["lost"], 0)
    yield _most("doubled updates", run["doubled"], 0)
    if run["scenario"] in ("decide", "late"):
        yield _most("stale decisions", run["stale"], 0)
    if run["scenario"] == "decide":
        needed = (run["model_calls"] - run["overtaken"]) / max(run["commits"], 1)
        yield _most("model calls per commit, less those that were overtaken", round(needed, 4), 1)
    if run["scenario"] == "tasks":
        done = run["completions_per_task"]
        yield "completions per task", done, 1.0, done == 1.0
        yield _most("executions beyond one per task and expired lease", run["duplicates"], 0)
    if run["scenario"] == "failover":
        yield _most("silent losses", run["silent"], 0)
    elif run["scenario"] != "late":
        yield _most("changes that failed", run["failed"] if run["scenario"] != "tasks" else 0, 0)
    if run["scenario"] == "plan" and run["agents"] <= CALLS_AGENTS and run["variant"] in CALLS_PER_EDIT_MAX:
        yield _most("model calls per commit", run["model_calls_per_commit"], CALLS_PER_EDIT_MAX[run["variant"]])


def _most(what: str, value: float, limit: float) -> tuple[str, float, float, bool]:
    return what, float(value), float(limit), value <= limit
