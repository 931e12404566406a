"""Erasing an owner: nothing of it is in any file, nothing of anybody else is missing, and a crash changes neither."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import SecretStr
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.facts import Conversation, FactAgent
from tests.support.redis import RedisProcess, needs_redis
from tests.support.sessions import SessionAgent, said, space
from tests.support.statuses import refusal
from tests.support.toolcalls import finish, start

from noosphere.consistency import Reason, Refusal
from noosphere.server.facts.extracting import Extracting
from noosphere.server.owners import erasing
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.sources import Source
from noosphere.server.sessions.session_sources import SessionSources
from noosphere.v1 import fact_service_pb2 as pb

CANARY = "Zanzibar-7411-Okapi"
KEPT = "Quetzal-2208-Numbat"
OWNER = "user/42"
OTHER = "user/421"


async def erase(agent: Agent, owner: str = OWNER, *, dry_run: bool = False) -> pb.EraseOwnerResponse:
    request = pb.EraseOwnerRequest(owner=owner, dry_run=dry_run)
    return await FactAgent(agent).call("EraseOwner", request, pb.EraseOwnerResponse)


def places(report: pb.EraseOwnerResponse) -> dict[str, int]:
    return {place.place: place.count for place in report.places}


def files_with(local: LocalServer, text: str) -> list[str]:
    """Names the files of the data folder that hold a text, whatever encoding JSON gives it."""
    paths = [path for path in local.data.rglob("*") if path.is_file()]
    return sorted(path.name for path in paths if text.encode() in path.read_bytes())


async def plant(agent: Agent, owner: str, word: str) -> str:
    """Puts a word into everything that a session and its facts are kept in; returns the session."""
    sessions, facts = SessionAgent(agent), FactAgent(agent)
    session = await sessions.open(f"of-{word[:4]}", title=f"About {word}", labels={"facts_owner": owner, "note": word})
    turn = await sessions.begin_turn(session.id)
    talk = Conversation(sessions, session.id)
    heard = await talk.hears(f"The wine cellar opens with {word}")
    await sessions.append(session.id, said(f"retracted {word}", id="r1"))
    await sessions.retract(session.id, "r1")
    call = await start(sessions, session.id, name="note", arguments=json.dumps({"text": word}))
    await finish(sessions, call.ticket, {"stored": word, "filler": [f"{word} {n}" for n in range(4_000)]})
    await start(sessions, session.id, name="never", arguments=json.dumps({"text": word}))
    await agent.put(space(session.id), "notes/cellar", json.dumps(f"cellar: {word}").encode(), blind=True)
    await agent.put(space(session.id), "notes/cellar", json.dumps(f"cellar again: {word}").encode(), blind=True)
    await ContextAgent(sessions, session.id).assemble(f"How does it open? {word}", fact_owners=[owner])
    await sessions.checkpoint(session.id, name=f"checkpoint {word}")
    await sessions.end_turn(session.id, turn)
    (fact,) = (
        await facts.submit(
            pb.Candidate(
                text=f"The wine cellar opens with {word}", owner=owner, channel=pb.CHANNEL_USER, evidence=[heard]
            )
        )
    ).decisions
    assert fact.fact_id
    (apart,) = (
        await facts.submit(
            pb.Candidate(
                text=f"The password of the cellar is {word}", owner=owner, channel=pb.CHANNEL_USER, evidence=[heard]
            )
        )
    ).decisions
    assert apart.status == pb.CANDIDATE_STATUS_QUARANTINED
    (shared,) = (
        await facts.submit(
            pb.Candidate(
                text=f"The team's cellar opens with {word}",
                owner=owner,
                scope="shared/team",
                channel=pb.CHANNEL_USER,
                evidence=[heard],
            )
        )
    ).decisions
    assert shared.fact_id
    return session.id


async def test_a_canary_of_an_owner_is_in_no_file_and_the_others_stay(local: LocalServer) -> None:
    agent, op = await local.api.agent("planner"), await local.api.agent("cli/op")
    erased, kept = await plant(agent, OWNER, CANARY), await plant(agent, OTHER, KEPT)
    fork = (await SessionAgent(agent).fork(erased)).id
    before = files_with(local, KEPT)
    assert files_with(local, CANARY) == before != []
    would = await erase(op, dry_run=True)
    assert files_with(local, CANARY) == before
    report = await erase(op)
    assert set(report.session_ids) == set(would.session_ids) == {erased, fork}
    assert set(report.fact_ids) == set(would.fact_ids)
    assert len(report.fact_ids) == 2
    assert {"facts", "candidates", "index", "messages", "sessions", "session_records"} <= places(report).keys()
    assert files_with(local, CANARY) == []
    await local.crash()
    assert files_with(local, CANARY) == []
    # What is another's is as it was, although its name begins alike.
    agent = await local.api.agent("planner", takeover=True)
    assert KEPT in (await SessionAgent(agent).get(kept)).title
    assert any(KEPT in message.parts[0].text for message in await SessionAgent(agent).messages(kept))
    assert len(await FactAgent(agent).listed(OTHER)) == 1
    assert [fact.owner for fact in await FactAgent(agent).listed("shared/team")] == [OTHER]
    with refusal(Reason.SESSION_NOT_FOUND):
        await SessionAgent(agent).get(erased)
    again = await erase(await local.api.agent("cli/op", takeover=True))
    assert (list(again.session_ids), list(again.fact_ids)) == ([], [])


async def test_an_agent_is_erased_with_its_private_namespace_and_its_sessions(local: LocalServer) -> None:
    bad, good, op = [await local.api.agent(name) for name in ("bad", "bad/helper", "cli/op")]
    for agent, word in ((bad, CANARY), (good, KEPT)):
        await agent.put(f"agents/{agent.actor.agent_id}", "notes/x", word)
        session = await SessionAgent(agent).open(f"s-{word[:3]}")
        await SessionAgent(agent).say(session.id, word)
        await agent.put("shared/team", f"from/{word[:3]}", word)
    report = await erase(op, "agent/bad")
    assert list(report.namespaces) == ["agents/bad"]
    assert list(report.session_ids) == ["s-Zan"]
    record = await op.get("shared/team", "from/Zan")
    assert record.values, "what it has written for all is theirs"
    assert any("agent revert" in text for text in report.remaining)
    await op.delete("shared/team", "from/Zan", blind=True)
    await local.engine.store.erase(await local.engine.memory.core.locate("shared/team"))
    assert files_with(local, CANARY) == []
    assert (await good.get("agents/bad/helper", "notes/x")).values
    assert (await SessionAgent(good).get("s-Que")).id == "s-Que"


async def test_only_operators_and_an_agent_itself_may_erase(local: LocalServer) -> None:
    agent = await local.api.agent("planner")
    for owner in (OWNER, "agent/other", "agent/cli/op", "shared/team"):
        for dry_run in (True, False):
            with refusal(Reason.PERMISSION_DENIED):
                await erase(agent, owner, dry_run=dry_run)
    for name in ("", "42", "user/", "team/x", "app/mail/user/42", "user/a#b"):
        with refusal(Reason.INVALID_FIELD):
            await erase(agent, name)
    assert not (await erase(agent, "agent/planner")).session_ids


@pytest.mark.parametrize("cut", ["_drop_sessions", "_erase_files", "_drop_caches"])
async def test_an_erasure_that_is_cut_off_goes_on_by_itself(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    await plant(await local.api.agent("planner"), OWNER, CANARY)

    def fail(*_: Any) -> NoReturn:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "for now")

    with monkeypatch.context() as patched:
        patched.setattr(erasing.OwnerEraser, cut, fail)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await erase(await local.api.agent("cli/op"))
    await local.crash()
    assert await local.engine.owners.resume() == 0, "the call may still be under way somewhere"
    local.clock.advance(erasing.GIVEN_UP_MS)
    assert await local.engine.owners.resume() == 1
    assert files_with(local, CANARY) == []
    table = local.engine.memory.core.coordinator.table(erasing.TABLE)
    assert list(table) == [OWNER], "one last look is owed"
    local.clock.advance(erasing.LATE_MS)
    assert await local.engine.owners.resume() == 0
    assert not table


async def test_an_erasure_that_cannot_be_gone_on_with_is_in_nobodys_way(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(await local.api.agent("a"), OWNER, CANARY)
    coordinator = local.engine.memory.core.coordinator
    begun = json.dumps({"begun_ms": 0}).encode()
    await coordinator.put_entry(erasing.TABLE, "of a newer version", b"\xff{")
    await coordinator.put_entry(erasing.TABLE, "not an owner", begun)
    await coordinator.put_entry(erasing.TABLE, OWNER, begun)
    local.clock.advance(erasing.GIVEN_UP_MS)
    for _ in range(2):
        with pytest.raises(Refusal):
            await local.engine.owners.resume()
        assert files_with(local, CANARY) == []


@needs_redis
async def test_a_canary_is_in_no_file_and_no_key_of_a_redis(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    redis = RedisProcess(folder, save="3600 1")
    redis.start()
    try:
        clock: Any = SystemClock()
        async with local_server(tmp_path / "data", clock, redis_urls=SecretStr(redis.url)) as local:
            agent = await local.api.agent("planner")
            await plant(agent, OWNER, CANARY)
            await plant(agent, OTHER, KEPT)
            assert (in_redis(redis, CANARY), in_redis(redis, KEPT)) == (True, True)
            redis.ask("SAVE")
            await erase(await local.api.agent("cli/op"))
            assert files_with(local, CANARY) == []
            assert (in_redis(redis, CANARY), in_redis(redis, KEPT)) == (False, True)
            held = [path.name for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
            assert held == []
    finally:
        redis.kill()


def in_redis(redis: RedisProcess, text: str) -> bool:
    """Tells whether a key, or what stands under one, has a text; no value is compressed by Redis."""
    redis.ask("CONFIG", "SET", "rdbcompression", "no")
    found: list[bytes] = redis.ask("KEYS", "*")
    return any(text.encode() in key or text.encode() in redis.ask("DUMP", key) for key in found)


async def test_what_was_being_handed_over_from_a_session_becomes_no_fact(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, op = await local.api.agent("planner"), await local.api.agent("cli/op")
    sessions = SessionAgent(agent)
    session = await sessions.open("s", labels={"facts_owner": OWNER})
    await sessions.say(session.id, f"My favourite colour is {CANARY}")
    page = SessionSources.page
    read, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    end = Extracting._end

    async def slow(self: SessionSources, agent: str, session_id: str, after: str, limit: int) -> tuple[Source, ...]:
        found = await page(self, agent, session_id, after, limit)
        if found and not agent:
            read.set()
            await go.wait()
        return found

    async def told(*args: Any) -> None:
        await end(*args)
        ended.set()

    with monkeypatch.context() as patched:
        patched.setattr(SessionSources, "page", slow)
        patched.setattr(Extracting, "_end", told)
        turn = await sessions.begin_turn(session.id)
        await sessions.end_turn(session.id, turn)
        await read.wait()
        await erase(op)
        go.set()
        await ended.wait()
    await FactAgent(op).run_upkeep(OWNER)
    assert await FactAgent(op).listed(OWNER, include_superseded=True) == []
    assert files_with(local, CANARY) == []
    # New things may be said, and are learned.
    again = await sessions.open("s2", labels={"facts_owner": OWNER})
    await local.elapse(2)
    await sessions.say(again.id, "I live in Lisbon")
    job = await FactAgent(agent).extract(session_id=again.id, owner=OWNER)
    assert len(job.candidate_ids) == 1
