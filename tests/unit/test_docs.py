"""The pages of the documentation: their links lead somewhere, and none of them is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(DOCS / "clients").glob("*/README.md"),
        *(ROOT / "examples").glob("*/README.md"),
        *DOCS.glob("*.md"),
        *DOCS.glob("adr/*.md"),
    ]
)
DECISIONS = sorted(DOCS.glob("adr/[0-9]*.md"))

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """Returns where the links of a page lead, without those to other sites."""
    found: list[str] = _LINK.findall(_CODE.sub("", page.read_text()))
    return [link for link in found if not link.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """Returns the names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    assert set(DOCS.glob("*.md")) <= linked


def test_the_decisions_are_numbered_without_a_gap_and_listed_by_their_titles() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    titles = [page.read_text().splitlines()[0].removeprefix("# ") for page in DECISIONS]
    index = (DOCS / "adr" / "README.md").read_text().splitlines()
    listed = [line for line in index if re.match(r"\d+\. ", line)]
    wanted = [
        f"{title.split('. ', 1)[0]}. [{title.split('. ', 1)[1]}]({page.name})"
        for title, page in zip(titles, DECISIONS, strict=True)
    ]
    assert listed == wanted
