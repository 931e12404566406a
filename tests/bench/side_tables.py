"""Tables of ours and peers side by side, of what :mod:`tests.bench.side_by_side` has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .grid import grid
from .results import Results

OPERATIONS = {
    "get": "Get, calls/s",
    "put": "Put, calls/s",
    "append": "append to one list, calls/s",
    "rmw": "read-modify-write of one key, calls/s",
    "batch": "100 keys written, batches/s",
    "watch": "watch latency, ms",
}
_CHARS_MAX = 100
LATENCY = "watch"
"""The operation whose figure is a time; that of all others is a rate."""


def side_by_side(found: Mapping[str, Any]) -> str:
    """Returns a table: one line for each contestant, one column for each operation."""
    operations = [name for name in OPERATIONS if name in found["operations"]]
    header = ("", "acknowledged when", *(OPERATIONS[name] for name in operations))
    lines: list[Sequence[str]] = []
    for one in found["contestants"]:
        if "why" in one:
            lines.append((one["label"], f"not measured: {one['why']}", *[""] * len(operations)))
            continue
        cells = [_cell(name, found["operations"][name].get(one["name"])) for name in operations]
        label = f"**{one['label']}**" if one["ours"] else one["label"]
        lines.append((label, one["durability"], *cells))
    return grid(header, lines)


def _cell(operation: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if "why" in found:
        return _cut(found["why"])
    times = f"{found['p50_ms']:.2g} / {found['p99_ms']:.2g} ms"
    if operation == LATENCY:
        return times
    rate = found["rate"]
    spread = f"{rate['low']:,.0f} to {rate['high']:,.0f}"
    share = f", {found['ratio']['median']:.2g} of ours" if "ratio" in found else ""
    return f"{rate['median']:,.0f} ({spread}{share}); {times}"


def _cut(why: str) -> str:
    # What a program says in its log comes after; it stands in the file of results.
    said = why.partition("; it says")[0].removeprefix("failed: ").removeprefix("time: ")
    return said if len(said) <= _CHARS_MAX else f"{said[: _CHARS_MAX - 1]}…"


def rates_of(results: Results) -> list[tuple[str, list[tuple[str, float]]]]:
    """Returns for each operation but the latency the contestants and their rates, for a picture."""
    found = results.documents.get("side-by-side", {}).get("result")
    if found is None:
        return []
    shown = []
    for operation in OPERATIONS:
        of = found["operations"].get(operation, {})
        rates = [
            (one["name"], float(of[one["name"]]["rate"]["median"]))
            for one in found["contestants"]
            if "rate" in of.get(one["name"], {})
        ]
        if rates and operation != LATENCY:
            shown.append((operation, rates))
    return shown
