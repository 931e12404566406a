"""Tables of ours and peers side by side, of what :mod:`tests.bench.side_by_side` has found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .grid import grid
from .results import Results

OPERATIONS = {
    "get": "Get /s",
    "put": "Put /s",
    "append": "append /s",
    "rmw": "read-modify-write of one key /s",
    "batch": "batch of 100 keys /s",
    "watch": "watch latency",
}
_CHARS_MAX, _CELL_CHARS_MAX = 100, 60
_SAID = re.compile(r"^\w+\((?P<quote>['\"])(?P<text>.*)(?P=quote).*\)$", re.DOTALL)
"""The ``repr`` of an exception that has a message."""
LATENCY = "watch"
"""The operation whose figure is a time; that of all others is a rate."""


def side_by_side(found: Mapping[str, Any]) -> str:
    """Returns the short table: one line for each contestant, the rate and the median of each operation."""
    return _table(found, lambda one: str(one["name"]), _short)


def side_by_side_details(found: Mapping[str, Any]) -> str:
    """Returns the long one: how each is used, quartiles of rates, ratios to ours, both percentiles."""
    return _table(found, lambda one: f"`{one['name']}`: {one['label']}", _long)


def _table(found: Mapping[str, Any], label: Callable[[Any], str], show: Callable[[str, Any], str]) -> str:
    operations = [name for name in OPERATIONS if name in found["operations"]]
    header = ("", "acknowledged when", *(OPERATIONS[name] for name in operations))
    lines: list[Sequence[str]] = []
    for one in found["contestants"]:
        if "why" in one:
            lines.append((label(one), f"not measured: {_cut(one['why'])}", *[""] * len(operations)))
            continue
        of = [(name, found["operations"][name].get(one["name"])) for name in operations]
        cells = ["" if figures is None else show(name, figures) for name, figures in of]
        lines.append((f"**{label(one)}**" if one["ours"] else label(one), one["durability"], *cells))
    return grid(header, lines)


def _short(operation: str, found: Mapping[str, Any]) -> str:
    if "why" in found:
        return "none" if found.get("lacks") else f"failed: {_cut(found['why'], _CELL_CHARS_MAX)}"
    median = f"{_digits(found['p50_ms'])} ms"
    return median if operation == LATENCY else f"{_digits(found['rate']['median'])} ({median})"


def _long(operation: str, found: Mapping[str, Any]) -> str:
    if "why" in found:
        return f"none: {_cut(found['why'])}" if found.get("lacks") else f"failed: {_cut(found['why'])}"
    times = f"{_digits(found['p50_ms'])} / {_digits(found['p99_ms'])} ms"
    if operation == LATENCY:
        return times
    rate = found["rate"]
    spread = f"{_digits(rate['low'])} to {_digits(rate['high'])}"
    share = f", {found['ratio']['median']:.2g} of ours" if "ratio" in found else ""
    return f"{_digits(rate['median'])} ({spread}{share}); {times}"


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.1f}" if figure >= 1 else f"{figure:.2g}"


def _cut(why: str, most: int = _CHARS_MAX) -> str:
    # What a program says in its log comes after; it stands in the file of results.
    said = why.partition("; it says")[0].removeprefix("failed: ").removeprefix("time: ")
    if match := _SAID.match(said):
        said = match["text"]
    said = " ".join(said.replace("|", "/").split())
    return said if len(said) <= most else f"{said[: most - 1].rstrip()}…"


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
