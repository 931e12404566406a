"""Manifests: soon on disk, for a day, not too many, and nobody waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, space
from tests.support.statuses import refusal

from noosphere.consistency import Reason
from noosphere.server.context.book import GATHER_MS, SESSION_MAX
from noosphere.v1 import session_service_pb2 as session_pb

DAY_MS = 24 * 3600 * 1000
CANARY = "xylophone-canary"


class Scene:
    """A server and an agent with a session on it."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    async def open(self, **fields: bool) -> Scene:
        self.agent = SessionAgent(await self.server.api.agent("a", takeover=True))
        session = await self.agent.open("" if fields else "s", allow_existing=True, **fields)
        self.contexts = ContextAgent(self.agent, session.id)
        return self

    async def written(self) -> None:
        """Lets the time pass for which manifests are gathered; returns once they are written."""
        await self.server.elapse(GATHER_MS)
        await self.server.engine.contexts.book.settle()

    async def head(self) -> int:
        # What is not there is absent as of the head.
        return (await self.agent.agent.get(space(self.contexts.session_id), "absent")).context.prefix


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with local_server(tmp_path) as server:
        yield await Scene(server).open()


async def test_a_manifest_survives_a_restart_and_a_crash_once_it_is_written(scene: Scene) -> None:
    await scene.agent.say("s", "Hello")
    first = await scene.contexts.assemble()
    await scene.server.restart()
    await scene.open()
    assert await scene.contexts.explain(first.id) == first.manifest
    await scene.server.elapse(1)
    second = await scene.contexts.assemble()
    await scene.written()
    await scene.server.crash()
    await scene.open()
    assert await scene.contexts.explain() == second.manifest


async def test_a_crash_before_loses_manifests_and_nothing_else(scene: Scene) -> None:
    await scene.agent.say("s", "Hello")
    await scene.contexts.assemble()
    image = scene.server.image()
    context = await scene.contexts.assemble()
    await scene.server.crash(image)
    await scene.open()
    with refusal(Reason.ENTRY_NOT_FOUND):
        await scene.contexts.explain(context.id)
    assert (await scene.contexts.assemble()).openai == context.openai


async def test_nobody_waits_for_a_manifest_and_a_busy_session_writes_few_commits(scene: Scene) -> None:
    await scene.agent.say("s", "Hello")
    await scene.contexts.assemble()  # the first one makes the session's fence
    before = await scene.head()
    contexts = [await scene.contexts.assemble() for _ in range(20)]
    assert await scene.head() == before
    await scene.written()
    assert await scene.head() == before + 1
    assert await scene.contexts.explain(contexts[0].id) == contexts[0].manifest


async def test_a_manifest_is_kept_for_a_day(scene: Scene) -> None:
    await scene.agent.say("s", "Hello")
    context = await scene.contexts.assemble()
    await scene.server.restart()
    await scene.open()
    await scene.server.elapse(DAY_MS - GATHER_MS)
    assert (await scene.contexts.explain(context.id)).context_id == context.id
    await scene.server.elapse(2 * GATHER_MS)
    with refusal(Reason.ENTRY_NOT_FOUND):
        await scene.contexts.explain(context.id)
    with refusal(Reason.ENTRY_NOT_FOUND):
        await scene.contexts.explain()


async def test_of_one_session_the_newest_manifests_are_kept(scene: Scene) -> None:
    await scene.agent.say("s", "Hello")
    first = await scene.contexts.assemble()
    for _ in range(SESSION_MAX + 64):
        last = await scene.contexts.assemble()
    await scene.server.restart()
    await scene.open()
    await scene.server.elapse(1)
    book = scene.server.engine.contexts.book
    for _ in range(32):
        await scene.contexts.assemble()
        await book.settle()
    kept = await book.recent("s", SESSION_MAX * 2)
    assert SESSION_MAX <= len(kept) <= SESSION_MAX + 64
    assert kept[-1].context_id > last.id
    await scene.server.restart()
    await scene.open()
    with refusal(Reason.ENTRY_NOT_FOUND):
        await scene.contexts.explain(first.id)
    assert (await scene.contexts.explain(last.id)).context_id == last.id


async def test_the_manifest_holds_no_text(scene: Scene) -> None:
    await scene.agent.agent.put(space("s"), "notes/a", f'"{CANARY}"'.encode(), blind=True)
    await scene.agent.say("s", f"Hello {CANARY}")
    context = await scene.contexts.assemble(system=CANARY, notes=[CANARY])
    assert context.text.count(CANARY) == 4
    assert CANARY not in str(await scene.contexts.explain(context.id))
    assert "item:notes/a" in str(context.manifest)


async def test_an_ephemeral_session_leaves_nothing_of_its_contexts(scene: Scene, tmp_path: Path) -> None:
    await scene.open(ephemeral=True)
    s = scene.contexts.session_id
    await scene.agent.agent.put(space(s), f"notes/{CANARY}", f'"{CANARY}"'.encode(), blind=True)
    await scene.agent.say(s, f"Hello {CANARY}")
    context = await scene.contexts.assemble()
    assert CANARY in context.text
    await scene.written()
    await scene.agent.close(s, items=session_pb.ITEM_DISPOSITION_DROP)
    await scene.agent.agent.api.stats()
    with refusal(Reason.SESSION_NOT_FOUND, Reason.ENTRY_NOT_FOUND):
        await scene.contexts.explain(context.id)
    await scene.server.stop()
    assert [path for path in _files(tmp_path) if CANARY.encode() in path.read_bytes()] == []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
