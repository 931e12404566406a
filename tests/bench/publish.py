"""Makes everything that people read of the results: figures in pages, the report, pictures."""

from __future__ import annotations

from .anchors import RESULTS, pages, refreshed
from .blocks import blocks_of
from .children import ROOT
from .goals import judged
from .plots import draw
from .report import about
from .results import Results
from .rows import Unmeasured

PICTURES = ROOT / "docs" / "images" / "bench"


def publish(results: Results) -> None:
    """Writes ``docs/benchmarks.json``, every page that states figures of it, and the pictures.

    Raises:
        BadAnchor: a page asks for what there is not; then nothing is written.
    """
    found, blocks = results.as_json(samples=False), blocks_of(results)
    fresh = {page: refreshed(page.read_text(), found, blocks) for page in pages()}
    results.save(RESULTS, samples=False)
    for page, text in fresh.items():
        if text != page.read_text():
            page.write_text(text)
    draw(results, PICTURES)


def summary(results: Results) -> str:
    """Returns what a run prints at its end."""
    lines = [about(results), ""]
    for one in judged(results):
        sign = "≥" if one.at_least else "≤"
        verdict = "met" if one.met else "MISSED"
        lines.append(f"{verdict:>6}  {one.what}: {one.show(one.value)}, goal {sign} {one.show(one.goal)}")
    lines += [f"   ---  {row.what}: {row.why}" for row in results.rows.values() if isinstance(row, Unmeasured)]
    lines += [f"   ---  {name}: {one['why']}" for name, one in results.documents.items() if "why" in one]
    return "\n".join(lines)
