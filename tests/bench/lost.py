"""Tables of lost updates, of what ``noosphere bench lost-updates`` has found; its shape is ``LostUpdatesShape``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .grid import grid
from .results import Results

_WRITES = ("plan", "notes")
_DECISIONS = ("decide", "late")
_CHARS_MAX = 100

Run = Mapping[str, Any]


def lost_updates(found: Mapping[str, Any]) -> str:
    """Returns a table: one line for each way to use a product, what it lost and what that cost."""
    header = (
        *("", "acknowledged when", "lost of acknowledged", "stale decisions", "tasks done twice"),
        *("after failover: silent, signalled", "model calls a commit", "commits/s", "p50 / p99 ms"),
    )
    lines = [_line(variant, _runs_of(found, variant["name"])) for variant in found["variants"]]
    return f"{_gates(found)}\n\n{grid(header, lines)}\n\n{_how(found)}"


def _line(variant: Run, runs: Mapping[str, Run]) -> Sequence[str]:
    label = f"**{variant['name']}**" if variant["ours"] else str(variant["name"])
    if variant["unavailable"]:
        return label, f"not measured: {_cut(variant['unavailable'])}", *[""] * 7
    return (
        label,
        variant["durability"],
        _sum(runs, _WRITES, lambda run: run["lost"], "{:,.0f} of {:,.0f}"),
        _sum(runs, _DECISIONS, lambda run: run["stale"], "{:,.0f} of {:,.0f}"),
        _sum(runs, ("tasks",), lambda run: run["duplicates"], "{:,.0f} of {:,.0f}"),
        _one(runs, "failover", lambda run: f"{run['silent']:,}, {run['signalled']:,} of {run['commits']:,}"),
        _one(runs, "plan", lambda run: f"{run['model_calls_per_commit']:.2f}"),
        _one(runs, "plan", lambda run: f"{run['commits_per_s']:,.0f}"),
        _one(runs, "plan", lambda run: f"{run['p50_ms']:,.0f} / {run['p99_ms']:,.0f}"),
    )


def _gates(found: Mapping[str, Any]) -> str:
    missed = [gate for gate in found["gates"] if not gate["ok"]]
    said = f"**{len(found['gates']) - len(missed)} of {len(found['gates'])} gates of Noosphere are reached.**"
    for gate in missed:
        where = f"{gate['variant']}, {gate['scenario']}"
        said += f" Missed: {where}: {gate['what']} {gate['value']:g}, at most {gate['limit']:g}."
    return said


def _how(found: Mapping[str, Any]) -> str:
    return (
        f"{found['agents']} agents, thoughts of {found['think_ms']:g} ms in the median, seed {found['seed']}. "
        "Lost: edits of a shared plan and notes on a scratchpad that are not there at the end. Stale: decisions and "
        "late tool results that were acknowledged although what they rest on had been changed before. Model calls, "
        "commits and times are of the plan. After failover: a Redis primary dies and its replica, which has not had "
        "the last writes, takes over; whoever has a file or a server of its own is killed and started again."
    )


def _sum(runs: Mapping[str, Run], names: Sequence[str], figure: Callable[[Run], float], form: str) -> str:
    taken = [runs[name] for name in names if name in runs and not _failed(runs[name])]
    if not taken:
        return _why(runs, names)
    return form.format(sum(map(figure, taken)), sum(run["commits"] for run in taken))


def _one(runs: Mapping[str, Run], name: str, show: Callable[[Run], str]) -> str:
    run = runs.get(name)
    return show(run) if run is not None and not _failed(run) else _why(runs, (name,))


def _failed(run: Run) -> bool:
    return bool(run["not_run"]) and not run["commits"]


def _why(runs: Mapping[str, Run], names: Sequence[str]) -> str:
    return next((_cut(runs[name]["not_run"]) for name in names if name in runs), "")


def _cut(why: str) -> str:
    said = why.partition("; it says")[0].replace("|", "/").replace("\n", " ")
    return said if len(said) <= _CHARS_MAX else f"{said[: _CHARS_MAX - 1]}…"


def _runs_of(found: Mapping[str, Any], variant: str) -> dict[str, Run]:
    return {run["scenario"]: run for run in found["runs"] if run["variant"] == variant}


def lost_of(results: Results) -> list[tuple[str, float, float]]:
    """Returns who was measured, with lost updates and stale decisions of each, for a picture."""
    found = results.documents.get("lost-updates", {}).get("result")
    if found is None:
        return []
    shown = []
    for variant in found["variants"]:
        runs = [run for run in _runs_of(found, variant["name"]).values() if not _failed(run)]
        if runs:
            lost = sum(run["lost"] for run in runs if run["scenario"] in _WRITES)
            shown.append((variant["name"], float(lost), float(sum(run["stale"] for run in runs))))
    return shown
