"""Pictures of a run, as PNG and SVG: the same results give the same bytes.

Each says in its metadata which figures it shows, by a digest, so that a test can tell whether it is of the results
beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .goals import Judged, judged
from .lost import lost_of
from .results import Results
from .rows import Row
from .side_tables import OPERATIONS, rates_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS, MET, MISSED = "#1b6ca8", "#b0b0b0", "#2a7f4f", "#c0392b"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "noosphere",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
}
_FLOOR_ROWS = (
    "get_floor",
    "put_floor",
    "guarded_get_floor",
    "guarded_put_floor",
    "redis_get_floor",
    "redis_put_floor",
)
_SHARE_MIN, _SHARE_MAX = 0.1, 30.0
"""Figures further from their goals are drawn at these."""


def draw(results: Results, folder: Path) -> list[Path]:
    """Draws every picture for which there are figures; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, (shown, picture) in _pictures(results).items():
        if shown:
            made += _save(picture(shown), folder / name, digest_of(shown))
    return made


def digests(results: Results) -> dict[str, str]:
    """Returns, by the name of each picture for which there are figures, the digest of what it shows."""
    return {name: digest_of(shown) for name, (shown, _) in _pictures(results).items() if shown}


def digest_of(shown: Any) -> str:
    """Returns a digest of what a picture shows."""
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _pictures(results: Results) -> dict[str, tuple[Any, Callable[[Any], Figure]]]:
    return {
        "goals": (judged(results), _goals),
        "floor": (_floor_figures(results), _floor),
        "side-by-side": (rates_of(results), _side_by_side),
        "lost-updates": (lost_of(results), _lost),
    }


def _save(figure: Figure, file: Path, digest: str) -> Iterable[Path]:
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        vector, raster = file.with_suffix(".svg"), file.with_suffix(".png")
        figure.savefig(vector, metadata={"Date": None, "Identifier": digest}, bbox_inches="tight")
        figure.savefig(raster, metadata={"Software": None, "Comment": digest}, bbox_inches="tight", dpi=110)
    return vector, raster


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, Sequence[Axes]]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = [figure.add_subplot(1, columns, number + 1) for number in range(columns)]
    return figure, axes


def _goals(found: Sequence[Judged]) -> Figure:
    figure, (axes,) = _figure(9, 1 + 0.24 * len(found))
    for place, one in enumerate(found):
        low, high = (_bounded(share) for share in one.shares)
        colour = MET if one.met else MISSED
        axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.4)
        axes.plot([_bounded(one.share)], [place], "o", color=colour, markersize=5)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), [one.what.replace("`", "") for one in found])
    axes.invert_yaxis()
    axes.set_xlabel("times as good as the goal (1 is the goal, to the right is better; bars are the middle half)")
    axes.set_title("Goals of speed and quality")
    return figure


def _bounded(share: float) -> float:
    return min(max(share, _SHARE_MIN), _SHARE_MAX)


def _floor_figures(results: Results) -> list[tuple[str, float, float]]:
    rows = (results.rows.get(name) for name in _FLOOR_ROWS)
    return [
        (
            row.what.partition(",")[0] if "protection" not in row.what else row.what,
            row.figures["ours_rate"],
            row.figures["floor_rate"],
        )
        for row in rows
        if isinstance(row, Row)
    ]


def _floor(found: Sequence[tuple[str, float, float]]) -> Figure:
    figure, (axes,) = _figure(9, 1 + 0.5 * len(found))
    for place, (_, ours, floor) in enumerate(found):
        axes.barh(place - 0.2, ours, height=0.36, color=OURS, label="noosphere" if not place else None)
        axes.barh(place + 0.2, floor, height=0.36, color=THEIRS, label="bare gRPC" if not place else None)
        axes.text(ours, place - 0.2, f" {ours:,.0f} ({ours / floor:.2f})", va="center", fontsize=8)
        axes.text(floor, place + 0.2, f" {floor:,.0f}", va="center", fontsize=8)
    axes.set_yticks(range(len(found)), [what for what, _, _ in found])
    axes.invert_yaxis()
    axes.set_xlabel("calls per second, 16 callers, one connection")
    axes.set_title("Against a bare gRPC server that does nothing")
    axes.legend(loc="lower right", frameon=False)
    return figure


def _side_by_side(found: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Figure:
    most = max(len(rates) for _, rates in found)
    figure, axes = _figure(3.1 * len(found), 1.2 + 0.26 * most, len(found))
    for place, (operation, rates) in enumerate(found):
        one = axes[place]
        one.barh(range(len(rates)), [rate for _, rate in rates], color=[_colour(name) for name, _ in rates])
        one.set_xscale("log")
        one.set_yticks(range(len(rates)), [name for name, _ in rates], fontsize=7)
        one.invert_yaxis()
        one.set_title(OPERATIONS[operation], fontsize=9)
        for number, (_, rate) in enumerate(rates):
            one.text(rate, number, f" {rate:,.0f}", va="center", fontsize=7)
        one.margins(x=0.25)
    return figure


def _lost(found: Sequence[tuple[str, float, float]]) -> Figure:
    figure, axes = _figure(9, 1.2 + 0.26 * len(found), 2)
    for place, title in enumerate(("lost updates", "stale decisions")):
        one = axes[place]
        figures = [line[1:][place] for line in found]
        one.barh(range(len(found)), figures, color=[_colour(line[0]) for line in found])
        one.set_yticks(range(len(found)), [line[0] for line in found], fontsize=7)
        one.invert_yaxis()
        one.set_title(title, fontsize=9)
        for number, figure_found in enumerate(figures):
            one.text(figure_found, number, f" {figure_found:,.0f}", va="center", fontsize=7)
        one.margins(x=0.15)
    return figure


def _colour(name: str) -> str:
    return OURS if name.startswith("noosphere") else THEIRS
