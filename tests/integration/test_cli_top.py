"""`noosphere top` as it is used: in a terminal, once, for programs, and when the server goes away."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path

import pytest
from tests.support.cli import SECONDS_MAX, Cli, holds
from tests.support.process import NOOSPHERE, ServerProcess
from tests.support.terminal import Terminal
from tests.support.waiting import until

from noosphere.client import connect
from noosphere.server.cli import top_shapes


@pytest.fixture(scope="module")
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


async def test_one_frame_for_people_and_one_for_programs(cli: Cli) -> None:
    mark = uuid.uuid4().hex[:8]
    async with connect(cli.server, agent=f"planner-{mark}") as client:
        await client.shared(f"top-{mark}").put("k", 1)
        shown, document = await asyncio.to_thread(
            cli.run_all, ["top", "--once"], ["top", "--once", "--interval", "0.5", "--json"]
        )
    assert (shown.code, shown.err) == (0, "")
    assert f"planner-{mark}" in shown.text
    assert f"shared/top-{mark}" in shown.text
    assert "\x1b" not in shown.text
    holds(top_shapes.TopShape, document.json)
    assert f"planner-{mark}" in {one["name"] for one in document.json["agents"]}
    assert document.json["agent_count"] >= 1
    assert 0.5 <= document.json["window_seconds"] < 60


@pytest.mark.parametrize("colour", [pytest.param(True, marks=pytest.mark.campaign), False], ids=["colour", "NO_COLOR"])
async def test_a_live_view_ends_in_good_order(cli: Cli, colour: bool) -> None:
    environment = cli.environment({} if colour else {"NO_COLOR": "1"})
    command = [str(NOOSPHERE), "top", "--interval", "0.5"]
    with Terminal(command, environment) as terminal:
        # More than one look: the second has a window of its own.
        await until(lambda: terminal.text.count("noosphere top") >= 3)
        terminal.interrupt()
        assert await asyncio.to_thread(terminal.process.wait, SECONDS_MAX) == 0
        await until(lambda: "\x1b[?1049l" in terminal.raw)
    # The terminal is as it was, and nothing was drawn outside of it.
    assert terminal.raw.count("\x1b[?1049h") == terminal.raw.count("\x1b[?1049l") == 1
    assert terminal.raw.count("\x1b[?25l") == terminal.raw.count("\x1b[?25h")
    assert "Traceback" not in terminal.text
    if not colour:
        assert not re.search(r"\x1b\[(\d+;)*[34][0-7]m", terminal.raw)


@pytest.mark.campaign
async def test_a_server_that_has_gone_is_waited_for_and_the_last_frame_stays(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        server.start()
        async with connect(server.address, agent="the-last-one") as client:
            await client.shared("x").put("k", 1)
        command = [str(NOOSPHERE), "--timeout", "1", "top", "--interval", "0.5", "--patience", "1"]
        with Terminal(command, Cli(server.address).environment()) as terminal:
            await until(lambda: "the-last-one" in terminal.text)
            server.kill()
            assert await asyncio.to_thread(terminal.process.wait, SECONDS_MAX) == 4
            await until(lambda: "noosphere: error:" in terminal.text)
        left = terminal.text[terminal.text.rindex("noosphere top") :]
        assert "no answer for" in left
        assert "the-last-one" in left
        assert "Traceback" not in left
    finally:
        server.close()


def test_a_server_that_is_not_there_is_one_line(cli: Cli) -> None:
    done = Cli("127.0.0.1:9").run("--timeout", "0.2", "top", "--once")
    assert done.code == 4
    assert "127.0.0.1:9" in done.error
