"""One agent that went bad: it is seen, fenced, and what it wrote is taken back."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.support.api import Agent
from tests.support.cli import Cli, holds
from tests.support.engine import LocalServer, local_server
from tests.support.etcd import needs_etcd
from tests.support.facts import FactAgent
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.sessions import SessionAgent, space
from tests.support.statuses import refusal
from tests.support.transport import ADMIN
from tests.support.waiting import until

from noosphere.client import NoosphereError, connect
from noosphere.consistency import Reason
from noosphere.server.cli import guarding_shapes as shapes
from noosphere.server.memory.fencing import TABLE
from noosphere.v1 import admin_agents_pb2 as pb
from noosphere.v1 import coordination_service_pb2 as locks_pb

SPACE = "shared/work"


async def admin(agent: Agent, method: str, request: Any, kind: type[Any]) -> Any:
    if isinstance(request, Message) and "call" in request.DESCRIPTOR.fields_by_name:
        request.call.CopyFrom(agent.call())  # type: ignore[attr-defined] # it has the field
    return await agent.api.transport.unary(ADMIN, method, request, kind)


async def show(agent: Agent, name: str = "bad") -> pb.GetAgentResponse:
    found: pb.GetAgentResponse = await admin(agent, "GetAgent", pb.GetAgentRequest(agent_id=name), pb.GetAgentResponse)
    return found


async def fence(agent: Agent, name: str = "bad", why: str = "") -> pb.FenceAgentResponse:
    request = pb.FenceAgentRequest(agent_id=name, why=why)
    found: pb.FenceAgentResponse = await admin(agent, "FenceAgent", request, pb.FenceAgentResponse)
    return found


async def revert(agent: Agent, **fields: Any) -> dict[tuple[str, str], str]:
    request = pb.RevertAgentRequest(agent_id="bad", **fields)
    reply = await admin(agent, "RevertAgent", request, pb.RevertAgentResponse)
    name = pb.RevertOutcome.Name
    return {(one.namespace, one.key): name(one.outcome).removeprefix("REVERT_OUTCOME_") for one in reply.records}


async def lock(agent: Agent, name: str) -> None:
    request = locks_pb.AcquireLockRequest(name=name, call=agent.call())
    request.lease.FromSeconds(60)
    await agent.api.transport.unary(
        "noosphere.v1.CoordinationService", "AcquireLock", request, locks_pb.AcquireLockResponse
    )


async def test_an_agent_is_shown_with_what_it_holds(local: LocalServer) -> None:
    bad, op = await local.api.agent("bad"), await local.api.agent("cli/op")
    await op.put(SPACE, "tasks/1", "{}")
    task = await bad.claim(SPACE, "tasks/")
    assert task is not None
    await lock(bad, "deploy")
    await lock(op, "other")
    session = await SessionAgent(bad).open("its")
    await SessionAgent(op).open("not-its")
    found = await show(op)
    assert (found.incarnation, found.active, found.complete) == (bad.actor.incarnation, True, True)
    assert [(one.namespace, one.key, one.fence) for one in found.claims] == [(SPACE, "tasks/1", task.claim.fence)]
    assert (list(found.locks), list(found.session_ids), found.session_count) == (["deploy"], [session.id], 1)
    assert not found.HasField("fence")
    unknown = await show(op, "nobody")
    assert (unknown.incarnation, unknown.active) == (0, False)
    with refusal(Reason.INVALID_FIELD):
        await show(op, "")


async def test_a_fenced_agent_ends_with_all_that_it_holds_and_gets_no_new_life(local: LocalServer) -> None:
    bad, op = await local.api.agent("bad"), await local.api.agent("cli/op")
    await op.put(SPACE, "tasks/1", "{}")
    assert await bad.claim(SPACE, "tasks/", lease_ms=3_600_000) is not None
    await lock(bad, "deploy")
    reply = await fence(op, why="it writes nonsense")
    assert (reply.actor, reply.released_claims) == (f"bad#{bad.actor.incarnation}", 1)
    assert await op.claim(SPACE, "tasks/") is not None
    await lock(op, "deploy")
    with refusal(Reason.STALE_INCARNATION):
        await bad.put(SPACE, "x", "1")
    for takeover in (False, True):
        with refusal(Reason.PERMISSION_DENIED):
            await local.api.agent("bad", takeover=takeover)
    await local.restart()
    with refusal(Reason.PERMISSION_DENIED):
        await local.api.agent("bad")
    op = await local.api.agent("cli/op")
    found = await show(op)
    assert (found.active, found.fence.by, found.fence.why) == (False, "cli/op", "it writes nonsense")
    assert (await fence(op)).actor == "", "there is nothing left to end"
    was = await admin(op, "UnfenceAgent", pb.UnfenceAgentRequest(agent_id="bad"), pb.UnfenceAgentResponse)
    assert was.was_fenced
    await (await local.api.agent("bad")).put(SPACE, "x", "1")


async def test_replicas_all_refuse_a_fenced_agent(tmp_path: Path) -> None:
    async with local_server(tmp_path, replicas=2) as local:
        bad, op = await local.apis[1].agent("bad"), await local.apis[0].agent("cli/op")
        fencing = asyncio.create_task(fence(op))
        await until(lambda: "bad" in local.engine.memory.core.coordinator.table(TABLE))
        with refusal(Reason.PERMISSION_DENIED):
            await local.apis[1].agent("bad", takeover=True)
        while not fencing.done():
            await local.elapse(2_000)
        assert (await fencing).actor == f"bad#{bad.actor.incarnation}"


async def test_records_go_back_everywhere_by_time_and_what_cannot_is_told(local: LocalServer) -> None:
    bad, good, op = [await local.api.agent(name) for name in ("bad", "good", "cli/op")]
    await good.put(SPACE, "plan", "good", attributes={"kind": "plan"})
    await good.add(SPACE, "count", 5)
    await good.put(SPACE, "overwritten", 1)
    session = await SessionAgent(good).open("s")
    await good.put(space(session.id), "notes/a", "good")
    await local.elapse(10)
    since = pb.RevertAgentRequest().since_time
    since.FromMilliseconds(local.clock.wall_ms() - 1)
    await bad.put(SPACE, "plan", "bad", blind=True)
    await bad.put(SPACE, "new", "1")
    await bad.put("shared/else", "new", "1")
    await bad.put("agents/bad", "own", "1")
    await bad.add(SPACE, "count", 95)
    await bad.put(SPACE, "overwritten", 2, blind=True)
    await good.put(SPACE, "overwritten", 3, blind=True)
    await bad.put(space(session.id), "notes/a", "bad", blind=True)
    assert await revert(op, since_time=since) == {
        (SPACE, "plan"): "RESTORED",
        (SPACE, "new"): "DELETED",
        ("shared/else", "new"): "DELETED",
        ("agents/bad", "own"): "DELETED",
        (SPACE, "count"): "UNSUPPORTED",
        (SPACE, "overwritten"): "CONFLICT",
        (space(session.id), "notes/a"): "RESTORED",
    }
    plan = await op.get(SPACE, "plan")
    assert plan.values[0].value.data == b'"good"'
    assert plan.values[0].actor == f"cli/op#{op.actor.incarnation}"
    assert plan.attributes["kind"].string_value == "plan"
    assert (await op.get(SPACE, "overwritten")).values[0].value.data == b"3"
    assert not (await op.get("shared/else", "new")).values
    assert (await op.get(space(session.id), "notes/a")).values[0].value.data == b'"good"'


async def test_what_the_log_does_not_tell_any_more_is_left_alone(local: LocalServer) -> None:
    bad, good, op = [await local.api.agent(name) for name in ("bad", "good", "cli/op")]
    await good.put(SPACE, "old", "1")
    core = local.engine.memory.core
    ref = await core.locate(SPACE)
    await core.store.compact(ref, (await core.store.read(ref, ())).view.head)
    await bad.put(SPACE, "old", 2, blind=True)
    await bad.put(SPACE, "new", "2")
    assert await revert(op, namespace=SPACE, since_revision=0, force=True) == {
        (SPACE, "old"): "COMPACTED",
        (SPACE, "new"): "DELETED",
    }
    assert (await op.get(SPACE, "old")).values[0].value.data == b"2"


async def test_a_revision_alone_means_nothing(local: LocalServer) -> None:
    op = await local.api.agent("cli/op")
    for fields in ({"since_revision": 1}, {"namespace": SPACE}, {"namespace": "nowhere", "since_revision": 1}):
        with refusal(Reason.INVALID_FIELD):
            await revert(op, **fields)
    assert await FactAgent(op).listed("user/1") == []


async def test_commands_show_fence_revert_and_unfence(binary: ServerProcess) -> None:
    cli, number = Cli(binary.address), uuid.uuid4().hex[:8]
    bad_name, work = f"bad-{number}", f"shared/work-{number}"
    async with connect(binary.address, agent=f"good-{number}") as good:
        await good.namespace(work).put("plan", "good")
    async with connect(binary.address, agent=bad_name) as bad:
        await bad.namespace(work).put("plan", "bad", blind=True)
        shown = cli.ok("agent", "show", bad_name, "--json").json
        holds(shapes.AgentShape, shown)
        assert (shown["active"], shown["calls"] > 0) == (True, True)
        fenced = cli.ok("agent", "fence", bad_name, "--why", "nonsense", "--json").json
        holds(shapes.AgentFencedShape, fenced)
        assert fenced["ended"].startswith(f"{bad_name}#")
        with pytest.raises(NoosphereError):
            await bad.namespace(work).put("plan", "bad again", blind=True)
    assert any("nonsense" in line for line in cli.ok("agent", "show", bad_name).lines)
    planned = cli.ok("agent", "revert", bad_name, "--since", "2020-01-01", "--dry-run", "--json").json
    holds(shapes.RevertedShape, planned)
    assert (planned["outcome"], planned["key"]) == ("restored", "plan")
    assert cli.run("agent", "revert", bad_name, "--since", "7").error.startswith("--since with a revision needs")
    assert cli.run("agent", "revert", bad_name, "--since", "soon").code == 2
    assert cli.ok("agent", "revert", bad_name, "--namespace", work, "--since", "0").lines[-1] == "1 restored"
    record = json.loads(cli.ok("get", work, "plan", "--json").text)
    assert record["values"][0]["value"] == "good"
    assert cli.ok("agent", "unfence", bad_name).text == f"agent {bad_name!r} is allowed again\n"


@needs_redis
@needs_etcd
async def test_a_fence_is_in_force_at_every_server_of_a_fleet(replicas_on_engines: Fleet) -> None:
    first, second = replicas_on_engines.servers
    async with connect(second.address, agent="bad-of-fleet") as bad:
        await bad.namespace("shared/fenced").put("x", 1)
        assert Cli(first.address).ok("agent", "fence", "bad-of-fleet", "--json").json["ended"] == bad.actor
        with pytest.raises(NoosphereError):
            await bad.namespace("shared/fenced").put("x", 2, blind=True)
    for server in (first, second):
        with pytest.raises(NoosphereError, match="fenced"):
            async with connect(server.address, agent="bad-of-fleet"):
                pass
