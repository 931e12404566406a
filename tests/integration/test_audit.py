"""The audit log of a real server, and the commands that read it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.cli import SECONDS_MAX, Cli, holds
from tests.support.process import NOOSPHERE, ServerProcess

from noosphere.client import connect
from noosphere.server.cli import guarding_shapes as shapes


async def test_calls_by_themselves_and_in_pipelines_are_noted_without_their_values(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    server = ServerProcess(tmp_path / "data", ("--audit-log", str(log), "--audit-reads-full", "shared/watched"))
    try:
        server.start()
        async with connect(server.address, agent="planner") as client:
            watched = client.namespace("shared/watched")
            version = (await watched.put("plan/next", {"canary": "value-4711"})).version
            await watched.get("plan/next")
            other = client.namespace("shared/other")
            await other.put("x", 1)
        cli = Cli(server.address)
        assert cli.run("get", "shared/other", "none").code == 1
        assert server.terminate() == 0
    finally:
        server.close()
    text = log.read_text()
    assert "4711" not in text
    shown = Cli().ok("audit", "show", str(log), "--about", "shared/watched", "--json").json_lines
    holds(shapes.AuditShape, shown[0])
    assert [entry["method"] for entry in shown] == ["MemoryService/Put", "MemoryService/Get"]
    assert {entry["versions"][0] for entry in shown} == {str(version)}
    assert shown[0]["agent"].startswith("planner#")
    assert shown[0]["inside_pipeline"]
    assert shown[0]["peer"].startswith("ipv4:127.0.0.1:")
    (one,) = Cli().ok("audit", "tail", str(log), "-n", "1", "--about", "shared/other*", "--by", "planner").lines
    assert "  OK  MemoryService/Put  planner#" in one
    assert "  shared/other  x  at " in one


def test_a_log_that_cannot_be_opened_or_read_is_told(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", ("--audit-log", str(tmp_path / "none" / "log")))
    cli = Cli()
    done = cli.run("serve", "--data", str(server.data), "--listen", "127.0.0.1:0", *server.options)
    assert (done.code, done.error.startswith("cannot open the audit log ")) == (3, True)
    assert cli.run("audit", "show").error == "no file is named, and audit_log is not set to one"
    missing = cli.run("audit", "tail", str(tmp_path / "log"))
    assert (missing.code, missing.error) == (1, f"there is no audit log {tmp_path / 'log'}")


@pytest.mark.campaign
def test_followers_go_on_in_the_next_file(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    line = json.dumps({"time_ms": 1, "method": "MemoryService/Put"}) + "\n"
    log.write_text(line * 2)
    command = [str(NOOSPHERE), "audit", "tail", str(log), "-n", "1", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert "MemoryService/Put" in follower.stdout.readline()
        log.rename(tmp_path / "audit.jsonl.1")
        log.write_text(line.replace("Put", "Delete"))
        assert "MemoryService/Delete" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(SECONDS_MAX) == 0
