"""Entries of the coordinator's tables that this version cannot read: nothing else suffers from them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.engine import LocalServer, local_server
from tests.support.statuses import refusal
from tests.support.transport import ADMIN

from noosphere.consistency import NamePattern, Reason
from noosphere.server.memory import fencing
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.security import limit_rules
from noosphere.v1 import admin_agents_pb2 as agents_pb

NONSENSE = (b"", b"\xff", b"[]", b"null", b'{"records_max": 1e400}', b'{"records_max": -1}', b'{"records_max": true}',
            b'{"records_max": "many"}', b'{"levitating_max": 1}', b"[" * 10_000)  # fmt: skip


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path) as local:
        yield local


async def test_a_limit_that_cannot_be_read_is_not_in_force_and_all_others_are(local: LocalServer) -> None:
    coordinator = local.engine.memory.core.coordinator
    agent = await local.api.agent("a")
    for number, value in enumerate(NONSENSE):
        await coordinator.put_entry(limit_rules.TABLE, f"namespace=shared/{number}", value)
    await coordinator.put_entry(limit_rules.TABLE, "continent*shared/", b'{"records_max": 1}')
    await coordinator.put_entry(limit_rules.TABLE, "namespace", b'{"records_max": 1}')
    await coordinator.put_entry(limit_rules.TABLE, "namespace=shared/small", b'{"records_max": 1}')
    for number in range(len(NONSENSE)):
        await agent.put(f"shared/{number}", "k", 1)
        await agent.put(f"shared/{number}", "l", 1)
    await agent.put("shared/small", "k", 1)
    with refusal(Reason.LIMIT_EXCEEDED):
        await agent.put("shared/small", "l", 1)


async def test_who_is_fenced_in_words_that_cannot_be_read_is_fenced_and_can_be_let_in(local: LocalServer) -> None:
    coordinator = local.engine.memory.core.coordinator
    operator = await local.api.agent("cli/op")
    for number, value in enumerate((*NONSENSE, b'{"by": "x", "time_ms": -1}', json.dumps({"by": 1}).encode())):
        name = f"agent-{number}"
        await coordinator.put_entry(fencing.TABLE, name, value)
        with refusal(Reason.PERMISSION_DENIED):
            await local.api.agent(name)
        shown = await local.api.transport.unary(
            ADMIN, "GetAgent", agents_pb.GetAgentRequest(agent_id=name), agents_pb.GetAgentResponse
        )
        assert "another version" in shown.fence.why
        unfence = agents_pb.UnfenceAgentRequest(agent_id=name, call=operator.call())
        reply = await local.api.transport.unary(ADMIN, "UnfenceAgent", unfence, agents_pb.UnfenceAgentResponse)
        assert reply.was_fenced
        await local.api.agent(name)


async def test_a_grant_that_cannot_be_read_grants_nothing_and_the_server_starts(local: LocalServer) -> None:
    coordinator = local.engine.memory.core.coordinator
    kept = GrantKey(NamePattern("kept", True), NamePattern("shared/", False))
    odd = GrantKey(NamePattern("odd", True), NamePattern("shared/", False))
    await coordinator.set_grant(kept, frozenset({Verb.READ}))
    await coordinator.set_grant(odd, frozenset({Verb.READ}))
    with closing(sqlite3.connect(local.data / "coordination.sqlite3")) as db, db:
        db.execute("UPDATE grants SET verbs = ? WHERE principal = 'odd'", ('["read", "levitate"]',))
    await local.crash()
    assert dict(local.engine.memory.core.coordinator.policies().grants) == {kept: {Verb.READ}}
