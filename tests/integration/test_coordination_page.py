"""docs/coordination.md is true: its programs run as printed, and can be run again."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from noosphere.client import Client, Member
from noosphere.testing import server

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coordination.md").read_text()
BLOCKS = re.findall(r"<!-- coordination -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
SECONDS_MAX = 60.0


def program(number: int, **names: Any) -> Callable[[Client], Awaitable[None]]:
    """Returns a block of the page as a function of the client; names are what a block takes for granted."""
    source = "async def run(client):\n" + textwrap.indent(BLOCKS[number], "    ")
    exec(compile(source, "docs/coordination.md", "exec"), names)
    run: Callable[[Client], Awaitable[None]] = names["run"]
    return run


async def test_who_deploys_next_writes_over_what_the_last_one_wrote() -> None:
    deploy = program(0)
    async with server() as srv, srv.client("first") as first, srv.client("second") as second:
        await deploy(first)
        await deploy(second)
        state = await first.shared("launch").get("state")
        assert state is not None
        assert state.value == "rolling out"


async def test_nobody_leads_any_more_once_the_block_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    planned = asyncio.Event()

    async def plan_until_cancelled() -> None:
        planned.set()

    lead = program(1, plan_until_cancelled=plan_until_cancelled)
    async with server() as srv, srv.client("planner") as planner:
        await lead(planner)
        await lead(planner)
    assert planned.is_set()
    assert capsys.readouterr().out == ""


async def test_a_group_tells_its_members_of_each_other() -> None:
    class Enough(Exception):
        pass

    def spread_work(members: Sequence[Member]) -> None:
        assert [(member.agent, member.data) for member in members] == [("crawler", {"shard": 3})]
        raise Enough

    crawl = program(2, spread_work=spread_work)
    async with server() as srv, srv.client("crawler") as crawler, asyncio.timeout(SECONDS_MAX):
        for _ in range(2):
            try:
                await crawl(crawler)
            except Enough:
                continue
            raise AssertionError("the watch has ended by itself")
