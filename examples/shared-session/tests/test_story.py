"""The story, as it is started from a shell."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from noosphere.client import Client
from noosphere.testing import Server

SOURCES = Path(__file__).resolve().parents[1] / "src"
SECONDS_MAX = 60
"""A bound against hanging."""


async def test_the_story_goes_as_the_readme_tells(noosphere_server: Server, noosphere_client: Client) -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "NOOSPHERE_SERVER": noosphere_server.address}
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shared_session",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        printed, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()
    before, after = (SOURCES.parent / "README.md").read_text().split("`plan/main: changed, by …`")
    told = [line.strip() for line in before.splitlines() if line.startswith("    planner: ")]
    told += ["`plan/main: changed, by client/", "Read it again before you decide."]
    told += [line.strip() for line in after.partition("| file")[0].splitlines() if line.startswith("    ")]
    assert len(told) == 8
    for words in told:
        assert words in printed.decode()
    session_id = printed.decode().split()[-1]
    async with noosphere_client.session(session_id, existing="required") as session:
        written = [message.text async for message in session.messages() if message.role == "assistant"]
    assert written == ["Costs\nRisks", "Returns\nRisks", "It brings twenty.", "It may fail."]
