"""Which changes of a fact store's file wait for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from noosphere.server.storage.embedded.worker import ThreadWorker
from noosphere.server.storage.facts.file import FactFile

NORMAL, FULL = 1, 2
"""What SQLite calls its levels: only FULL syncs the log with every transaction."""


def level(db: sqlite3.Connection) -> int:
    """Returns how careful the connection is at the moment."""
    return int(db.execute("PRAGMA synchronous").fetchone()[0])


async def opened(folder: Path, durability: Literal["fsync", "os"]) -> FactFile:
    file, _ = await FactFile.open(
        folder / "file.sqlite3",
        "CREATE TABLE things(name TEXT);",
        lambda db: None,
        durability=durability,
        worker=ThreadWorker("test"),
        what="the file",
        on_fatal=lambda error: None,
    )
    return file


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[FactFile]:
    found = await opened(tmp_path, "fsync")
    yield found
    await found.close()


async def test_only_what_has_to_last_is_synced(file: FactFile) -> None:
    assert await file.write(level) == FULL
    assert await file.write(level, lasts=False) == NORMAL
    assert await file.write(level) == FULL
    assert await file.read(level) == FULL


async def test_what_lasts_is_synced_in_whichever_company(file: FactFile) -> None:
    # All of them are in one transaction: they are asked for before the file's thread comes to any.
    asked = threading.Event()
    busy = asyncio.create_task(file.read(lambda db: asked.wait(10)))
    writing = [asyncio.create_task(file.write(level, lasts=at == 3)) for at in range(6)]
    await asyncio.sleep(0)
    asked.set()
    assert await asyncio.gather(*writing) == [FULL] * 6
    await busy


async def test_where_nothing_is_synced_it_does_not_matter(tmp_path: Path) -> None:
    file = await opened(tmp_path, "os")
    assert [await file.write(level, lasts=lasts) for lasts in (True, False, True)] == [NORMAL] * 3
    await file.close()
