"""The public face of the test kit, pinned, and what it costs those who do not use it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import noosphere.testing as kit
import noosphere.testing.sync as sync_kit

FOLDER = Path(kit.__file__).parent
PUBLIC_MODULES = {"__init__", "pytest_plugin", "pytest_sync_plugin", "sync"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_the_public_names_are_these() -> None:
    assert kit.__all__ == ["REST_SECONDS", "Faults", "ManualClock", "Server", "UnmetFaults", "server"]
    assert sync_kit.__all__ == ["Faults", "Server", "UnmetFaults", "server"]
    assert {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")} | {"__init__"} == PUBLIC_MODULES


def test_every_module_says_what_it_is_for() -> None:
    for path in FOLDER.glob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path.name


def test_the_sync_twin_has_the_same_names_and_parameters() -> None:
    for ours, twin in ((kit.Server, sync_kit.Server), (kit.Faults, sync_kit.Faults)):
        public = {name for name in vars(ours) if not name.startswith("_")}
        assert {name for name in vars(twin) if not name.startswith("_")} == public - {"engine"}
        for name in public - {"engine"}:
            member, same = inspect.getattr_static(ours, name), inspect.getattr_static(twin, name)
            if inspect.isfunction(member):
                expected = [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]
                found = [(p.name, p.kind, p.default) for p in inspect.signature(same).parameters.values()]
                assert found == expected, name


@pytest.mark.campaign
def test_nobody_loads_it_unasked() -> None:
    program = (
        "import sys, noosphere.client, noosphere.client.sync, noosphere.server.app, noosphere.server.cli.main\n"
        "print([name for name in sys.modules if name.startswith('noosphere.testing')])"
    )
    assert run(program) == "[]"


@pytest.mark.campaign
def test_it_says_what_to_install_where_the_server_is_missing() -> None:
    program = (
        "import sys\n"
        "sys.modules['msgspec'] = None\n"
        "try:\n    import noosphere.testing\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    assert run(program) == "msgspec is missing: noosphere.testing needs noosphere[server]"


async def test_a_clock_forgets_timers_that_nobody_waits_for() -> None:
    clock = kit.ManualClock()
    for _ in range(10_000):
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        await clock.wait(done, 60)
    assert len(clock._sleepers) < 1_000


async def test_a_clock_wakes_sleepers_in_the_order_of_their_times() -> None:
    clock = kit.ManualClock()
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleep(seconds)) for seconds in (3, 1, 2, 5)]
    await asyncio.sleep(0)
    clock.advance(3_000)
    await asyncio.wait(tasks[:3])
    assert woken == [1, 2, 3]
    assert not tasks[3].done()
    clock.advance(2_000)
    await tasks[3]


async def test_a_cancelled_sleeper_is_no_trouble() -> None:
    clock = kit.ManualClock()
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    clock.advance(5_000)
    assert clock.wall_ms() - kit.ManualClock().wall_ms() == 5_000
