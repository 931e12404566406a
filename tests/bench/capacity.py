"""Measures what things cost in bytes, on real servers, and writes the tables of docs/capacity.md.

    python -m tests.bench.capacity [--quick]

Each kind of thing has a server of its own, so that nothing else grows meanwhile. Sizes do not depend on how busy the
machine is; nothing here is a measure of speed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess

from noosphere.client import Candidate, Client, connect
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

from .children import ROOT

PAGE = ROOT / "docs" / "capacity.md"
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"
AT_ONCE = 200
SETTLE_SECONDS = 3.0
"""What is written settles: folds, and logs that are cut."""

FACTS_SECONDS_MAX = 600

WORD = "capacity "


class Cost(NamedTuple):
    """Bytes of one thing; None where it takes none, or nothing there can tell."""

    memory: float
    disk: float | None
    redis: float | None


Fill = Callable[[Client, int, int], Awaitable[None]]
"""Makes things with the numbers from one to another."""


async def at_once(calls: Iterable[Awaitable[object]]) -> None:
    """Makes calls, some at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[object]) -> None:
        async with room:
            await call

    await asyncio.gather(*map(one, calls))


def records(size: int) -> Fill:
    """Records with values of so many bytes, in twenty namespaces."""

    async def fill(client: Client, first: int, last: int) -> None:
        text = (WORD * size)[: size - 2]
        await at_once(client.shared(f"n{at % 20}").put(f"board/{at:08}", text) for at in range(first, last))

    return fill


async def changes(client: Client, first: int, last: int) -> None:
    """Changes of one record of 1 KiB: each leaves one entry of the log, and nothing else."""
    text = (WORD * 1024)[:1022]
    spaces = [client.shared(f"n{at}") for at in range(20)]
    for start in range(first, last, 20):
        await at_once(space.put("board/one", f"{start}{text}"[:1022], blind=True) for space in spaces)


