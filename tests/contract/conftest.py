"""The drivers that the contract suites run against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.lab import EmbeddedLab, StoreLab


@pytest.fixture(params=["embedded"])
def lab(request: pytest.FixtureRequest) -> StoreLab:
    """A fresh store and coordinator of each driver: the fixture named by the parameter makes them."""
    made: StoreLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedLab]:
    """A fresh embedded store."""
    made = EmbeddedLab(tmp_path)
    await made.open()
    yield made
    await made.close()
