"""Ephemeral sessions: like others while they live, and nothing of them is left once they are closed."""

from __future__ import annotations

import asyncio
import gc
import json
import urllib.request
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.process import ServerProcess
from tests.support.sessions import SessionAgent, caller, refusal, space, text_of, texts
from tests.support.toolcalls import finish, start, upload
from tests.support.watching import watching
from tests.support.worlds import LocalWorld, SocketWorld, World

from noosphere.server.memory.cache_drops import LOOK_SECONDS
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import session_service_pb2 as pb


def canary() -> str:
    """Returns the text that must not be found; nothing else holds it as a whole."""
    return "-".join(("canary", "7f3a91", "of an ephemeral session"))


async def test_its_id_is_issued_and_it_is_not_listed(world: World) -> None:
    a = await caller(world)
    session = await a.open(ephemeral=True, title="secret")
    assert session.id.startswith("~")
    assert (session.ephemeral, session.title) == (True, "secret")
    await a.say(session.id, "hello")
    assert texts(await a.messages(session.id)) == ["hello"]
    assert session.id not in [listed.id for listed in await a.listed(owner=session.owner)]
    for status in (pb.SESSION_STATUS_OPEN, pb.SESSION_STATUS_CLOSED):
        assert await a.listed(owner=session.owner, status=status) == []


async def test_it_keeps_checkpoints_and_branches_like_any_other(world: World) -> None:
    a = await caller(world)
    s = (await a.open(ephemeral=True)).id
    await a.agent.put(space(s), "k", "old")
    point = await a.checkpoint(s)
    await a.agent.put(space(s), "k", "new", blind=True)
    await a.say(s, "hello")
    await a.restore(s, point.id)
    assert (await a.items(s), await a.messages(s)) == ({"k": b'"old"'}, [])


async def test_once_it_is_closed_nothing_is_told_of_it(world: World) -> None:
    a, b = await caller(world), await caller(world, "b")
    request = pb.OpenSessionRequest(ephemeral=True, title=canary(), call=a.agent.call(sequence=1))
    s = (await a.call("OpenSession", request, pb.OpenSessionResponse)).session.id
    append = pb.AppendMessagesRequest(session_id=s, call=a.agent.call(sequence=2))
    append.messages.add(role=pb.ROLE_USER, id="m").parts.add(text=canary())
    await a.call("AppendMessages", append, pb.AppendMessagesResponse)
    await a.agent.put(space(s), "k", canary())
    closed = await a.close(s, items=pb.ITEM_DISPOSITION_KEEP)
    assert closed.session.status == pb.SESSION_STATUS_CLOSED
    again = await b.close(s)
    assert canary() not in f"{closed}{again}"
    for attempt in (
        a.get(s),
        a.messages(s),
        a.checkpoints(s),
        a.say(s, "late"),
        a.call("OpenSession", request, pb.OpenSessionResponse),
        a.call("AppendMessages", append, pb.AppendMessagesResponse),
    ):
        with refusal("SESSION_NOT_FOUND"):
            await attempt
    for read in (a.agent.get(space(s), "k"), a.agent.listing(space(s)), a.agent.history(space(s))):
        with refusal("NAMESPACE_DELETED"):
            await read
    assert await b.purge(s) == 0


async def test_pending_calls_may_keep_it_open(world: World) -> None:
    a = await caller(world)
    s = (await a.open(ephemeral=True)).id
    ticket = (await start(a, s, "c1")).ticket
    with refusal("CALLS_PENDING", "'c1'"):
        await a.close(s, pending_calls=pb.PENDING_CALLS_REFUSE)
    await a.close(s)
    with refusal("SESSION_NOT_FOUND"):
        await finish(a, ticket)


async def test_a_restart_ends_it(local: LocalServer) -> None:
    world = LocalWorld(local)
    for again in (local.restart, local.crash):
        a = await caller(world)
        s = (await a.open(ephemeral=True)).id
        await a.say(s, "hello")
        await again()
        a = await caller(world)
        with refusal("SESSION_NOT_FOUND", s):
            await a.messages(s)


async def test_an_idle_one_is_dropped(local: LocalServer) -> None:
    world = LocalWorld(local)
    a = await caller(world)
    s = (await a.open(ephemeral=True, settings=pb.SessionSettings(idle_timeout=Duration(seconds=60)))).id
    await local.elapse(61_000)
    await local.sweep()
    with refusal("SESSION_NOT_FOUND"):
        await a.get(s)


