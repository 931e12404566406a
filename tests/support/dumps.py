"""Dumps of engines in tests: taken, restored elsewhere, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noosphere.server.config import Settings
from noosphere.server.dumping import Dumper, DumpFile, Summary, write_dump
from noosphere.server.offline import opened_dumper
from noosphere.server.ports.runtime import Clock, SystemClock
from noosphere.server.restoring import restore
from noosphere.testing import ManualClock


def settings_of(data: Path, **settings: Any) -> Settings:
    """Returns settings of a target that loads no model and does not wait for the disk."""
    return Settings(data=data, embedder="none", durability="os", **settings)


async def take(path: Path, dumper: Dumper, *, tokens: bool = False) -> Path:
    """Takes a dump of an open engine."""
    await write_dump(path, dumper.lines(tokens=tokens))
    return path


async def take_offline(path: Path, settings: Settings, clock: Clock | None = None) -> Path:
    """Takes a dump where no server runs."""
    async with opened_dumper(settings, clock or SystemClock()) as dumper:
        return await take(path, dumper)


async def put_back(path: Path, settings: Settings, clock: Clock | None = None, **options: Any) -> Summary:
    """Restores a dump."""
    summary, _ = await restore(settings, DumpFile(path), clock=clock or ManualClock(), **options)
    return summary


def contents(path: Path) -> list[Any]:
    """Returns what a dump says, without what any two dumps of the same state differ in: when and where."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [lines[0]["is"], lines[-2]["is"], lines[-1]["is"]] == ["noosphere dump", "counters", "end"]
    return lines[1:-2]
