"""What was found, as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noosphere.server.cli.lost_updates_shapes import LostUpdatesRunShape, LostUpdatesShape

_TITLES = {
    "plan": "One plan, which all edit after a thought",
    "notes": "One scratchpad, to which all append",
    "tasks": "A board of tasks; one process of agents stands still for longer than a lease",
    "decide": "Decisions on a goal that changes while agents think",
    "late": "Results of slow tools that come after the goal has changed",
    "failover": "The store, or what it lives in, is killed in the middle",
}


def text(result: LostUpdatesShape) -> str:
    """Returns the report for people."""
    parts = [
        f"{result['agents']} agents, thoughts of {result['think_ms']:g} ms (median), seed {result['seed']}, plan "
        f"{result['plan']}; {result['seconds']:.0f} s"
    ]
    for scenario, title in _TITLES.items():
        if runs := [run for run in result["runs"] if run["scenario"] == scenario]:
            header, rows = _rows(scenario, runs)
            parts.append(f"{title} ({scenario})\n" + _grid([header, *rows]))
    for variant in result["variants"]:
        if variant["unavailable"]:
            parts.append(f"{variant['name']}: not compared: {variant['unavailable']}")
    missed = [gate for gate in result["gates"] if not gate["ok"]]
    for gate in missed:
        where = f"{gate['variant']}, {gate['scenario']}"
        parts.append(f"gate missed: {where}: {gate['what']} {gate['value']:g}, at most {gate['limit']:g}")
    parts.append(f"gates of Noosphere: {len(result['gates']) - len(missed)} of {len(result['gates'])} reached")
    return "\n\n".join(parts) + "\n"


def _rows(scenario: str, runs: Sequence[LostUpdatesRunShape]) -> tuple[list[str], Iterable[list[str]]]:
    header = ["", "commits", "failed", "lost"]
    match scenario:
        case "tasks":
            header += ["starts", "expired", "duplicates", "done/task"]
        case "decide" | "late":
            header += ["stale"]
        case "failover":
            header += ["told", "silent", "doubled"]
    if scenario in ("plan", "decide"):
        header += ["calls/commit"]
    header += ["commits/s", "p50 ms", "p99 ms"]
    return header, (_row(scenario, run) for run in runs)


def _row(scenario: str, run: LostUpdatesRunShape) -> list[str]:
    if run["not_run"] and not run["commits"]:
        return [run["variant"], f"no figures: {run['not_run'][:90]}"]
    cells = [run["variant"], str(run["commits"]), str(run["failed"]), str(run["lost"])]
    match scenario:
        case "tasks":
            cells += [f"{run['starts']}/{run['tasks']}", str(run["expired"]), str(run["duplicates"])]
            cells += [f"{run['completions_per_task']:.2f}"]
        case "decide" | "late":
            cells += [str(run["stale"])]
        case "failover":
            cells += [str(run["signalled"]), str(run["silent"]), str(run["doubled"])]
    if scenario in ("plan", "decide"):
        cells += [f"{run['model_calls_per_commit']:.2f}"]
    cells += [f"{run['commits_per_s']:.0f}", f"{run['p50_ms']:.1f}", f"{run['p99_ms']:.1f}"]
    return [*cells, f"({run['not_run'][:60]})"] if run["not_run"] else cells


def _grid(rows: Sequence[Sequence[str]]) -> str:
    # A row that is only a remark must not widen the columns of all others.
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in whole) for column in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    return "\n".join("  ".join(_cells(row, widths)).rstrip() for row in rows)


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for column, cell in enumerate(row):
        width = widths[column] if column < len(widths) else 0
        yield cell.ljust(width) if column == 0 else cell.rjust(width)
