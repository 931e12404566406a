"""A Redis that fails over behind three replicas, with real loss: what is told lost is what is gone, and all of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent, Api, put
from tests.support.causality import Mind
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import RedisProcess, needs_redis
from tests.support.statuses import Refused, refusal
from tests.support.watching import watching

from noosphere.client import AckedWritesLost, Client, Watch, WatchBatch, connect
from noosphere.consistency import CausalToken, Reason, encode_causal
from noosphere.server.ports.store import NamespaceRef
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

pytestmark = [needs_redis, needs_etcd, pytest.mark.timeout(300)]

SPACE = "shared/s"
WRITES = 12
SECONDS_MAX = 120.0
"""A bound against hanging."""


def logged(redis: RedisProcess, name: str) -> set[int]:
    """Returns the revisions that a Redis itself holds of a namespace's log."""
    entries = redis.ask("XRANGE", f"noosphere:{{{NamespaceRef(name).storage_id.hex()}}}:l", "-", "+")
    parts = [entry[0].decode().split("-") for entry in entries]
    return {int(epoch) << 40 | int(sequence) for epoch, sequence in parts}


@contextlib.asynccontextmanager
async def clients(fleet: Fleet) -> AsyncIterator[list[Client]]:
    """Connects one client to each replica."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(connect(address, agent=f"a{number}", timeout=SECONDS_MAX))
            for number, address in enumerate(fleet.addresses)
        ]


async def write(client: Client, own: str, values: Sequence[int]) -> list[int]:
    """Writes a key of its own, each time against what it has, and a tally of all; returns the revisions."""
    space = client.namespace(SPACE)
    record = await space.key(own).read()
    revisions = []
    for value in values:
        record = await record.replace(value)
        tally = await space.key("tally").increment(1)
        assert record.version is not None
        assert tally.version is not None
        revisions += [record.version, tally.version]
    return revisions


async def served(agent: Agent) -> None:
    """Returns once a replica has found the new primary."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                await agent.get(SPACE, "tally")
                return
            except Refused as error:
                assert error.reason == Reason.ENGINE_UNAVAILABLE  # noqa: PT017 # any other is to be seen


async def test_the_loss_is_told_exactly_to_everybody_and_made_good_once(fleet: Fleet) -> None:
    async with clients(fleet) as all_clients:
        kept = [await write(client, f"k{n}", range(1, 4)) for n, client in enumerate(all_clients)]
        fleet.cut_replica_off()
        told = await asyncio.gather(
            *(write(client, f"k{n}", range(4, 4 + WRITES)) for n, client in enumerate(all_clients))
        )
        old = fleet.primary
        fleet.fail_over(lose=True)

        losses: list[AckedWritesLost] = []
        for client in all_clients:
            with pytest.raises(AckedWritesLost) as caught:
                await client.namespace(SPACE).get("tally", consistency="causal")
            losses.append(caught.value)

        # What both Redis really hold: the old one's files, read by a Redis of their own.
        old.start()
        before, after = logged(old, SPACE), logged(fleet.primary, SPACE)
        gone = before - after
        assert gone == {revision for revisions in told for revision in revisions}
        assert {revision for revisions in kept for revision in revisions} <= after
        [(after_, through)] = {(loss.lost_after, loss.lost_through) for loss in losses}
        assert {revision for revision in before if after_ < revision <= through} == gone
        assert after_ == max(before & after)

        # To each the writes that were its own, all of them, in order.
        for n, (loss, revisions) in enumerate(zip(losses, told, strict=True)):
            assert [write.revision for write in loss.own_writes] == revisions
            own = [write.value for write in loss.own_writes if write.key == f"k{n}"]
            assert own == list(range(4, 4 + WRITES))

        # Written again by their owners: at once, each of them told twice and asking twice, and each write once.
        results = await asyncio.gather(
            *(client.resubmit(loss) for client, loss in zip(all_clients, losses, strict=True) for _ in range(2))
        )
        assert not [result for part in results for result in part if result.error is not None]
        reader = all_clients[0].namespace(SPACE)
        found = {record.key: record.value async for record in reader.list()}
        assert found == {"tally": 3 * (3 + WRITES), **{f"k{n}": 3 + WRITES for n in range(3)}}


def presenting(agent: Agent, revision: int) -> Iterator[Awaitable[object]]:
    """Yields calls that present a revision, each in another way."""
    context = types.CausalContext(prefix=revision)
    yield agent.put(SPACE, "k", 1, expected=revision)
    yield agent.put(SPACE, "k", 1, context=context)
    yield agent.put(SPACE, "other", 1, context=context)
    yield agent.delete(SPACE, "k", expected=revision)
    yield agent.transact(SPACE, put("other", 1, blind=True), compares={"k": revision})
    yield agent.claim(SPACE, call=with_token(agent, revision))
    yield agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=with_token(agent, revision)))


def deciding(agent: Agent, token: bytes) -> Iterator[Awaitable[object]]:
    """Yields calls that present a read set: what a model saw of revisions that may be gone."""
    yield Mind(agent, token).commit(SPACE, put("other", 1, blind=True))
    yield Mind(agent, token).commit(SPACE, put("other", 1, blind=True), warn=True)
    yield Mind(agent, token).refresh()


def with_token(agent: Agent, revision: int) -> types.CallContext:
    """Returns who calls, having been told that a revision was there."""
    call = agent.call()
    call.causal_tokens.append(encode_causal(CausalToken({SPACE: revision})))
    return call


