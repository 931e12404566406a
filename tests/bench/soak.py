"""A server at steady load for long: is its memory flat once it is warm? ``make soak SECONDS=600``."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.process import ServerProcess

import noosphere.client
from noosphere.client import Client, NamespacePolicy

CLIENTS = 8
CALLERS = 4
KEYS = 200
PAUSE_SECONDS = 0.02
SAMPLE_SECONDS = 1.0
WARM_SHARE = 0.3
GROWTH_MAX = 0.05
SPACES = 4


class Soaked(NamedTuple):
    """What a soak has seen.

    Attributes:
        calls: that were answered.
        warm_bytes: resident memory once it was warm, the median of a tenth of the time.
        last_bytes: the same at the end.
        samples: of resident memory, in bytes, one a second.
    """

    calls: int
    warm_bytes: int
    last_bytes: int
    samples: list[int]

    @property
    def growth(self) -> float:
        """By which share memory has grown since it was warm."""
        return self.last_bytes / self.warm_bytes - 1


async def soak(folder: Path, seconds: float) -> Soaked:
    """Puts a server under steady load for so long, and measures its memory."""
    server = ServerProcess(folder / "data", ("--durability", "os"))
    server.start()
    samples: list[int] = []
    try:
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(_client(server, number, end)) for number in range(CLIENTS)]
            while time.monotonic() < end:
                await asyncio.sleep(SAMPLE_SECONDS)
                samples.append(server.resident_bytes())
        calls = sum(task.result() for task in callers)
    finally:
        server.close()
    tenth = max(1, len(samples) // 10)
    warm = int(len(samples) * WARM_SHARE)
    return Soaked(calls, _median(samples[warm : warm + tenth]), _median(samples[-tenth:]), samples)


async def _client(server: ServerProcess, number: int, end: float) -> int:
    async with noosphere.client.connect(server.address, agent=f"soak-{number}", timeout=30) as client:
        # So little is kept of what was that it is full long before the measuring begins.
        await client.ensure_namespace(f"shared/soak-{number % SPACES}", NamespacePolicy(log_revisions_max=1_000))
        done = await asyncio.gather(*(_caller(client, number, caller, end) for caller in range(CALLERS)))
        return sum(done)


async def _caller(client: Client, number: int, caller: int, end: float) -> int:
    space = client.shared(f"soak-{number % SPACES}")
    for turn in itertools.count():
        if time.monotonic() > end:
            return 3 * turn
        key = space.key(f"{number}/{caller}/{turn % KEYS}")
        await key.put({"turn": turn, "text": "x" * (turn % 512)}, blind=True)
        await key.get()
        await space.key(f"count/{turn % KEYS}").increment(1)
        await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def main() -> int:
    """Runs it from the command line; returns 1 if memory has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(Path(folder), options.seconds))
    mib = 1024 * 1024
    print(
        f"{found.calls} calls in {options.seconds:g} s; resident memory {found.warm_bytes / mib:.1f} MiB when warm, "
        f"{found.last_bytes / mib:.1f} MiB at the end ({found.growth:+.1%}), {max(found.samples) / mib:.1f} MiB at most"
    )
    return int(found.growth > GROWTH_MAX)


if __name__ == "__main__":
    sys.exit(main())
