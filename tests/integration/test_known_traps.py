"""The known traps of the consistency page, one named test each.

Elsewhere, because they need processes that are killed or stopped, or load (tests/faults): 10,000 cancelled
calls; SIGSTOP of a claim's holder; ``kill -9`` proves nothing about durability, so the log is cut too.
*Out of memory in mid-commit* is Redis's (tests/faults/test_redis_refusing.py, test_redis_network.py); here a
commit is one row of one journal, so what remains of it is a commit that grows too large while it is decided.
*Contract tests start at epoch 9,000* is a rule for the suites of the store port (tests/contract/lab.py), which
have those of these traps that are about a store on every driver.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents, counter, data, delete, merge, put, scalars
from tests.support.engine import LocalServer, local_server
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, proxied
from tests.support.statuses import Refused, refusal
from tests.support.transport import Stream
from tests.support.watching import Watcher, watching
from tests.support.worlds import World

from noosphere.client import connect
from noosphere.consistency import Reason
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
HOUR_MS = 3_600_000


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("a")


@pytest.fixture
async def other(world: World) -> Agent:
    return await world.agent("b")


async def test_two_blind_writers_then_a_write_from_the_ack_keeps_both(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    mine = await agent.put(space, "k", "mine", context=SEEN_NOTHING)
    theirs = await other.put(space, "k", "theirs", context=SEEN_NOTHING)
    assert not theirs.HasField("version")
    # The acknowledgement covers what was written, not what was found there.
    await other.put(space, "k", "theirs again", context=theirs.context)
    assert {value.value.data for value in (await agent.get(space, "k")).values} == {b'"mine"', b'"theirs again"'}
    await agent.put(space, "k", "mine again", context=mine.context)
    assert {value.value.data for value in (await agent.get(space, "k")).values} == {
        b'"mine again"',
        b'"theirs again"',
    }


@pytest.mark.parametrize("policy", [types.CONFLICT_POLICY_REJECT, types.CONFLICT_POLICY_SIBLINGS])
async def test_delete_reap_recreate_and_write_with_the_old_context(
    local: LocalServer, policy: types.ConflictPolicy.ValueType
) -> None:
    agent, other, space = await local.api.agent("a"), await local.api.agent("b"), "shared/s"
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=policy))
    old = await agent.put(space, "k", "old")
    await other.delete(space, "k", context=old.context)
    await local.elapse(HOUR_MS)
    await local.sweep()
    assert (await local.api.get_namespace(space)).record_count == 0
    with refusal(Reason.CONTEXT_TOO_OLD):
        await agent.put(space, "k", "again", context=old.context)
    fresh = await other.put(space, "k", "fresh")
    if policy == types.CONFLICT_POLICY_REJECT:
        with refusal(Reason.CONFLICT):
            await agent.put(space, "k", "again", context=old.context)
        assert data(await agent.get(space, "k")) == b'"fresh"'
    else:
        await agent.put(space, "k", "again", context=old.context)
        assert len((await agent.get(space, "k")).values) == 2
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", "again", expected=old.version)
    assert fresh.revision > old.revision


async def test_compare_and_set_on_a_deleted_key(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    gone = await other.delete(space, "k", context=made.context)
    for expected in (made.version, gone.revision):
        with refusal(Reason.VERSION_MISMATCH) as error:
            await agent.put(space, "k", 2, expected=expected)
        assert error.conflict().version == 0
        with refusal(Reason.VERSION_MISMATCH):
            await agent.delete(space, "k", expected=expected)
        with refusal(Reason.VERSION_MISMATCH):
            await agent.transact(space, put("x", 1), compares={"k": expected})
    await agent.put(space, "k", 2, expected=0)


async def test_delete_create_delete_is_not_the_same_as_nothing(world: World, agent: Agent, other: Agent) -> None:
    """Version 0 twice in a row need not mean that nothing happened in between."""
    space = world.space()
    made = await agent.put(space, "k", 1)
    await agent.delete(space, "k", context=made.context)
    read = await agent.get(space, "k")
    again = await other.put(space, "k", 2)
    await other.delete(space, "k", context=again.context)
    with refusal(Reason.CONFLICT):
        await agent.put(space, "k", 3, context=read.context)


async def test_one_bad_compare_among_many_changes_nothing(world: World, agent: Agent) -> None:
    space = world.space()
    versions = {f"k{n:02}": (await agent.put(space, f"k{n:02}", 0)).version for n in range(31)}
    before = contents(await agent.listing(space))
    head = (await world.api.get_namespace(space)).head
    wrong = {**versions, "k17": 0}
    writes = [put(f"k{n:02}", 1, blind=True) for n in range(0, 20, 2)] + [delete("k01", blind=True), put("new", 1)]
    with refusal(Reason.VERSION_MISMATCH) as error:
        await agent.transact(space, *writes, merge(counter("n")), compares=wrong)
    assert [failure.key for failure in error.transaction().failures] == ["k17"]
    assert contents(await agent.listing(space)) == before
    assert (await world.api.get_namespace(space)).head == head
    await agent.transact(space, *writes, merge(counter("n")), compares=versions)


async def test_a_retry_after_a_lost_reply_executes_once_and_is_answered_as_a_success(binary: ServerProcess) -> None:
    """End to end: the reply is lost on the wire, and the client tries again by itself."""
    with proxied(binary.address) as proxy:
        async with connect(proxy.address, timeout=30) as client:
            key = client.private.key("lost", int)
            record = await key.put(1)
            for value in (2, 3):
                with proxy.during(Fault.DROP_REPLIES):
                    writing = asyncio.create_task(record.replace(value))
                    await proxy.happened()
                # Executed, answered, not heard of: the retry must not see its own write as a conflict.
                record = await writing
            assert (await key.get()) is not None
            assert record.value == 3
            history = [entry async for entry in client.private.history("lost")]
            assert len(history) == 3


async def test_resuming_below_the_floor_errors_and_does_not_hang(local: LocalServer) -> None:
    agent, space = await local.api.agent("a"), "shared/s"
    await agent.ensure(space, types.NamespacePolicy(log_revisions_max=1))
    await agent.put(space, "k", 0)
    async with watching(agent, space, after=0) as watch:
        await watch.batch()
        for n in range(5):
            await agent.put(space, "k", n, blind=True)
        resume = watch.resume
    await local.sweep()
    async with watching(agent, space, resume=resume) as watch:
        with refusal(Reason.COMPACTED):
            await watch.ended()


async def test_a_watcher_ahead_of_the_head_after_a_rollback_gets_an_epoch_not_silence(local: LocalServer) -> None:
    agent, space = await local.api.agent("a"), "shared/s"
    kept = await agent.put(space, "k", 1)
    image = local.image()
    lost = [await agent.put(space, "k", n, blind=True) for n in range(3)]
    async with watching(agent, space, after=kept.revision) as watch:
        await watch.batches(3)
        resume = watch.resume
    await local.crash(image)
    agent = Agent(local.api, agent.actor)
    for start in ({"resume": resume}, {"after": lost[0].revision}, {"after": lost[2].revision}):
        async with watching(agent, space, **start) as watch:
            message = await watch.message()
            assert message.WhichOneof("event") == "epoch"
            assert (message.epoch.epoch, message.epoch.cut) == (2, kept.revision)
            assert message.head == kept.revision
            with pytest.raises(StopAsyncIteration):
                await watch.message()
    # Whoever had seen only what survived goes on without a gap.
    async with watching(agent, space, after=kept.revision) as watch:
        newer = await agent.put(space, "k", 9, blind=True)
        assert (await watch.batch()).revision == newer.revision
    # And once the new history is longer than the old one was, the lost revisions are still known as lost.
    for n in range(5):
        await agent.put(space, "k", n, blind=True)
    async with watching(agent, space, after=lost[1].revision) as watch:
        assert (await watch.message()).WhichOneof("event") == "epoch"


class SlowReader:
    """Follows a namespace one message at a time; after COMPACTED it takes a new snapshot.

    Attributes:
        state: what it believes to be there.
        resets: how often it had to take a snapshot.
    """

    def __init__(self, agent: Agent, space: str, revisions: list[int]) -> None:
        self._agent, self._space, self._revisions = agent, space, revisions
        self._stream: Stream[pb.WatchResponse] | None = None
        self.state: dict[str, bytes] = {}
        self.position = 0
        self.resets = 0

    async def step(self) -> None:
        """Takes one message, or begins anew."""
        if self._stream is None:
            self._stream = self._agent.watch(self._space, snapshot=True)
            self.state.clear()
            self.resets += 1
        try:
            message = await Watcher(self._stream).message()
        except Refused as error:
            if error.reason != Reason.COMPACTED:
                raise
            await self._stream.aclose()
            self._stream = None
            return
        match message.WhichOneof("event"):
            case "snapshot":
                self.state.update(contents(message.snapshot.records))
                self.position = message.head
            case "changes":
                following = self._revisions[self._revisions.index(self.position) + 1]
                assert message.changes.revision == following, "an event is missing or was told twice"
                self.position = following
                for change in message.changes.changes:
                    if change.record.version:
                        self.state[change.key] = data(change.record)
                    else:
                        del self.state[change.key]

    async def close(self) -> None:
        """Stops following."""
        if self._stream is not None:
            await self._stream.aclose()


async def test_compaction_all_the_time_with_deletes_and_a_slow_reader_loses_no_event(local: LocalServer) -> None:
    """A reader that is too slow is told so and begins anew; in between it misses nothing."""
    agent, space = await local.api.agent("a"), "shared/s"
    await agent.ensure(space, types.NamespacePolicy(log_revisions_max=10))
    revisions = [(await agent.put(space, "begin", 0)).revision]
    reader = SlowReader(await local.api.agent("reader"), space, revisions)
    for n in range(600):
        key = f"k{n % 7}"
        write = agent.delete(space, key, blind=True) if n % 3 == 2 else agent.put(space, key, n, blind=True)
        if (applied := await write).revision:
            revisions.append(applied.revision)
        if n % 5 == 4:
            await local.sweep()
            await reader.step()
    assert reader.resets > 1, "the reader was never too slow, so this proves nothing"
    while reader.position != revisions[-1]:
        await reader.step()
    await reader.close()
    assert reader.state == contents(await agent.listing(space))


async def test_writers_in_the_same_millisecond_and_a_clock_set_back_change_nothing(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        agents, space = [await server.api.agent(f"w{n}") for n in range(5)], "shared/s"
        await agents[0].ensure(space, types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_LAST_WRITER_WINS))
        # The clock stands still, so every write has the same time; only the revision orders them.
        applied = await asyncio.gather(*(w.put(space, "k", n, context=SEEN_NOTHING) for n, w in enumerate(agents)))
        last = max(range(5), key=lambda n: applied[n].revision)
        assert data(await agents[0].get(space, "k")) == b"%d" % last
        short = await agents[0].put(space, "short", 1, ttl_ms=60_000)
        before = (await server.api.info()).store_time.ToMilliseconds()
        server.clock.set_wall_back(HOUR_MS)
        assert (await server.api.info()).store_time.ToMilliseconds() >= before
        newer = await agents[1].put(space, "k", 9, blind=True)
        assert newer.revision > short.revision
        await server.restart()
        after = (await server.api.info()).store_time.ToMilliseconds()
        assert after >= before, "store time may pause over a restart, but never goes back"
        reopened = Agent(server.api, agents[0].actor)
        assert data(await reopened.get(space, "short")) == b"1"
        assert data(await reopened.get(space, "k")) == b"9"
        await server.elapse(60_000)
        assert not (await reopened.get(space, "short")).values
        assert (await reopened.put(space, "k", 10, context=newer.context)).revision > newer.revision


async def test_a_read_exactly_at_expiry_with_the_sweeper_off_returns_nothing(local: LocalServer) -> None:
    agent, space = await local.api.agent("a"), "shared/s"
    made = await agent.put(space, "k", 1, ttl_ms=1_000)
    await agent.put(space, "t/1", 1, ttl_ms=1_000)
    await local.elapse(999)
    assert (await agent.get(space, "k")).version == made.version
    await local.elapse(1)
    record = await agent.get(space, "k")
    assert (record.version, len(record.values)) == (0, 0)
    batch = await local.api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"]))
    assert not batch.records[0].values
    assert await agent.claim(space, "t/") is None
    assert not await agent.listing(space)
    async with watching(agent, space, snapshot=True) as watch:
        assert not [record for page in await watch.snapshot() for record in page.records]


async def test_a_commit_that_grows_too_large_writes_nothing(world: World, agent: Agent) -> None:
    """Each operation fits, and so does the transaction; with the siblings that it keeps it is too much."""
    space, writers = world.space(), [await world.agent(f"w{n}") for n in range(5)]
    rules = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS, item_bytes_max=65_536)
    await agent.ensure(space, rules)
    for key in ("a", "b", "c", "d"):
        for writer in writers:
            await writer.put(space, key, "x" * 60_000, context=SEEN_NOTHING)
    before = await agent.listing(space)
    head = (await world.api.get_namespace(space)).head
    writes = [put("new", 1), *(put(key, "y", context=SEEN_NOTHING) for key in ("a", "b", "c", "d"))]
    call = agent.call(sequence=1)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.transact(space, *writes, call=call)
    assert await agent.listing(space) == before
    assert (await world.api.get_namespace(space)).head == head
    assert not (await agent.transact(space, *writes[:3], call=call)).replayed


PUNCTUATION = ["_", "%", "*", "-", "|", ":", "{", "}", "a_b%c*d", "{tag}", "k:1|2", "'; --", "\\"]
SCRIPTS = ["日本語/鍵", "ключ", "🔑", "ÅÅ"]


@pytest.mark.parametrize("name", PUNCTUATION + SCRIPTS)
async def test_no_character_is_special_on_any_verb_or_filter(world: World, agent: Agent, name: str) -> None:
    """Names with wildcards, separators and quotes of every engine, and non-Latin text."""
    space, decoy = world.space(f"n{name}n"), world.space(f"n{'x' * len(name)}n")
    collection = f"c{name}/"
    key, near = f"{collection}{name}", f"c{'x' * len(name)}/{name}"
    attributes = {f"k{name}": name}
    await agent.put(decoy, key, "decoy")
    await agent.put(space, near, "near", attributes={f"k{name}": "x"})
    made = await agent.put(space, key, name.replace("\\", "/"), attributes=attributes)
    read = await agent.get(space, key)
    assert (read.key, read.version) == (key, made.version)
    assert [r.key for r in (await world.api.batch_get(pb.BatchGetRequest(namespace=space, keys=[key]))).records] == [
        key
    ]
    assert [r.key for r in await agent.listing(space, collection)] == [key]
    assert {r.key for r in await agent.listing(space, reverse=True)} == {key, near}
    assert [r.key for r in await agent.listing(space, where=scalars(attributes))] == [key]
    async with watching(agent, space, collection, snapshot=True) as watch:
        (page,) = await watch.snapshot()
        assert [r.key for r in page.records] == [key]
        task = await agent.claim(space, collection, where=attributes)
        assert task is not None
        await agent.renew(space, task)
        await agent.release(space, task)
        claimed = await agent.claim(space, collection)
        assert claimed is not None
        await agent.complete(space, claimed)
        await agent.put(space, key, 2, blind=True)
        gone = await agent.delete(space, key, blind=True)
        await agent.add(space, key, 3)
        await agent.transact(space, put(near, 5, blind=True), merge(counter(key)), compares={f"{collection}none": 0})
        batches = await watch.batches(8)
    assert {change.key for batch in batches for change in batch.changes} == {key}
    assert data(await agent.get(space, key)) == b"4"
    assert gone.revision in [batch.revision for batch in await agent.history(space, key)]
    assert {change.key for batch in await agent.history(space, key) for change in batch.changes} == {key}
    listed = await world.api.list_namespaces(admin.ListNamespacesRequest(prefix=space))
    assert [info.namespace for info in listed.namespaces] == [space]
    await world.api.set_policy(types.NamePattern(prefix=space), types.NamespacePolicy(item_bytes_max=7))
    assert (await world.api.get_namespace(space)).policy.item_bytes_max == 7
    assert (await world.api.get_namespace(decoy)).policy.item_bytes_max == 1024
    namesake = await world.agent(f"n{name}n".replace("/", "|"))
    await namesake.put(f"agents/{namesake.actor.agent_id}", key, 1, call=namesake.call(fences={f"l{name}": 1}))
    await world.api.delete_namespace(space)
    assert contents(await agent.listing(decoy)) == {key: b'"decoy"'}
