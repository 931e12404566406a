"""The soak works; a minute of it says little of memory, so only what no minute excuses fails it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench.soak import soak

pytestmark = pytest.mark.campaign


async def test_memory_under_steady_load_does_not_run_away(tmp_path: Path) -> None:
    found = await soak(tmp_path, seconds=40)
    assert found.calls > 100
    assert found.growth < 0.5
