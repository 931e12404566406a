"""The report: tables for people between two markers of a page, everything else as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .machine import Machine
from .plan import VALUE_BYTES, Plan
from .profiling import Profile
from .rows import Row, Unmeasured
from .tables import TABLES, Cell

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


class NoMarkers(Exception):
    """The page has no place for the report."""


def markdown(machine: Machine, plan: Plan, rows: Sequence[Row | Unmeasured], seconds: float) -> str:
    """Returns the report."""
    named = {row.name: row for row in rows}
    parts = [_heading(machine, plan, seconds)]
    for table in TABLES:
        if found := [named[name] for name in table.rows if name in named]:
            parts.append(f"### {table.title}\n\n{table.note}\n\n{_table(table.columns, found)}")
    profiles = [(row, profile) for row in rows if isinstance(row, Row) for profile in row.profiles]
    if profiles:
        parts.append("### Where it goes")
        last = ""
        for _, profile in profiles:
            summary = "" if profile.summary == last else f"{profile.summary}\n\n"
            last = profile.summary
            parts.append(f"**{profile.title}**\n\n{summary}{_profile(profile)}")
    return "\n\n".join(parts) + "\n"


def _heading(machine: Machine, plan: Plan, seconds: float) -> str:
    low, median, high = machine.sync_ms
    packages = ", ".join(f"{name} {found}" for name, found in machine.packages.items())
    lines = [
        ("date", machine.date),
        ("commit", machine.commit),
        ("command", f"`{machine.command}` (plan *{plan.name}*, {seconds:.0f} s)"),
        ("machine", f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:.0f} GiB, Linux {machine.kernel}"),
        ("load average before", f"{machine.load_average:.2f}"),
        ("data folder", f"{machine.file_system}; 4 KiB + fdatasync: {median:.2f} ms ({low:.2f} to {high:.2f})"),
        ("versions", f"{machine.python}, SQLite {machine.sqlite}, {packages}"),
        ("load", f"{plan.callers} callers, values of {VALUE_BYTES} bytes, durability fsync, uvloop on both sides"),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in lines)
    warning = "" if plan.name == "full" else f"\n\n**Plan *{plan.name}*: shows that it works, not how fast it is.**"
    return f"| | |\n| --- | --- |\n{table}{warning}"


def _table(columns: Sequence[tuple[str, Cell]], rows: Iterable[Row | Unmeasured]) -> str:
    return _grid([name for name, _ in columns], [_cells(columns, row) for row in rows])


def _cells(columns: Sequence[tuple[str, Cell]], row: Row | Unmeasured) -> list[str]:
    if isinstance(row, Row):
        return [cell(row) for _, cell in columns]
    return [row.what, f"not measured: {row.why}", *[""] * (len(columns) - 2)]


def _profile(profile: Profile) -> str:
    return _grid(profile.header, profile.rows)


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(page: Path, report: str) -> None:
    """Puts the report between the page's markers.

    Raises:
        NoMarkers: the page does not have each of them once, in order.
    """
    text = page.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended or BEGIN in rest or END in after:
        raise NoMarkers(f"{page} needs the lines {BEGIN} and {END}, once each and in this order")
    page.write_text(f"{before}{BEGIN}\n{report}{END}{after}")


def as_json(machine: Machine, plan: Plan, rows: Sequence[Row | Unmeasured], seconds: float) -> str:
    """Returns everything that was measured."""
    document: dict[str, Any] = {
        "machine": machine.as_json(),
        "plan": plan.name,
        "seconds": seconds,
        "rows": [row.as_json() for row in rows],
    }
    return json.dumps(document, indent=1)
