"""The page with figures for Prometheus, of a real server process."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import urllib.request
from pathlib import Path

from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.process import NOOSPHERE, ServerProcess
from tests.support.sessions import SessionAgent, space

from noosphere.v1 import session_service_pb2 as pb


async def test_a_session_shows_by_its_class_and_never_by_its_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", ("--metrics-listen", "127.0.0.1:0"))
    try:
        server.start()
        line = re.compile(r"serving metrics\S*\s+\S*address\S*?=\S*?(127\.0\.0\.1:\d+)")
        while (found := line.search(_plain(server.stderr))) is None:  # noqa: ASYNC110 # a thread reads what it prints
            await asyncio.sleep(0)
        async with connected(server) as api:
            a = SessionAgent(Agent(api, await api.open_agent("a")))
            settings = pb.SessionSettings(grace_turns=1)
            s = (await a.open("secret-name", labels={"class": "research"}, settings=settings)).id
            await a.agent.put(space(s), "notes/a", "canary")
            await a.turns(s, 14)
        text = await asyncio.to_thread(_read, f"http://{found.group(1)}/metrics")
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
