"""Figures in the documentation that come from the results file, and cannot drift from it.

A figure stands between two comments, of which the first says where it is from and how it is shown::

    <!--=rows/get_floor/value/median:.2f-->0.72<!--/-->

Whole tables stand between lines ``<!-- bench:NAME -->`` and ``<!-- /bench -->``; see :mod:`tests.bench.blocks`. What is
between is written anew by :func:`refreshed`, and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .children import ROOT
from .plan import FULL

RESULTS = ROOT / "docs" / "benchmarks.json"
MISSING = "not measured"
_FIGURE = re.compile(r"<!--=(?P<path>[^:>\n]+)(?P<form>:[^>\n]*)?-->[^<\n]*<!--/-->")
_BLOCK = re.compile(r"<!-- bench:(?P<name>[a-z0-9-]+) -->\n.*?<!-- /bench -->", re.DOTALL)

Blocks = Mapping[str, Callable[[], str]]


class BadAnchor(Exception):
    """A page asks for what there is not."""


def pages() -> list[Path]:
    """Returns every page that may state figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def lookup(found: Mapping[str, Any], path: str) -> float | str | None:
    """Returns a figure by its path; None where it was not measured, or by a short run.

    ``rows/NAME/…`` is in the row of that name, anything else in what the command of that name has printed; ``list/n/…``
    is the element of a list, ``list/field=text/…`` the first element whose field says so.

    Raises:
        BadAnchor: there is no such row or command, or no such figure in it.
    """
    head, _, rest = path.partition("/")
    place: Any
    if head == "rows":
        name, _, rest = rest.partition("/")
        place = next((row for row in found["rows"] if row["name"] == name), None)
        if place is None:
            raise BadAnchor(f"{path}: there is no row {name!r}")
        if "why" in place or found["plan"] != FULL.name:
            # What a short run has found shows that it works, not how fast it is.
            return None
    elif head in found["documents"]:
        place = found["documents"][head].get("result")
        if place is None:
            return None
    else:
        raise BadAnchor(f"{path}: there is no {head!r}")
    try:
        for step in rest.split("/"):
            place = _inside(place, step)
    except (LookupError, TypeError, ValueError, StopIteration):
        raise BadAnchor(f"{path}: there is no such figure") from None
    if not isinstance(place, (int, float, str)):
        raise BadAnchor(f"{path}: it is no figure")
    return place


def _inside(place: Any, step: str) -> Any:
    if not isinstance(place, list):
        return place[step]
    field, equals, text = step.partition("=")
    return next(one for one in place if str(one[field]) == text) if equals else place[int(step)]


def refreshed(text: str, found: Mapping[str, Any], blocks: Blocks) -> str:
    """Returns a page with the figures of the results in it.

    Raises:
        BadAnchor: it asks for what there is not.
    """

    def figure(match: re.Match[str]) -> str:
        value = lookup(found, match["path"])
        form = match["form"] or ":"
        shown = MISSING if value is None else f"{{{form}}}".format(value)
        return f"<!--={match['path']}{match['form'] or ''}-->{shown}<!--/-->"

    def block(match: re.Match[str]) -> str:
        make = blocks.get(match["name"])
        if make is None:
            raise BadAnchor(f"there is no block {match['name']!r}; there are {', '.join(sorted(blocks))}")
        return f"<!-- bench:{match['name']} -->\n\n{make().strip()}\n\n<!-- /bench -->"

    return _BLOCK.sub(block, _FIGURE.sub(figure, text))
