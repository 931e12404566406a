"""The audit log of a real server, and the commands that read it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import grpc
import pytest
from tests.support.cli import SECONDS_MAX, Cli, holds
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.process import NOOSPHERE, ServerProcess

from noosphere.client import connect
from noosphere.server.cli import guarding_shapes as shapes
from noosphere.server.security.audit import read_line
from noosphere.server.security.minting import Wanted
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub


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
        assert server.terminate() == 0
    finally:
        server.close()
    text = log.read_text()
    assert "4711" not in text
    shown = Cli().ok("audit", "show", str(log), "--about", "shared/watched", "--json").json_lines
    holds(shapes.AuditShape, shown[0])
    # On a slow machine an attempt may come again.
    assert list(dict.fromkeys(entry["method"] for entry in shown)) == ["MemoryService/Put", "MemoryService/Get"]
    assert {entry["versions"][0] for entry in shown} == {str(version)}
    assert shown[0]["agent"].startswith("planner#")
    assert shown[0]["inside_pipeline"]
    assert shown[0]["peer"].startswith("ipv4:127.0.0.1:")
    (one,) = Cli().ok("audit", "tail", str(log), "-n", "1", "--about", "shared/other*", "--by", "planner").lines
    assert "  OK  MemoryService/Put  planner#" in one
    assert "  shared/other  x  at " in one


async def test_denials_are_noted_with_who_proved_what_and_never_a_token(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "audit.jsonl"
    (made,) = await mint_offline(data, Wanted("planner"))
    forged = "noo_forged-token-4711"
    settings = {"tokens": True, "audit_log": str(log), "audit_reads": 0.0}
    async with serving(data, **settings) as address, open_channel(address) as channel:
        memory = MemoryServiceStub(channel)
        actor = (await memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner"), metadata=bearer(made.text))).actor
        for namespace, token in (("agents/planner", made.text), ("agents/other", made.text), ("agents/x", forged)):
            put = pb.PutRequest(namespace=namespace, put={"key": "k"})  # type: ignore[arg-type]
            put.put.value.data, put.put.value.encoding = b"1", types_pb2.ENCODING_JSON
            put.call.actor.CopyFrom(actor)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await memory.Put(put, metadata=bearer(token))
        get = pb.GetRequest(namespace="agents/other", key="k")
        for metadata in (bearer(made.text), ()):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await memory.Get(get, metadata=metadata)
    found = [read_line(line) for line in log.read_bytes().splitlines()]
    told = [(one.method, one.target, one.code, one.principal) for one in found if one is not None]
    assert told[1:] == [
        ("MemoryService/Put", "agents/planner", "OK", "planner"),
        ("MemoryService/Put", "agents/other", "PERMISSION_DENIED", "planner"),
        ("MemoryService/Put", "agents/x", "UNAUTHENTICATED", ""),
        ("MemoryService/Get", "agents/other", "PERMISSION_DENIED", "planner"),
        ("MemoryService/Get", "agents/other", "UNAUTHENTICATED", ""),
    ]
    assert {one.credential for one in found if one is not None and one.principal} == {f"noo_{made.token_id}"}
    text = log.read_text()
    assert made.text not in text
    assert made.text.rpartition("_")[2] not in text
    assert forged not in text


@pytest.mark.campaign
def test_a_log_that_cannot_be_opened_or_read_is_told(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", ("--audit-log", str(tmp_path / "none" / "log")))
    cli = Cli()
    done = cli.run("serve", "--data", str(server.data), "--listen", "127.0.0.1:0", *server.options)
    assert (done.code, done.error.startswith("cannot open the audit log ")) == (3, True)
    unnamed = cli.run("audit", "show")
    assert (unnamed.code, unnamed.error.startswith("FILE is not given, and audit_log of this")) == (2, True)
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
