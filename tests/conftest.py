"""What all tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import settings
from tests.support.effort import examples

if TYPE_CHECKING:
    from tests.support.fleet import Fleet

# An example may take its time on a busy machine: no test asserts speed.
settings.register_profile("noosphere", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("noosphere")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out, with the reason, what needs an engine that is not installed."""
    for mark in item.iter_markers("engine"):
        if mark.kwargs["program"] is None:
            pytest.skip(mark.kwargs["reason"])


@pytest.fixture(scope="session", autouse=True)
def _poller() -> None:
    """Keeps gRPC's poller over all event loops: before 1.78 it may hang when the last channel goes, see ADR 34."""

    async def keep() -> None:
        grpc.aio.init_grpc_aio()

    asyncio.run(keep())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three replicas on a Redis primary with its replica, and etcd: all of it real processes, started."""
    # Not at the top: most runs need no real engines, and the module is heavy.
    from tests.support.fleet import Fleet

    with Fleet(tmp_path / "fleet") as made:
        yield made
