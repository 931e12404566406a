"""The detailed report: what was measured where, every table, and profiles of what missed its goal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .grid import grid
from .plan import PLANS, VALUE_BYTES
from .results import Results
from .rows import Row, Unmeasured
from .tables import TABLES, Cell


def details(results: Results) -> str:
    """Returns every table, then the profiles."""
    parts = [_parts(results)]
    for table in TABLES:
        if found := [results.rows[name] for name in table.rows if name in results.rows]:
            parts.append(f"### {table.title}\n\n{table.note}\n\n{_table(table.columns, found)}")
    rows = [row for row in results.rows.values() if isinstance(row, Row)]
    profiles = [profile for row in rows for profile in row.profiles]
    if profiles:
        parts.append("### Where it goes")
        last = ""
        for profile in profiles:
            summary = "" if profile.summary == last else f"{profile.summary}\n\n"
            last = profile.summary
            parts.append(f"**{profile.title}**\n\n{summary}{grid(profile.header, profile.rows)}".rstrip())
    return "\n\n".join(parts)


def about(results: Results) -> str:
    """Returns where and when the run was made."""
    machine, plan = results.machine, PLANS[results.plan]
    low, median, high = machine["sync_ms"]
    packages = ", ".join(f"{name} {found}" for name, found in machine["packages"].items())
    cores, memory = f"{machine['cores']} cores", f"{machine['memory_gib']:.0f} GiB"
    lines = [
        ("date", machine["date"]),
        ("commit", machine["commit"]),
        ("command", f"`{machine['command']}` (plan *{plan.name}*, {results.seconds / 60:.0f} minutes)"),
        ("machine", f"{machine['cpu']}, {cores}, {memory}, Linux {machine['kernel']}"),
        ("load average before", f"{machine['load_average']:.2f}"),
        ("data folder", f"{machine['file_system']}; 4 KiB + fdatasync: {median:.2f} ms ({low:.2f} to {high:.2f})"),
        ("versions", f"{machine['python']}, SQLite {machine['sqlite']}, {packages}"),
        ("load", f"{plan.callers} callers, values of {VALUE_BYTES} bytes, durability fsync, uvloop on both sides"),
    ]
    warning = "" if plan.name == "full" else f"\n\n**Plan *{plan.name}*: shows that it works, not how fast it is.**"
    return grid(("", ""), lines) + warning


def _parts(results: Results) -> str:
    lines = [
        (name, part["date"], f"{part['seconds']:.0f}", f"{part['load_average']:.2f}", part["failed"] or "")
        for name, part in results.parts.items()
    ]
    return "### Parts of the run\n\n" + grid(("part", "measured", "seconds", "load average before", "failed"), lines)


def _table(columns: Sequence[tuple[str, Cell]], rows: Iterable[Row | Unmeasured]) -> str:
    return grid([name for name, _ in columns], [_cells(columns, row) for row in rows])


def _cells(columns: Sequence[tuple[str, Cell]], row: Row | Unmeasured) -> list[str]:
    if isinstance(row, Row):
        return [cell(row) for _, cell in columns]
    return [row.what, f"not measured: {row.why}", *[""] * (len(columns) - 2)]