async def messages(client: Client, first: int, last: int) -> None:
    """Messages of 500 characters, in sessions of 100."""

    async def talk(number: int) -> None:
        async with client.session(f"s{number}") as session:
            for at in range(10):
                await session.append(*({"role": "user", "content": f"{at} {WORD * 55}"[:500]} for _ in range(10)))

    await at_once(talk(number) for number in range(first // 100, last // 100))


async def sessions(client: Client, first: int, last: int) -> None:
    """Sessions with one message."""

    async def talk(number: int) -> None:
        async with client.session(f"s{number}") as session:
            await session.append({"role": "user", "content": "Hello"})

    await at_once(talk(number) for number in range(first, last))


async def facts(client: Client, first: int, last: int) -> None:
    """Facts of about 100 characters."""
    for start in range(first, last, 50):
        candidates = [
            Candidate(f"Item {at} of the inventory is kept in room {at * 7 % 1000} on shelf {at * 13 % 500}, box {at}")
            for at in range(start, min(start + 50, last))
        ]
        ids = await client.facts.propose(*candidates)
        async with asyncio.timeout(FACTS_SECONDS_MAX):
            # A candidate that has no decision yet is asked for again.
            while (await client.facts.candidate(ids[-1])).decision.status == "queued":  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)


async def agents(client: Client, first: int, last: int) -> None:
    """Agents that are open."""
    stub = MemoryServiceStub(client.channel)
    await at_once(stub.OpenAgent(pb.OpenAgentRequest(agent_id=f"fleet/{at}")) for at in range(first, last))


class Watches:
    """Watches of one collection, which stay open."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    async def __call__(self, client: Client, first: int, last: int) -> None:
        """Opens some; each has said something, or nothing is there to be said."""
        stub = MemoryServiceStub(client.channel)
        agent, _, number = client.actor.rpartition("#")
        call = types.CallContext(actor=types.Actor(agent_id=agent, incarnation=int(number)))
        for _ in range(first, last):
            watch = stub.Watch(pb.WatchRequest(namespace="shared/watched", snapshot=True, call=call))
            await watch.read()
            self.calls.append(watch)


@contextlib.asynccontextmanager
async def server_on(folder: Path, redis: RedisProcess | None, embedder: str) -> AsyncIterator[ServerProcess]:
    """Runs a server on an empty data folder, or on an empty Redis."""
    options = ["--embedder", embedder, "--durability", "os", "--limits-agent-streams-max", "0"]
    # Nobody is to be turned away on a busy machine.
    options += ["--limits-server-lag-ms-max", "0"]
    if redis is not None:
        redis.ask("FLUSHALL")
        config = folder / "server.toml"
        config.write_text(f'redis_urls = "{redis.url}"\n')
        options += ["--config", str(config)]
    server = ServerProcess(folder / "data", options=options)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


def size_of(folder: Path) -> int:
    """Returns how much the files of a folder take."""
    return sum(path.stat().st_size for path in folder.glob("*.sqlite3*"))


class Kind(NamedTuple):
    """One row of the tables."""

    name: str
    make: Callable[[], Fill]
    things: int
    logs: bool = False
    embedder: str = "none"
    on_redis: bool = True
    on_disk: bool = True


async def cost_of(kind: Kind, count: int, redis: RedisProcess | None) -> Cost:
    """Measures one kind of thing: memory between a quarter of them and all, disk once the server has stopped."""
    fill, first = kind.make(), count // 4
    with tempfile.TemporaryDirectory() as name:
        taken = []
        async with server_on(Path(name), redis, kind.embedder) as server:
            async with connect(server.address, agent=f"cli/{uuid.uuid4().hex[:8]}", timeout=60) as client:
                if not kind.logs:
                    await _keep_no_log(client)
                for begin, end in ((0, first), (first, count)):
                    await fill(client, begin, end)
                    await asyncio.sleep(SETTLE_SECONDS)
                    used = 0 if redis is None else int(redis.info("memory")["used_memory"])
                    taken.append((server.resident_bytes(), used))
            await asyncio.to_thread(server.terminate)
            disk = size_of(server.data)
        (memory_1, used_1), (memory_2, used_2) = taken
        more = count - first
        memory = max(0.0, (memory_2 - memory_1) / more)
        if redis is not None:
            return Cost(memory, None, max(0.0, (used_2 - used_1) / more))
        return Cost(memory, max(0.0, (disk - await asyncio.to_thread(_empty)) / count), None)


async def _keep_no_log(client: Client) -> None:
    policy = types.NamespacePolicy(log_revisions_max=1)
    request = admin.SetPolicyRequest(pattern=types.NamePattern(prefix=""), policy=policy)
    for prefix in ("shared/", "sessions/", "facts/"):
        request.pattern.prefix = prefix
        await client.call(AdminServiceStub(client.channel).SetPolicy, request)


@cache
def _empty() -> int:
    """Returns how much the files of a server that was never used take."""
    with tempfile.TemporaryDirectory() as name:
        server = ServerProcess(Path(name) / "data", options=("--embedder", "none"))
        server.start()
        server.terminate()
        return size_of(server.data)


KINDS = (
    Kind("record with a value of 100 bytes", lambda: records(100), 20_000),
    Kind("record with a value of 1 KiB", lambda: records(1024), 20_000),
    Kind("log entry of a change of 1 KiB", lambda: changes, 20_000, logs=True),
    Kind("message of 500 characters", lambda: messages, 10_000),
    Kind("session with one message", lambda: sessions, 2_000),
    Kind("fact of 90 characters, by keywords alone", lambda: facts, 1_600, on_redis=False),
    Kind("fact of 90 characters, with the bundled embedder", lambda: facts, 1_600, embedder="bundled", on_redis=False),
    Kind("agent that is open", lambda: agents, 8_000),
    Kind("watch that is open", Watches, 2_000, on_disk=False),
)


async def measure(quick: bool) -> list[tuple[str, Cost, Cost | None]]:
    """Measures everything."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        redis = RedisProcess(Path(name) / "redis", appendonly="no")
        redis.start()
        try:
            for kind in KINDS:
                count = kind.things // 20 if quick else kind.things
                embedded = await cost_of(kind, count, None)
                on_redis = await cost_of(kind, count, redis) if kind.on_redis else None
                print(kind.name, embedded, on_redis, flush=True)
                found.append((kind.name, embedded if kind.on_disk else embedded._replace(disk=None), on_redis))
        finally:
            redis.kill()
    return found


def table_of(found: list[tuple[str, Cost, Cost | None]]) -> str:
    """Returns the table as it stands on the page."""
    lines = [
        "| bytes of a … | data folder: memory | data folder: disk | Redis: its memory | Redis: memory of the server |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, embedded, on_redis in found:
        cells = [
            embedded.memory,
            embedded.disk,
            None if on_redis is None else on_redis.redis,
            None if on_redis is None else on_redis.memory,
        ]
        lines.append(f"| {name} | " + " | ".join("-" if cell is None else _round(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _round(value: float) -> str:
    """Returns two digits that count: more would say more than is known."""
    if value < 10:
        return "0"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"


def main() -> None:
    """Measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few of each, and only print")
    quick = parser.parse_args().quick
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    table = table_of(asyncio.run(measure(quick)))
    print(table)
    if not quick:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
