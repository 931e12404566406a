"""Every finding of `noosphere doctor` is on the page about operations."""

from __future__ import annotations

import re

from tests.support.workers import ROOT

MADE = re.compile(r'(?:problem|warning)\(\s*"([a-z_]+)"|name = "([a-z_]+)"|else "([a-z_]+)"')


def test_every_finding_is_named() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    sources = [path.read_text() for path in (ROOT / "server/noosphere/server/doctor").glob("*.py")]
    names = {name for source in sources for found in MADE.findall(source) for name in found if name}
    assert len(names) > 30
    assert not [name for name in sorted(names) if f"`{name}`" not in page]
