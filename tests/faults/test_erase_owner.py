"""Erasing an owner where processes die: ``kill -9`` in the middle, and a fleet on Redis and etcd."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.cli import Cli
from tests.support.dying import DyingServer
from tests.support.etcd import needs_etcd
from tests.support.facts import FactAgent
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis
from tests.support.sessions import SessionAgent, space
from tests.support.statuses import Refused

from noosphere.v1 import fact_service_pb2 as pb

CANARY = "Zanzibar-7411-Okapi"
KEPT = "Quetzal-2208-Numbat"
OWNER, OTHER = "user/42", "user/421"
SESSIONS = 6
ROUNDS = 3
COMMITS_AT_LEAST = 50
"""What erasing so many sessions and their facts takes, one after the other; first the facts are forgotten."""


async def plant(sessions: SessionAgent, owner: str, word: str, count: int = SESSIONS) -> list[str]:
    """Opens sessions of an owner in which a word stands everywhere; returns them."""
    facts = FactAgent(sessions.agent)
    found = []
    for number in range(count):
        session = await sessions.open(f"{word[:4].lower()}-{number}", title=word, labels={"facts_owner": owner})
        turn = await sessions.begin_turn(session.id)
        await sessions.say(session.id, f"Locker {number} opens with {word}", id="m")
        await sessions.agent.put(space(session.id), "notes/a", f"note {word}")
        await sessions.checkpoint(session.id, name=word)
        await sessions.end_turn(session.id, turn)
        evidence = pb.FactEvidence(reference=f"msg:{session.id}/m")
        claim = pb.Candidate(
            text=f"Locker {number} opens with {word}", owner=owner, channel=pb.CHANNEL_USER, evidence=[evidence]
        )
        await facts.submit(claim, wait=False)
        found.append(session.id)
    return found


def files_with(folder: Path, text: str) -> list[str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.name for path in paths if text.encode() in path.read_bytes()]


@pytest.mark.campaign
async def test_what_is_killed_in_the_middle_is_erased_by_the_next_call(tmp_path: Path) -> None:
    rng = random.Random(7)
    server = DyingServer(tmp_path / "data", ("--embedder", "none"))
    try:
        server.start()
        async with connected(server) as api:
            kept = await plant(SessionAgent(await api.agent("keeper")), OTHER, KEPT)
        for number in range(ROUNDS):
            async with connected(server) as api:
                agent = SessionAgent(await api.agent(f"planner-{number}"))
                await plant(agent, OWNER, CANARY)
                op = FactAgent(await api.agent("cli/op", takeover=True))
                request = pb.EraseOwnerRequest(owner=OWNER)
                server.die_after(rng.randrange(1, COMMITS_AT_LEAST))
                erasing = asyncio.create_task(op.call("EraseOwner", request, pb.EraseOwnerResponse))
                left = SESSIONS
                with contextlib.suppress(Refused):
                    while True:
                        left = len(await agent.listed(labels={"facts_owner": OWNER}))
                with pytest.raises(Refused):
                    await erasing
                await server.dead()
            server.restart()
            report = Cli(server.address).ok("owner", "erase", OWNER, "--yes", "--json").json
            assert len(report["sessions"]) <= left, "what was gone is gone"
            assert files_with(server.data, CANARY) == []
        async with connected(server) as api:
            agent = SessionAgent(await api.agent("keeper", takeover=True))
            assert {session.id for session in await agent.listed(labels={"facts_owner": OTHER})} == set(kept)
            assert len(await FactAgent(agent.agent).listed(OTHER)) == SESSIONS
    finally:
        server.close()


@needs_redis
@needs_etcd
async def test_in_a_fleet_nothing_is_left_on_the_primary(tmp_path: Path) -> None:
    with Fleet(tmp_path, servers=2) as fleet:
        first, second = fleet.servers
        async with connected(first) as api:
            agent = SessionAgent(await api.agent("planner"))
            await plant(agent, OWNER, CANARY, 2)
            kept = await plant(agent, OTHER, KEPT, 2)
        files = tmp_path / "redis-1"
        assert files_with(files, CANARY)
        report = Cli(second.address).ok("owner", "erase", OWNER, "--yes", "--json").json
        assert len(report["sessions"]) == 2
        fleet.primary.ask("CONFIG", "SET", "rdbcompression", "no")
        found: list[bytes] = fleet.primary.ask("KEYS", "*")
        stored = {key: fleet.primary.ask("DUMP", key) for key in found}
        assert [key for key, value in stored.items() if CANARY.encode() in key + value] == []
        assert [key for key, value in stored.items() if KEPT.encode() in key + value] != []
        assert files_with(files, CANARY) == []
        async with connected(second) as api:
            agent = SessionAgent(await api.agent("reader"))
            assert {session.id for session in await agent.listed(labels={"facts_owner": OTHER})} == set(kept)
            assert await agent.listed(labels={"facts_owner": OWNER}) == []
