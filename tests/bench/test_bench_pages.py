"""No figure of a benchmark in the documentation differs from the results that are committed beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.bench import anchors
from tests.bench.anchors import BadAnchor, lookup, refreshed
from tests.bench.blocks import blocks_of
from tests.bench.children import ROOT
from tests.bench.plots import digests, draw
from tests.bench.publish import PICTURES
from tests.bench.results import Results, load
from tests.bench.rows import Goal, Row, Unmeasured
from tests.bench.stats import Spread

_SPEED = re.compile(
    r"\d[\d,.]* ?(?:µs\b|(?:calls|reads|writes|commits|candidates|searches|Puts|Gets)(?:/s\b| (?:a|per) second))"
)
_LIMITS = ("docs/cli.md", "docs/adr/", "docs/benchmarks-details.md", "docs/benchmarks.md")
"""Generated pages, and decisions, whose figures are of the day on which they were made."""


@pytest.fixture(scope="module")
def results() -> Results:
    return load(anchors.RESULTS)


def _page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", anchors.pages(), ids=_page_name)
def test_figures_are_those_of_the_results(page: Path, results: Results) -> None:
    text = page.read_text()
    assert refreshed(text, results.as_json(samples=False), blocks_of(results)) == text, (
        "`python -m tests.bench --pages --out docs` writes it anew"
    )


@pytest.mark.parametrize("page", anchors.pages(), ids=_page_name)
def test_no_speed_is_stated_that_nothing_has_measured(page: Path) -> None:
    name = _page_name(page)
    if name.startswith(_LIMITS):
        pytest.skip("generated, or history")
    unmarked = re.sub(r"<!--=[^>]*-->[^<]*<!--/-->", "", page.read_text())
    assert not [line for line in unmarked.splitlines() if _SPEED.search(line)]


def test_pictures_are_of_the_results(results: Results) -> None:
    wanted = digests(results)
    assert wanted
    for name, digest in wanted.items():
        for suffix in (".svg", ".png"):
            assert digest.encode() in (PICTURES / name).with_suffix(suffix).read_bytes(), name + suffix


@pytest.mark.campaign
def test_the_same_results_give_the_same_pictures(results: Results, tmp_path: Path) -> None:
    first, second = (draw(results, tmp_path / name) for name in ("first", "second"))
    assert first
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def _made_up() -> Results:
    found = Results({}, "full")
    row = Row("get", "Get", Spread(0.724, 0.7, 0.75, 5), Goal(0.8, at_least=True), {"rate": 1_234.6})
    found.rows = {"get": row, "put": Unmeasured("put", "Put", "there is no disk")}
    found.documents = {"kept": {"result": {"methods": [{"name": "a", "percent": 61}]}}, "lost": {"why": "no time"}}
    return found


@pytest.mark.parametrize(
    ("anchor", "shown"),
    [
        ("rows/get/value/median:.2f", "0.72"),
        ("rows/get/figures/rate:,.0f", "1,235"),
        ("rows/get/what", "Get"),
        ("rows/put/value/median:.2f", anchors.MISSING),
        ("kept/methods/0/percent:d", "61"),
        ("kept/methods/name=a/percent:.1f", "61.0"),
        ("lost/anything:.1f", anchors.MISSING),
    ],
)
def test_a_figure_that_has_drifted_is_put_right(anchor: str, shown: str) -> None:
    found = _made_up().as_json(samples=False)
    text = f"| before <!--={anchor}-->9.99<!--/--> after |"
    assert refreshed(text, found, {}) == f"| before <!--={anchor}-->{shown}<!--/--> after |"


def test_a_short_run_states_no_speed_in_the_documentation() -> None:
    found = {**_made_up().as_json(samples=False), "plan": "quick"}
    assert lookup(found, "rows/get/value/median") is None
    assert lookup(found, "kept/methods/0/percent") == 61


@pytest.mark.parametrize(
    "path", ["rows/none/value", "rows/get/figures/none", "rows/get/value", "none/x", "kept/methods/7/x"]
)
def test_a_figure_that_there_is_not_is_an_error(path: str) -> None:
    with pytest.raises(BadAnchor, match=path):
        lookup(_made_up().as_json(samples=False), path)


def test_a_block_is_replaced_whole_and_one_that_there_is_not_is_an_error() -> None:
    text = "a\n<!-- bench:one -->\nold\n<!-- /bench -->\nb\n<!-- bench:one -->\n<!-- /bench -->\n"
    fresh = "<!-- bench:one -->\n\nnew\n\n<!-- /bench -->"
    assert refreshed(text, {}, {"one": lambda: "new\n"}) == f"a\n{fresh}\nb\n{fresh}\n"
    with pytest.raises(BadAnchor, match="'one'; there are two"):
        refreshed(text, {}, {"two": lambda: ""})
