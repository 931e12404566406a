"""Coalesced calls against the real server: the same behaviour, whoever else is on the stream."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

from noosphere.client import (
    Client,
    Conflict,
    Increment,
    MergeTypeMismatch,
    Namespace,
    NamespacePolicy,
    Put,
    TransactionFailed,
    ValueTooLarge,
    VersionMismatch,
    new_request_id,
)

CALLERS = 64


@pytest.fixture(params=[True, False], ids=["coalesced", "unary"])
async def client(binary: ServerProcess, connect: Connect, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connect(binary.address, timeout=60, coalesce=request.param) as connected:
        yield connected


@pytest.fixture
def space(client: Client) -> Namespace:
    return client.shared(f"pipeline/{new_request_id()}")


async def test_every_kind_of_call_is_answered_as_by_itself(space: Namespace) -> None:
    written = await space.put("k", {"n": 1})
    read = await space.get("k")
    assert read is not None
    assert (read.value, read.version) == ({"n": 1}, written.version)
    newer = await read.replace({"n": 2})
    with pytest.raises(Conflict) as caught:
        await read.replace({"n": 3})
    assert caught.value.theirs is not None
    assert caught.value.theirs.version == newer.version
    with pytest.raises(VersionMismatch):
        await space.put("k", 4, expected_version=0)
    assert [record.exists for record in await space.get_many(["k", "none"])] == [True, False]
    assert [record.key async for record in space.list()] == ["k"]
    assert (await space.key("tally").increment(3)).value == 3
    with pytest.raises(MergeTypeMismatch):
        await space.key("k").increment(1)
    both = await space.transact([newer], [Put("a", 1), Increment("tally", 2)])
    assert len(both.results) == 2
    with pytest.raises(TransactionFailed) as failed:
        await space.transact([written], [Put("b", 1)])
    assert failed.value.failures[0].key == "k"
    assert not (await newer.delete()).exists
    await space.board("todo/").add({"what": "x"}, "t")
    async with space.board("todo/").claim(lease=60) as claim:
        assert claim is not None
        await claim.renew()
        done = await claim.complete({"found": 1})
        assert done.claim is not None
        assert done.claim.result == {"found": 1}
    async with space.board("todo/").claim() as claim:
        assert claim is None


async def test_one_request_id_is_executed_once_however_often_it_is_sent(space: Namespace) -> None:
    name = new_request_id()
    results = await asyncio.gather(*(space.key("tally").increment(1, request_id=name) for _ in range(CALLERS)))
    assert {result.value for result in results} == {1}
    assert sorted(Counter(result.replayed for result in results).items()) == [(False, 1), (True, CALLERS - 1)]


async def test_64_callers_and_random_cancels_every_answer_its_own(space: Namespace) -> None:
    """Each writes and reads keys of its own, and only those may come back."""
    chance = random.Random(64)
    loop = asyncio.get_running_loop()
    outcomes: Counter[str] = Counter()

    async def one(name: str, number: int) -> None:
        written = await space.put(name, [name, number], blind=True)
        assert (written.key, written.value) == (name, [name, number])
        await space.key("tally").increment(1)
        read = await space.get(name)
        assert read is not None
        assert (read.key, read.value, read.version) == (name, [name, number], written.version)

    async def caller(number: int) -> None:
        for turn in range(12):
            task = asyncio.create_task(one(f"own/{number}/{turn}", turn))
            if chance.random() < 0.6:
                loop.call_later(chance.expovariate(1 / 0.01), task.cancel)
            await asyncio.wait([task])
            outcomes["cancelled" if task.cancelled() else "done"] += 1
            if not task.cancelled():
                task.result()

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    assert min(outcomes["cancelled"], outcomes["done"]) > CALLERS
    tally = await space.get("tally", int)
    assert tally is not None
    assert outcomes["done"] <= tally.value <= outcomes["done"] + outcomes["cancelled"]
    # The connection is whole: more calls than fit in flight are all answered.
    results = await asyncio.gather(*(space.put(f"after/{n}", n) for n in range(1_500)))
    assert [record.value for record in results] == list(range(1_500))


async def test_a_waiting_claim_holds_up_nobody(space: Namespace) -> None:
    async def wait() -> bool:
        async with space.board("todo/").claim(wait=30, lease=30) as claim:
            return claim is not None

    waiting = asyncio.create_task(wait())
    await asyncio.gather(*(space.put(f"k{n}", n) for n in range(200)))
    assert not waiting.done()
    await space.board("todo/").add({"what": "x"}, "t")
    assert await waiting


async def test_large_answers_come_whole(binary: ServerProcess, connect: Connect) -> None:
    """What is too large for the stream is asked for again by itself, and no other caller notices."""
    async with connect(binary.address, timeout=60) as client:
        space = client.shared(f"large/{new_request_id()}")
        await client.ensure_namespace(space.name, NamespacePolicy(item_bytes_max=65_536))
        keys = [f"k{n:03}" for n in range(128)]
        text = "x" * 60_000
        await asyncio.gather(*(space.put(key, text) for key in keys))

        async def small(number: int) -> None:
            for _ in range(10):
                assert (await space.put(f"small/{number}", number, blind=True)).value == number

        records, *_ = await asyncio.gather(space.get_many(keys), *(small(n) for n in range(8)))
        assert [record.value for record in records] == [text] * 128
        assert sum([1 async for _ in space.list("", page_size=1000)]) == 136


async def test_the_largest_answer_that_the_server_gives_is_taken(client: Client, space: Namespace) -> None:
    """It is limited by what records take in the store; what goes over the wire is more than 16 MiB here."""
    attributes = {f"{n:02}{'a' * 50}": "b" * 200 for n in range(16)}
    await client.ensure_namespace(space.name, NamespacePolicy(item_bytes_max=65_536))
    key = "k" * 500
    await space.put(key, b"v" * 60_900, attributes=attributes)
    records = await space.get_many([key] * 256)
    assert sum(len(record.raw) for record in records) == 256 * 60_900


@pytest.mark.parametrize("size", [70_000, 300_000, 1_048_600, 5_000_000])
async def test_a_value_that_is_far_too_large_is_refused_as_one_that_is_a_little(space: Namespace, size: int) -> None:
    for refused in (space.put("k", b"x" * size), space.transact(operations=[Put("k", b"x" * size)])):
        with pytest.raises(ValueTooLarge) as caught:
            await refused
        assert caught.value.outcome == "not_applied"
        assert caught.value.actual >= size
        assert 0 < caught.value.limit < size
