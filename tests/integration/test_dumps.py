"""Dump and restore: what comes back is the same, in an epoch of its own, or nothing that a server takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.api import SEEN_NOTHING, Agent, counter, data, merge
from tests.support.dumps import contents, put_back, settings_of, take, take_offline
from tests.support.engine import LocalServer, local_server
from tests.support.killed import Killed
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.watching import watching

from noosphere.consistency import NEVER_MS, NamePattern, Reason
from noosphere.server.app import StartupError
from noosphere.server.dumping import DumpError, DumpFile
from noosphere.server.ports.factqueue import Job
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Commit, Committed, Dropped, Fence, Mutation, NamespaceRef
from noosphere.server.restoring import RestoreError
from noosphere.server.storage.embedded import DataFolder
from noosphere.server.storage.facts import EmbeddedFactQueue
from noosphere.v1 import types_pb2 as types

SPACE = "shared/launch"
GRANT = GrantKey(NamePattern("planner", True), NamePattern("shared/", False))
NAMES = ("shared/a", "sessions/%_*", "agents/名", "facts/user/x")
KEYS = ("a", "b/c", "b/d", "\0own", "é{}|:-")


async def fill(server: LocalServer, agent: Agent) -> None:
    """Leaves something of everything that the working store and the coordinator keep."""
    siblings = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
    await server.api.set_policy(types.NamePattern(exact="shared/siblings"), siblings)
    await server.engine.memory.core.coordinator.set_grant(GRANT, frozenset({Verb.READ, Verb.WATCH}))
    await server.engine.memory.core.coordinator.put_entry("limits", "agent=planner", b"{}")
    await server.engine.memory.core.coordinator.put_entry("tokens", "t1", b"a hash")
    await agent.put(SPACE, "plan/one", "the first step", attributes={"state": "open"})
    await agent.put(SPACE, "plan/two", b"\xff\x00", encoding=types.ENCODING_BYTES)
    await agent.put(SPACE, "soon", "gone", ttl_ms=60_000)
    await agent.add(SPACE, "count", 3)
    await agent.put(SPACE, "old", "1")
    await agent.delete(SPACE, "old", blind=True)
    for _ in range(3):
        await agent.put("shared/siblings", "k", "mine", context=SEEN_NOTHING)
    await agent.put(f"agents/{agent.actor.agent_id}", "note", "private")
    await agent.put("shared/dropped", "k", "1")
    await server.api.delete_namespace("shared/dropped")


async def again(folder: Path, path: Path, server: LocalServer) -> LocalServer:
    """Returns a server that is not started, on what was restored from a dump, one hour later."""
    server.clock.advance(3_600_000)
    other = LocalServer(folder, server.clock)
    await put_back(path, settings_of(other.data), server.clock)
    return other


async def test_what_comes_back_is_the_same(local: LocalServer, tmp_path: Path) -> None:
    agent = await local.api.agent("planner")
    await fill(local, agent)
    user = await Teller.begin(agent)
    await user.tells("Anna prefers metric units")
    await user.tells("The Oslo office opens in March 2027")
    gone = await user.tells("Anna owns a castle")
    await user.facts.forget(fact_id=gone, owner=user.user)
    before = [(hit.fact, hit.scores) for hit in (await user.search("When does the Oslo office open?")).hits]
    record = await agent.get(SPACE, "plan/one")
    path = await take(tmp_path / "first", local.engine.dumper)
    await local.stop()
    assert contents(await take_offline(tmp_path / "offline", settings_of(local.data), local.clock)) == contents(path)
    other = await again(tmp_path / "other", path, local)
    assert contents(await take_offline(tmp_path / "second", settings_of(other.data), local.clock)) == contents(path)
    await other.start()
    try:
        planner = await other.api.agent("planner")
        assert planner.actor.incarnation > agent.actor.incarnation
        assert await planner.get(SPACE, "plan/one") == record
        assert data(await planner.get(SPACE, "count")) == b"3"
        assert not (await planner.get(SPACE, "soon")).values, "its time has come"
        assert len((await planner.get("shared/siblings", "k")).values) == 3
        later = Teller(type(user.facts)(planner), user.talk, user.user)
        after = [(hit.fact, hit.scores) for hit in (await later.search("When does the Oslo office open?")).hits]
        assert [fact for fact, _ in after] == [fact for fact, _ in before]
        assert "Anna owns a castle" not in await later.finds("castle")
        table = other.engine.memory.core.coordinator.policies()
        assert table.grants == {GRANT: frozenset({Verb.READ, Verb.WATCH})}
        assert (await other.api.policies())[0].policy.conflict_policy == 2
        with refusal(Reason.NAMESPACE_DELETED):
            await planner.put("shared/dropped", "k", "1")
        coordinator = other.engine.memory.core.coordinator
        assert dict(coordinator.table("limits")) == {"agent=planner": b"{}"}
        assert dict(coordinator.table("tokens")) == {}, "hashes of tokens come on request only"
    finally:
        await other.stop()


async def test_hashes_of_tokens_come_along_on_request(local: LocalServer, tmp_path: Path) -> None:
    await local.engine.memory.core.coordinator.put_entry("tokens", "t1", b"a hash")
    path = await take(tmp_path / "dump", local.engine.dumper, tokens=True)
    other = await again(tmp_path / "other", path, local)
    await other.start()
    try:
        assert dict(other.engine.memory.core.coordinator.table("tokens")) == {"t1": b"a hash"}
    finally:
        await other.stop()


async def test_who_remembers_more_than_the_dump_is_told_so(local: LocalServer, tmp_path: Path) -> None:
    agent = await local.api.agent("planner")
    kept = await agent.put(SPACE, "k", "1")
    held = await local.engine.memory.core.coordinator.locks.acquire("lock", "x", 60_000)
    assert held is not None
    path = await take(tmp_path / "dump", local.engine.dumper)
    lost = await agent.put(SPACE, "k", "2", expected=kept.version)
    other = await again(tmp_path / "other", path, local)
    await other.start()
    try:
        assert (await other.api.epochs())[-1].cause == "restored from a dump"
        with refusal(Reason.STALE_INCARNATION):
            await Agent(other.api, agent.actor).put(SPACE, "k", "3", blind=True)
        planner = await other.api.agent("planner")
        with refusal(Reason.ACKED_WRITES_LOST):
            await planner.put(SPACE, "k", "3", context=types.CausalContext(prefix=lost.revision))
        async with watching(planner, SPACE, after=kept.revision - 1) as watch:
            assert (await watch.message()).WhichOneof("event") == "epoch"
            with pytest.raises(StopAsyncIteration):
                await watch.message()
        applied = await planner.put(SPACE, "k", "3", expected=kept.version)
        assert applied.revision > lost.revision
        again_held = await other.engine.memory.core.coordinator.locks.acquire("lock", "y", 60_000)
        assert again_held is not None
        assert again_held.token > held.token
        assert data(await planner.get(SPACE, "k")) == b'"3"'
    finally:
        await other.stop()


async def test_waiting_work_comes_back_in_its_order_and_the_dead_stay_dead(tmp_path: Path) -> None:
    target = settings_of(tmp_path / "one")
    clock = SystemClock()
    with DataFolder.lock(target.data):
        queue = await EmbeddedFactQueue.open(target.data, clock=clock, durability="os")
        await queue.put([Job(f"dead-{at}", 3, b"d", "g") for at in range(150)])
        for leased in await queue.take("w", 150, 1_000):
            await queue.fail(leased.lease, f"why {leased.job.id}", retry_after_ms=None)
        await queue.put([Job(f"j{at * 7 % 150}", at % 3, b"\x01\xa1x", "") for at in range(150)])
        await queue.take("w", 5, 1_000)
        await queue.close()
    path = await take_offline(tmp_path / "dump", target)
    other = settings_of(tmp_path / "two")
    assert (await put_back(path, other)).jobs == 300
    assert contents(await take_offline(tmp_path / "again", other)) == contents(path)
    jobs = [line for line in contents(path) if line["is"] == "job"]
    assert [line["id"] for line in jobs[150:]] == [f"j{at * 7 % 150}" for at in range(150)]
    assert jobs[0]["reason"] == "why dead-0"


async def test_nothing_is_changed_by_a_dump_that_cannot_be_used(local: LocalServer, tmp_path: Path) -> None:
    agent = await local.api.agent("planner")
    await fill(local, agent)
    path = await take(tmp_path / "dump", local.engine.dumper)
    whole = path.read_bytes()
    target = settings_of(tmp_path / "target")
    for harm in (whole[:-1], whole[: len(whole) // 2], whole.replace(b"plan/one", b"plan/eno"), b""):
        path.write_bytes(harm)
        with pytest.raises(DumpError):
            await put_back(path, target)
        assert not target.data.exists()


async def test_only_an_empty_target_is_taken_unless_it_may_be_replaced(local: LocalServer, tmp_path: Path) -> None:
    agent = await local.api.agent("planner")
    await fill(local, agent)
    path = await take(tmp_path / "dump", local.engine.dumper)
    with pytest.raises(RestoreError, match="is already in use by process"):
        await put_back(path, settings_of(local.data), replace=True)
    async with local_server(tmp_path / "other", local.clock) as other:
        writer = await other.api.agent("writer")
        await writer.put("shared/other", "k", "1")
        epoch = other.engine.store.epoch
        number = writer.actor.incarnation
        target = settings_of(other.data)
    with pytest.raises(RestoreError, match=r"is not empty: it holds working.sqlite3.*--replace"):
        await put_back(path, target)
    await put_back(path, target, local.clock, replace=True)
    assert contents(await take_offline(tmp_path / "again", target, local.clock)) == contents(path)
    async with local_server(tmp_path / "other", local.clock) as other:
        assert other.engine.store.epoch == max(epoch, local.engine.store.epoch) + 1
        assert (await other.api.agent("writer")).actor.incarnation > number


async def test_a_restore_that_was_cut_off_is_not_served_and_can_be_done_again(
    local: LocalServer, tmp_path: Path
) -> None:
    agent = await local.api.agent("planner")
    await agent.transact(SPACE, *(merge(counter(f"k{at}")) for at in range(60)))
    for at in range(20):
        await agent.transact(f"shared/{at}", *(merge(counter(f"k{at}")) for at in range(60)))
    path = await take(tmp_path / "dump", local.engine.dumper)
    other = LocalServer(tmp_path / "other", local.clock)
    target = settings_of(other.data)

    def cut(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        await put_back(path, target, told=cut)
    with pytest.raises(StartupError, match=r"a restore into .* was cut off: .*restore --replace"):
        await other.start()
    await other.stop()
    with pytest.raises(StartupError, match="was cut off"):
        await take_offline(tmp_path / "again", target)
    await put_back(path, target, local.clock, replace=True)
    assert contents(await take_offline(tmp_path / "again", target, local.clock)) == contents(path)


async def test_a_dump_of_a_server_that_is_written_to_has_each_namespace_at_one_moment(
    local: LocalServer, tmp_path: Path
) -> None:
    agent = await local.api.agent("planner")
    spaces = [f"shared/{at}" for at in range(4)]
    ended = asyncio.Event()

    async def write(space: str) -> None:
        count = 0
        while not ended.is_set():
            # Both or none, with the same value.
            await agent.transact(space, merge(counter("a")), merge(counter("z")))
            count += 1

    for space in spaces:
        await agent.transact(space, *(merge(counter(f"fill/{at}")) for at in range(60)))
    tasks = [asyncio.create_task(write(space)) for space in spaces]
    path = tmp_path / "dump"
    try:
        for _ in range(3):
            await take(path, local.engine.dumper)
            DumpFile(path).verify()
            found: dict[str, list[Any]] = {}
            for line in contents(path):
                if line["is"] == "namespace":
                    found[line["name"]] = []
                elif line["is"] == "record" and line["key"] in "az":
                    found[list(found)[-1]].append((line["revision"], line["body"]["value"][0][0][3]))
            for space in spaces:
                if found[space]:
                    first, second = found[space]
                    assert first == second, space
    finally:
        ended.set()
        await asyncio.gather(*tasks)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.none() | st.binary(max_size=20) | st.just(b"\x01\x93\x01\xa1x\xc4\x01a"),
                st.sampled_from((0, 1_000, NEVER_MS)),
                st.sampled_from((7, 10**12, NEVER_MS)),
                st.sampled_from((b"", b"\x01\x90")),
            ),
            max_size=4,
            unique_by=lambda step: step[0],
        ),
        st.sampled_from(("commit", "commit", "commit", "drop", "reopen", "restart")),
        st.integers(0, 5),
    ),
    max_size=12,
)


@pytest.mark.campaign
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
async def test_any_history_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[Any], str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("history")
    async with local_server(folder) as server:
        generations = dict.fromkeys(NAMES, NamespaceRef(""))
        for name, changes, what, token in steps:
            store = server.engine.store
            ref = generations[name] if generations[name].name else NamespaceRef(name)
            if what == "restart":
                await server.restart()
            elif what == "drop":
                await store.drop(ref, None)
            elif what == "reopen":
                dropped = await store.drop(ref, None)
                if isinstance(dropped, Dropped) and dropped.head:
                    generations[name] = NamespaceRef(name, ref.generation + 1, dropped.head)
            else:
                mutations = tuple(
                    Mutation(key, data, live if data is not None else 0, due, True, event)
                    for key, data, live, due, event in changes
                )
                made = await store.commit(ref, Commit(store.epoch, 9, (), mutations, fences=(Fence("lock", token),)))
                assert isinstance(made, Committed) or made
        path = await take(folder / "dump", server.engine.dumper)
    target = settings_of(folder / "target")
    await put_back(path, target)
    assert contents(await take_offline(folder / "again", target)) == contents(path)
