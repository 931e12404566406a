"""The page with figures for Prometheus, of a real server process."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.process import NOOSPHERE, ServerProcess
from tests.support.sessions import SessionAgent, space
from tests.support.waiting import until

from noosphere.client import Conflict, connect
from noosphere.v1 import session_service_pb2 as pb

OBSERVABILITY = Path(__file__).parents[2] / "docs" / "observability.md"


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, str]]:
    """A server with a page of metrics, and the page's address."""
    server = ServerProcess(tmp_path / "data", ("--metrics-listen", "127.0.0.1:0"))
    try:
        server.start()
        yield server, await page_of(server)
        assert server.terminate() == 0
    finally:
        server.close()


async def page_of(server: ServerProcess) -> str:
    """Returns where a server shows its metrics."""
    line = re.compile(r"serving metrics\S*\s+\S*address\S*?=\S*?(127\.0\.0\.1:\d+)")
    await until(lambda: line.search(_plain(server.stderr)) is not None)
    found = line.search(_plain(server.stderr))
    assert found is not None
    return f"http://{found.group(1)}/metrics"


async def test_series_are_those_that_are_documented(
    measured: tuple[ServerProcess, str],
) -> None:
    server, page = measured
    async with connect(server.address, agent="a") as a, connect(server.address, agent="b", coalesce=True) as b:
        mine = await a.shared("metrics").put("k", 1)
        theirs = await b.shared("metrics").get("k")
        assert theirs is not None
        await mine.replace(2)
        with pytest.raises(Conflict):
            await theirs.replace(3)
        async with a.shared("metrics").watch(after=0) as changes:
            assert (await anext(changes)).revision == mine.version
        text = await asyncio.to_thread(_read, page)
    there = set(re.findall(r"^# TYPE (noosphere_\w+) ", text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(noosphere_\w+)`", OBSERVABILITY.read_text(), re.MULTILINE))
    assert {name for name in there if not name.endswith("_created")} == documented
    assert 'noosphere_rpc_calls_total{code="OK",method="MemoryService/Get"}' in text
    assert 'noosphere_conflicts_total{class="shared",outcome="refused",policy="reject"} 1.0' in text
    assert 'noosphere_rpc_duration_seconds_count{method="MemoryService/Put"}' in text
    assert 'noosphere_port_duration_seconds_count{operation="commit",port="store"}' in text
    assert "noosphere_state_known 1.0" in text
    assert "noosphere_agents 2.0" in text


@pytest.mark.campaign
async def test_series_do_not_grow_with_agents_and_namespaces(measured: tuple[ServerProcess, str]) -> None:
    server, page = measured

    async def fill(first: int, last: int) -> None:
        async with connect(server.address, agent=f"agent-{first}", coalesce=True) as client:
            for begin in range(first, last, 100):
                await asyncio.gather(*(client.shared(f"space-{n}").put("k", n) for n in range(begin, begin + 100)))

    async def series() -> set[str]:
        text = await asyncio.to_thread(_read, page)
        assert "space-" not in text
        assert "agent-" not in text
        return set(re.findall(r"^(noosphere_\S+) ", text, re.MULTILINE))

    await fill(0, 100)
    before = await series()
    await asyncio.gather(*(fill(100 * n, 100 * n + 100) for n in range(1, 10)))
    # What is new are ways in which calls of other methods have ended: a few, not one for each of 900 names.
    after = await series()
    assert len(after - before) < 100
    assert len(after) < 1_000


async def test_a_session_shows_by_its_class_and_never_by_its_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", ("--metrics-listen", "127.0.0.1:0"))
    try:
        server.start()
        page = await page_of(server)
        async with connected(server) as api:
            a = SessionAgent(Agent(api, await api.open_agent("a")))
            settings = pb.SessionSettings(grace_turns=1)
            s = (await a.open("secret-name", labels={"class": "research"}, settings=settings)).id
            await a.agent.put(space(s), "notes/a", "canary")
            await a.turns(s, 14)
        text = await asyncio.to_thread(_read, page)
        assert 'noosphere_session_transitions_total{action="archive",class="research"} 1.0' in text
        assert 'noosphere_session_state_lifespan_turns_count{class="research"}' in text
        for secret in ("secret-name", "canary", "notes/a"):
            assert secret not in text
        assert server.terminate() == 0
    finally:
        server.close()


def test_an_address_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [NOOSPHERE, "serve", "--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--metrics-listen", address],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 3
    assert f"cannot listen on {address} for metrics: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as page:
        found: str = page.read().decode()
    return found


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