async def test_every_lost_revision_that_is_presented_is_refused_at_every_replica(fleet: Fleet) -> None:
    async with contextlib.AsyncExitStack() as stack:
        apis: list[Api] = [await stack.enter_async_context(connected(server)) for server in fleet.servers]
        agents = [await api.agent(f"a{n}") for n, api in enumerate(apis)]
        writer = agents[0]
        kept = [await writer.put(SPACE, "k", n, blind=True) for n in range(3)]
        fleet.cut_replica_off()
        mind = Mind(writer)
        lost: list[types.Applied] = []
        seen: list[bytes] = []
        for number in range(8):
            lost.append(await writer.put(SPACE, "k", number, blind=True))
            await mind.get(SPACE, "k")
            seen.append(mind.token)
        fleet.fail_over(lose=True)
        cut = kept[-1].revision
        for agent in agents:
            await served(agent)
        for written in range(2):
            # First as the failover has left it, then with something newer in it.
            for agent in agents:
                for applied, token in zip(lost, seen, strict=True):
                    for presented in (*presenting(agent, applied.revision), *deciding(agent, token)):
                        with refusal(Reason.ACKED_WRITES_LOST) as error:
                            await presented
                        detail = error.lost()
                        assert (getattr(detail, "from"), detail.to) == (cut, ((cut >> 40) + 1) << 40)
                    async with watching(agent, SPACE, after=applied.revision) as watch:
                        message = await watch.message()
                        assert message.WhichOneof("event") == "epoch"
                        assert message.epoch.cut == cut
                for applied in kept[:-1]:
                    with refusal(Reason.VERSION_MISMATCH):
                        await agent.put(SPACE, "k", 1, expected=applied.version)
            if not written:
                # What survived can still be built upon.
                newer = await agents[1].put(SPACE, "k", 100, expected=kept[-1].version)
                assert newer.revision >> 40 == (cut >> 40) + 1
                kept.append(newer)


async def _collect(watch: Watch[object], seen: list[WatchBatch[object]]) -> None:
    async for batch in watch:
        seen.append(batch)


async def test_watchers_at_every_replica_are_told_of_the_epoch_and_begin_anew(fleet: Fleet) -> None:
    async with clients(fleet) as all_clients, contextlib.AsyncExitStack() as stack:
        writer = all_clients[0].namespace(SPACE)
        await writer.put("kept", 1)
        seen: list[list[WatchBatch[object]]] = [[] for _ in all_clients]
        tasks = []
        for client, batches in zip(all_clients, seen, strict=True):
            watch = await stack.enter_async_context(client.namespace(SPACE).watch(snapshot=True))
            tasks.append(asyncio.create_task(_collect(watch, batches)))

        async def until_everybody(key: str) -> None:
            async with asyncio.timeout(SECONDS_MAX):
                while not all(any(e.key == key for b in batches for e in b.events) for batches in seen):
                    assert not any(task.done() for task in tasks)
                    await asyncio.sleep(0.01)

        await until_everybody("kept")
        fleet.cut_replica_off()
        await writer.put("lost", 1)
        await until_everybody("lost")
        fleet.fail_over(lose=True)
        await writer.put("after", 1)
        await until_everybody("after")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for batches in seen:
            told = [batch for batch in batches if batch.kind != "bookmark"]
            kinds = [batch.kind for batch in told]
            assert kinds.count("epoch") == kinds.count("reset") == 1
            first = kinds.index("epoch")
            assert kinds[first + 1] == "reset", "what it knew was replaced before anything else was told"
            keys = {event.key for event in told[first + 1].events}
            assert "kept" in keys
            assert "lost" not in keys
            assert not [event for batch in told[first + 1 :] for event in batch.events if event.key == "lost"]


async def test_a_server_that_starts_in_the_middle_does_not_defeat_the_fence(fleet: Fleet) -> None:
    """It loads its scripts on the promoted one while the others stand still with calls that were decided before."""
    async with contextlib.AsyncExitStack() as stack:
        agents = [
            await (await stack.enter_async_context(connected(server))).agent(f"a{n}")
            for n, server in enumerate(fleet.servers)
        ]
        kept = await agents[0].put(SPACE, "k", 1)
        fleet.cut_replica_off()
        lost = await agents[1].put(SPACE, "k", 2, expected=kept.version)
        for server in fleet.servers:
            server.pause()
        try:
            # On their way when the servers go on.
            late = [asyncio.create_task(agent.put(SPACE, "k", 3, expected=lost.version)) for agent in agents]
            await asyncio.sleep(0)
            fleet.fail_over(lose=True)
            new = fleet.add()
            agent = await (await stack.enter_async_context(connected(new))).agent("new")
            first = await agent.put(SPACE, "k", 4, expected=kept.version)
            assert first.revision >> 40 == (kept.revision >> 40) + 1
        finally:
            for server in fleet.servers[:3]:
                server.resume()
        for task in late:
            try:
                await task
            except Refused as error:
                assert error.reason in {Reason.ACKED_WRITES_LOST, Reason.ENGINE_UNAVAILABLE}  # noqa: PT017
            else:
                raise AssertionError("a write against what was lost was made")
        for other in agents:
            await served(other)
            with refusal(Reason.ACKED_WRITES_LOST):
                await other.put(SPACE, "k", 3, expected=lost.version)
            record = await other.get(SPACE, "k")
            assert record.version == first.version, "nobody else has written"
        assert len(await agent.api.epochs()) == 2, "one failover, one epoch"
