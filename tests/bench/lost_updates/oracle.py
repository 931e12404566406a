"""Judges a run by the log of the harness and what stands in the store at the end; never by what a product says of it.

All judgements err on the side of the product: what was under way at the same time may have come in either order, and
only what was in the wrong order for certain counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noosphere.server.cli.lost_updates_shapes import LostUpdatesRunShape

Log = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """A run as the harness has seen it.

    Attributes:
        scenario: which.
        agents: how many took part.
        logs: what they have logged; see ``tests.bench.peers.roles``.
        items: what is in the list or scratchpad at the end.
        values: what is under the keys of decisions at the end.
        tasks: how many were on the board.
        lease_s: of a task.
        not_run: why it ended early; empty if it did not.
    """

    scenario: str
    agents: int
    logs: Sequence[Log]
    items: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 0
    lease_s: float = math.inf
    not_run: str = ""


def judge(variant: str, played: Played) -> LostUpdatesRunShape:
    """Returns the figures of a run."""
    logs = played.logs
    acked = [log for log in logs if "acked" in log]
    ended = [log for log in logs if "ended" in log]
    accepted = [log for log in ended if log["accepted"]]
    failed = [log for log in logs if "failed" in log] + [log for log in ended if log["error"]]
    commits = accepted if played.tasks else acked
    lost = lost_of(played, acked)
    told = {log["told"] for log in logs if "told" in log}
    starts = sum("begun" in log for log in logs)
    expired = sum(log["until"] - log["asked"] > played.lease_s for log in ended)
    calls = starts if played.tasks else sum(log.get("calls", 0) for log in logs)
    times = sorted((log["until"] if played.tasks else log["at"]) - _began(log) for log in commits)
    seconds = _seconds(logs)
    return {
        "variant": variant,
        "scenario": played.scenario,
        "agents": played.agents,
        "not_run": played.not_run,
        "seconds": round(seconds, 3),
        "commits": len(commits),
        "failed": len(failed),
        "error": str(failed[0]["error"]) if failed else "",
        "lost": len(lost),
        "doubled": sum(count - 1 for count in Counter(played.items).values()),
        "stale": sum(is_stale(log, logs) for log in acked),
        "overtaken": overtaken(logs),
        "tasks": played.tasks,
        "starts": starts,
        "expired": expired,
        "duplicates": max(starts - played.tasks - expired, 0),
        "starts_per_task": round(starts / played.tasks, 4) if played.tasks else 0.0,
        "completions_per_task": round(len(accepted) / played.tasks, 4) if played.tasks else 0.0,
        "model_calls": calls,
        "model_calls_per_commit": round(calls / len(commits), 4) if commits else 0.0,
        "signalled": len(told),
        "silent": len(lost - told),
        "p50_ms": round(_percentile(times, 0.5) * 1e3, 2),
        "p99_ms": round(_percentile(times, 0.99) * 1e3, 2),
        "commits_per_s": round(len(commits) / seconds, 2) if seconds > 0 else 0.0,
    }


def lost_of(played: Played, acked: Iterable[Log]) -> set[str]:
    """Returns the acknowledged ids whose effect is gone at the end."""
    if played.scenario in ("plan", "notes", "failover"):
        return {log["acked"] for log in acked} - set(played.items)
    if played.scenario == "tasks":
        done = {log["ended"] for log in played.logs if "ended" in log and log["accepted"]}
        return done - {task for task, finished in played.values.items() if finished}
    return {log["acked"] for log in acked if "target" in log and _is_gone(log, acked, played.values)}


def _is_gone(log: Log, acked: Iterable[Log], values: Mapping[str, Any]) -> bool:
    """Tells whether a decision has given way to nothing, or to one that rests on something older."""
    found = values.get(log["target"])
    if found is None:
        return True
    if found["item"] == log["acked"]:
        return False
    if found["revision"] < log["revision"]:
        return True
    # Another one that may have come later; one that was acknowledged before this began has not.
    follower = next((one for one in acked if one["acked"] == found["item"]), None)
    return follower is not None and follower["at"] < log["began"]


def is_stale(log: Log, logs: Iterable[Log]) -> bool:
    """Tells whether a decision was written although, for certain, what it rests on had been changed before."""
    if "guard" not in log:
        return False
    return any(
        change["revision"] > log["revision"] and change["at"] < log["thought"]
        for change in logs
        if change.get("changed") == log["guard"]
    )


def overtaken(logs: Sequence[Log]) -> int:
    """Counts the thoughts during which, perhaps, what they rest on was changed."""
    ends: dict[tuple[str, str], float] = {}
    for log in logs:
        for kind in ("acked", "dropped", "failed"):
            if kind in log:
                ends[log["agent"], log[kind]] = log["at"]
    found = 0
    # From the last one to the first: a thought ends with the next look for the same decision, at the latest.
    for log in reversed([log for log in logs if "considered" in log]):
        who = (log["agent"], log["item"])
        end = ends.get(who, math.inf)
        found += any(
            change["revision"] > log["revision"] and change["began"] < end
            for change in logs
            if change.get("changed") == log["considered"]
        )
        ends[who] = log["looked"]
    return found


def _began(log: Log) -> float:
    began: float = log["asked"] if "asked" in log else log["began"]
    return began


def _seconds(logs: Sequence[Log]) -> float:
    """From the first step to the last acknowledgement."""
    began = [_began(log) for log in logs if "asked" in log or "began" in log]
    ended = [log["at"] for log in logs if "acked" in log] + [log["until"] for log in logs if log.get("accepted")]
    return max(ended) - min(began) if began and ended else 0.0


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
