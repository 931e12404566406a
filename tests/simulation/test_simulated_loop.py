"""The loop and the network of simulations: one seed, one course of events; nothing gets out."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.world.guards import sealed
from tests.simulation.world.loop import Escaped, SimLoop, Stuck, run
from tests.simulation.world.network import GIVE_UP_SECONDS, Network


def simulate(seed: int, main: Callable[[Network], Coroutine[Any, Any, Any]], seconds_max: float = 1000.0) -> Any:
    loop = SimLoop(seed)
    network = Network(loop)
    with sealed(loop):
        found = run(loop, main(network), seconds_max)
    assert loop.failures == []
    return found


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def course(network: Network) -> list[object]:
    """Does something of everything that a seed decides."""
    happened: list[object] = []
    names = ("alpha", "beta", "gamma", "delta")

    async def walk(name: str) -> None:
        for step in range(5):
            happened.append((name, step, asyncio.get_running_loop().time()))
            await asyncio.sleep(random.random() if step % 2 else 0)
            happened.append(await asyncio.to_thread(len, name))

    await asyncio.gather(*map(walk, names))
    done, _ = await asyncio.wait({asyncio.create_task(walk(name), name=name) for name in names})
    happened.append([task.get_name() for task in done])
    await asyncio.get_running_loop().create_server(Echo, "echo", 7)
    reader, writer = await asyncio.open_connection("echo", 7)
    for name in names:
        writer.write(name.encode())
    happened.append(await reader.readexactly(sum(map(len, names))))
    writer.close()
    happened += [uuid.uuid4(), os.urandom(4), time.time(), time.monotonic_ns()]
    return happened


def test_a_seed_replays_and_another_differs() -> None:
    first, again, other = (repr(simulate(seed, course)) for seed in (5, 5, 6))
    assert first == again != other


def test_a_seed_replays_in_processes_that_hash_otherwise() -> None:
    code = "import tests.simulation.test_simulated_loop as t; print(t.simulate(5, t.course))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "77")
    }
    assert told == {f"{simulate(5, course)}\n".encode()}


def test_time_jumps() -> None:
    async def main(network: Network) -> float:
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3600)
        return network.loop.time()

    assert simulate(1, main, 10_000) == pytest.approx(1_000 + 7_200, abs=0.001)


def test_tasks_that_are_ready_together_run_in_any_order_and_callbacks_in_theirs() -> None:
    async def main(network: Network) -> tuple[str, str]:
        tasks: list[str] = []
        callbacks: list[str] = []

        async def step(name: str) -> None:
            tasks.append(name)

        for name in "abcd":
            network.loop.call_soon(callbacks.append, name)
        await asyncio.gather(*map(step, "abcd"))
        return "".join(tasks), "".join(callbacks)

    seen = {simulate(seed, main) for seed in range(40)}
    assert {callbacks for _, callbacks in seen} == {"abcd"}
    assert len(seen) > 10


@pytest.mark.parametrize(
    ("escape", "how"),
    [
        (lambda: random.Random(), "seeds itself"),
        (lambda: threading.Thread(target=print).start(), "thread"),
        (lambda: socket.socket(), "socket"),
        (lambda: exec("import time; time.time()", {"__name__": "noosphere.server.example"}), "time.time"),
    ],
)
def test_what_no_seed_decides_fails(escape: Callable[[], object], how: str) -> None:
    async def main(_: Network) -> None:
        escape()

    loop = SimLoop(1)
    Network(loop)
    with sealed(loop), pytest.raises(Escaped, match=how):
        run(loop, main(loop.network), 10)  # type: ignore[arg-type] # just made
    assert len(loop.failures) == 1


def test_what_never_ends_is_stuck() -> None:
    async def waits(_: Network) -> None:
        await asyncio.Event().wait()

    async def goes_on(_: Network) -> None:
        while True:  # noqa: ASYNC110 # for ever is what it is about
            await asyncio.sleep(1)

    for main in (waits, goes_on):
        with pytest.raises(Stuck):
            simulate(1, main)


def test_what_a_partition_holds_up_arrives_or_the_connection_breaks() -> None:
    async def main(network: Network) -> None:
        await asyncio.get_running_loop().create_server(Echo, "echo", 7)
        reader, writer = await asyncio.open_connection("echo", 7)
        network.cut("nowhere", "echo")
        writer.write(b"first ")
        await asyncio.sleep(GIVE_UP_SECONDS / 2)
        writer.write(b"second")
        network.heal()
        assert await reader.readexactly(12) == b"FIRST SECOND"
        network.cut("echo", "nowhere", both=False)
        writer.write(b"third")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        assert network.loop.time() > 1_000 + GIVE_UP_SECONDS

    for seed in range(10):
        simulate(seed, main)


def test_nobody_connects_to_who_does_not_listen() -> None:
    async def main(network: Network) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("echo", 7)
        await asyncio.get_running_loop().create_server(Echo, "echo", 7)
        reader, _ = await asyncio.open_connection("echo", 7)
        network.crash("echo")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("echo", 7)

    simulate(1, main)


def test_a_generator_that_is_left_is_closed() -> None:
    async def main(network: Network) -> list[str]:
        happened: list[str] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                happened.append("closed")

        async for _ in numbers():
            break
        await asyncio.sleep(1)
        return happened

    assert simulate(1, main) == ["closed"]
