"""Keeps the servers of a fleet up, as Kubernetes would (``python -m noosphere.server.fleet.supervisor FOLDER``).

A server that dies is started again: after half a second, and after twice as long each time that it does not last, up
to ten. SIGTERM stops the servers in order, and then the supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from .processes import identify
from .state import FILE, Member, changing, read_fleet

FIRST_DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 10.0
LASTED_SECONDS = 30.0
"""What has run so long did not die of how it was started."""
STOP_SECONDS_MAX = 45.0


async def keep(folder: Path, name: str, stopping: asyncio.Event) -> None:
    """Runs a server, and again when it has ended, until it is told to stop."""
    loop = asyncio.get_running_loop()
    delay = FIRST_DELAY_SECONDS
    while not stopping.is_set():
        began = loop.time()
        await _run(folder, name, stopping)
        if loop.time() - began >= LASTED_SECONDS:
            delay = FIRST_DELAY_SECONDS
        try:
            async with asyncio.timeout(delay):
                await stopping.wait()
        except TimeoutError:
            delay = min(2 * delay, DELAY_SECONDS_MAX)


async def _run(folder: Path, name: str, stopping: asyncio.Event) -> None:
    """Runs a server until it ends."""
    fleet = read_fleet(folder / FILE)
    member = next(member for member in fleet.servers if member.name == name)
    member.log.parent.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    with member.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "noosphere.server.cli", "serve"),
            *("--listen", member.address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Addresses may carry passwords, so they are no option.
            env={**environment, **fleet.environment},
            start_new_session=True,
        )
    await asyncio.to_thread(_record, folder, name, process.pid)
    print(f"{name} started (pid {process.pid})", flush=True)
    ended = asyncio.ensure_future(process.wait())
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([ended, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if process.returncode is None:
        process.terminate()
        await asyncio.wait([ended], timeout=STOP_SECONDS_MAX)
        if process.returncode is None:
            process.kill()
    print(f"{name} ended with {await ended}", flush=True)


def _record(folder: Path, name: str, pid: int) -> None:
    with changing(folder) as fleet:
        for member in fleet.servers:
            if member.name == name:
                member.process = identify(pid)


async def main(folder: Path) -> None:
    """Keeps every server of the fleet up until SIGTERM."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stopping.set)
    members: list[Member] = await asyncio.to_thread(lambda: read_fleet(folder / FILE).servers)
    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(keep(folder, member.name, stopping))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