async def live(a: SessionAgent, s: str) -> None:
    """Leaves the canary wherever a session can hold text."""
    await a.update(s, title=canary(), set_labels={"label": canary()})
    await a.begin_turn(s)
    await a.say(s, canary(), id="m1")
    await a.say(s, canary())
    await a.agent.put(space(s), "goals/one", canary(), attributes={"kind": canary()})
    await a.set_control(s, control=pb.ControlState(next_node=canary()))
    point = await a.checkpoint(s, name=canary())
    await a.agent.put(space(s), "goals/one", canary() + " again", blind=True)
    await a.restore(s, point.id)
    call = await start(a, s, "c1", name=canary(), arguments=f'{{"q": "{canary()}"}}')
    await finish(a, call.ticket, {"found": [canary()] * 5_000}, append_message=True)
    late = await start(a, s, "c2")
    await upload(a, late.ticket, canary().encode() * 20_000)
    await a.end_turn(s)
    assembled = await ContextAgent(a, s).assemble(canary(), model="gpt-4o")
    assert canary() in assembled.text
    health = pb.GetSessionHealthRequest(session_id=s)
    await a.call("GetSessionHealth", health, pb.GetSessionHealthResponse)
    await a.call("RunTransitions", pb.RunTransitionsRequest(session_id=s), pb.RunTransitionsResponse)
    await a.retract(s, "m1")
    assert canary() in [text_of(message) for message in await a.messages(s)]
    await a.agent.listing(space(s))
    async with watching(a.agent, space(s), after=0) as watch:
        await watch.batches(5)


async def test_its_text_is_in_no_file_log_metric_or_reply(tmp_path: Path) -> None:
    options = ("--log-level", "debug", "--log-format", "json", "--metrics-listen", "127.0.0.1:0")
    server = ServerProcess(tmp_path / "data", options)
    told: list[str] = []
    try:
        server.start()
        async with connected(server) as api:
            a = await caller(SocketWorld(server, api.transport))
            ids = [(await a.open(ephemeral=True)).id for _ in range(2)]
            for s in ids:
                await live(a, s)
            told.append(str(await a.close(ids[0])))
            kept = await a.open()
            await a.say(kept.id, "kept-55c1")
            told.append(str(await api.list_namespaces(admin.ListNamespacesRequest(show_deleted=True))))
            told.append(str(await api.stats()))
            told.append(await asyncio.to_thread(_metrics, server))
            assert "noosphere" in told[-1]
            # The other one is not closed: the end of the process has to do.
        assert server.terminate() == 0
        told.append(server.stderr)
    finally:
        server.close()
    files = _contents(tmp_path)
    assert any(b"kept-55c1" in content for content in files.values()), "the search finds what is there"
    assert [name for name, content in files.items() if b"7f3a91" in content] == []
    assert [text for text in told if "7f3a91" in text] == []


async def test_the_process_holds_nothing_of_it_either(local: LocalServer) -> None:
    a = await caller(LocalWorld(local))
    s = (await a.open(ephemeral=True)).id
    await live(a, s)
    assert _held("7f3a91"), "the search finds what is there"
    await a.close(s)
    await local.elapse(1)
    assert _held("7f3a91") == []


async def test_no_replica_holds_anything_of_it_either(tmp_path: Path) -> None:
    async with local_server(tmp_path, replicas=2) as replicas:
        a = await caller(LocalWorld(replicas))
        s = (await a.open(ephemeral=True)).id
        # Each call goes to any of them.
        await live(a, s)
        for api in replicas.apis:
            await SessionAgent(Agent(api, a.agent.actor)).messages(s)
            await ContextAgent(SessionAgent(Agent(api, a.agent.actor)), s).assemble("And now?")
        assert _held("7f3a91"), "the search finds what is there"
        await SessionAgent(Agent(replicas.apis[0], a.agent.actor)).close(s)
        await replicas.elapse(int(LOOK_SECONDS * 1_000))
        await replicas.elapse(1)
        assert _held("7f3a91") == []


def _metrics(server: ServerProcess) -> str:
    lines = map(json.loads, server.stderr.splitlines())
    (address,) = [line["address"] for line in lines if line["event"] == "serving metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _held(text: str) -> list[str]:
    """Returns what sort of objects hold a text other than the code of this test."""
    gc.collect()
    found = []
    for holder in gc.get_objects():
        for held in gc.get_referents(holder):
            if isinstance(held, bytes | bytearray):
                hit = text.encode() in held
            else:
                hit = isinstance(held, str) and text in held
            if hit and held not in (text, text.encode()) and not _is_code(holder):
                found.append(f"{type(holder).__name__}: {held[:80]!r}")
    return found


def _is_code(holder: object) -> bool:
    return isinstance(holder, tuple) and canary.__code__.co_consts in (holder, *holder)
