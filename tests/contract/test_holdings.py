"""The ports of locks and presence: what ends with an incarnation, calls that come again, and who is told of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from tests.contract.coordlab import CoordinatorLab, EtcdLab
from tests.contract.lab import until
from tests.contract.test_locks import LEASE_MS, WAIT_MS, refusal_of, took
from tests.support.etcd import needs_etcd

from noosphere.consistency import Reason, Refusal, actor_name
from noosphere.server.ports.coordinator import Incarnation
from noosphere.server.ports.locks import Held, Member
from noosphere.server.storage.leasing import HOLDINGS_MAX


@pytest.fixture
def lab(coordinator_lab: CoordinatorLab) -> CoordinatorLab:
    return coordinator_lab


async def acquire(lab: CoordinatorLab, life: Incarnation, name: str = "x", **options: Any) -> Held | None:
    options = {"wait_ms": 0, **options}
    return await lab.coordinator.locks.acquire(name, actor_name(*life), LEASE_MS, life=life, **options)


async def queued(lab: CoordinatorLab, life: Incarnation, **options: Any) -> asyncio.Task[Held | None]:
    """Waits for the lock ``x``, which somebody holds."""
    before = lab.queued("x")
    task = asyncio.create_task(acquire(lab, life, wait_ms=WAIT_MS, **options))
    await until(lambda: lab.queued("x") > before)
    return task


async def arrived(lab: CoordinatorLab) -> None:
    """Returns when a call that was begun has come to where it waits: others, begun later, have been answered."""
    for _ in range(20):
        await lab.coordinator.locks.holder("x")


END = pytest.mark.parametrize("how", ["close", "takeover"])


async def end(lab: CoordinatorLab, life: Incarnation, how: str) -> None:
    if how == "close":
        await lab.coordinator.close_agent(life)
    else:
        await lab.coordinator.open_agent(life.agent_id, True)


@END
async def test_the_end_of_an_incarnation_frees_its_locks_and_ends_its_memberships(
    lab: CoordinatorLab, how: str
) -> None:
    locks, presence = lab.coordinator.locks, lab.coordinator.presence
    gone, other = [await lab.coordinator.open_agent(name, False) for name in ("a", "a/b")]
    for name in ("x", "y/锁"):
        assert await acquire(lab, gone, name) is not None
    kept = await acquire(lab, other, "z")
    own = await took(lab, "server's", "replica")
    await presence.join("g", "a", LEASE_MS, life=gone)
    stays = await presence.join("g", "a/b", LEASE_MS, life=other)
    await end(lab, gone, how)
    assert [await locks.holder(name) for name in ("x", "y/锁")] == [None, None]
    assert await presence.members("g") == (stays,)
    assert await locks.holder("z") == kept
    assert await locks.holder("server's") == own
    await refusal_of(Reason.STALE_INCARNATION, acquire(lab, gone, "w"))
    await refusal_of(Reason.STALE_INCARNATION, presence.join("g", "a", LEASE_MS, life=gone))
    assert await locks.holder("w") is None


@END
async def test_who_waits_for_a_lock_of_an_ended_incarnation_gets_it_and_ended_ones_wait_no_more(
    lab: CoordinatorLab, how: str
) -> None:
    first, second, third = [await lab.coordinator.open_agent(name, False) for name in ("a", "b", "c")]
    assert await acquire(lab, first) is not None
    ended, patient = await queued(lab, second), await queued(lab, third)
    await end(lab, second, how)
    await until(lambda: lab.queued("x") == 1)
    await end(lab, first, how)
    got = await patient
    assert got is not None
    assert got.owner == actor_name(*third)
    lab.advance(LEASE_MS)
    await refusal_of(Reason.STALE_INCARNATION, _awaited(ended))


async def _awaited(task: asyncio.Task[Held | None]) -> Held | None:
    return await task


async def test_a_member_that_another_incarnation_has_replaced_stays(lab: CoordinatorLab) -> None:
    first, second = [await lab.coordinator.open_agent(name, False) for name in ("a", "b")]
    await lab.coordinator.presence.join("g", "m", LEASE_MS, life=first)
    later = await lab.coordinator.presence.join("g", "m", LEASE_MS, life=second)
    await lab.coordinator.close_agent(first)
    assert await lab.coordinator.presence.members("g") == (later,)


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
async def test_a_call_that_comes_again_is_told_the_same_token(lab: CoordinatorLab, wait_ms: int) -> None:
    life = await lab.coordinator.open_agent("a", False)
    first = await acquire(lab, life, request="a#1/7", wait_ms=wait_ms, data=b"d")
    assert first is not None
    for _ in range(3):
        assert await acquire(lab, life, request="a#1/7", wait_ms=wait_ms, data=b"d") == first
    assert lab.queued("x") == 0
    await refusal_of(Reason.REQUEST_ID_REUSED, acquire(lab, life, request="a#1/7", wait_ms=wait_ms, data=b"other"))
    assert await acquire(lab, life, request="a#1/8") is None, "another call is another one"
    assert await lab.coordinator.locks.holder("x") == first
    assert await lab.coordinator.locks.release("x", first.token)
    assert await lab.coordinator.locks.holder("x") is None


async def test_a_call_that_comes_again_goes_on_in_its_place(lab: CoordinatorLab) -> None:
    a, b = [await lab.coordinator.open_agent(name, False) for name in ("a", "b")]
    held = await took(lab, "x", "first")
    abandoned = await queued(lab, a, request="7")
    other = await queued(lab, b)
    again = asyncio.create_task(acquire(lab, a, request="7", wait_ms=WAIT_MS))
    await arrived(lab)
    abandoned.cancel()
    await asyncio.wait((abandoned,))
    assert await lab.coordinator.locks.release("x", held.token)
    got = await again
    assert got is not None
    assert not other.done()
    assert await lab.coordinator.locks.holder("x") == got
    assert await lab.coordinator.locks.release("x", got.token)
    assert (await other) is not None


async def test_an_attempt_that_is_given_up_after_another_has_got_the_lock_takes_nothing_away(
    lab: CoordinatorLab,
) -> None:
    life = await lab.coordinator.open_agent("a", False)
    held = await took(lab, "x", "first")
    abandoned = await queued(lab, life, request="7")
    again = asyncio.create_task(acquire(lab, life, request="7", wait_ms=WAIT_MS))
    await arrived(lab)
    await lab.coordinator.locks.release("x", held.token)
    got = await again
    abandoned.cancel()
    await asyncio.wait((abandoned,))
    assert got is not None
    assert await lab.coordinator.locks.holder("x") == got


async def test_locks_are_listed_by_name_and_in_pages(lab: CoordinatorLab) -> None:
    locks = lab.coordinator.locks
    names = [f"n{i}" for i in range(5)] + ["锁/a", "锁/b"]
    taken = [await took(lab, name, "a#1") for name in reversed(names)][::-1]
    waits = asyncio.create_task(locks.acquire("n1", "b#2", LEASE_MS, WAIT_MS))
    await until(lambda: lab.queued("n1") == 1)
    assert await locks.held("", "", 100) == tuple(taken)
    assert await locks.held("n", "", 2) == tuple(taken[:2])
    assert await locks.held("n", "n1", 2) == tuple(taken[2:4])
    assert await locks.held("n", "n3", 100) == (taken[4],)
    assert await locks.held("锁/", "", 100) == tuple(taken[5:])
    assert await locks.held("nobody", "", 100) == ()
    await locks.release("n0", taken[0].token)
    assert (await locks.held("", "", 1)) == (taken[1],)
    waits.cancel()


async def test_one_incarnation_holds_so_many_locks_and_no_more(lab: CoordinatorLab) -> None:
    life, other = [await lab.coordinator.open_agent(name, False) for name in ("a", "b")]
    for first in range(0, HOLDINGS_MAX, 50):
        calls = (acquire(lab, life, f"n{i}") for i in range(first, first + 50))
        assert all(await asyncio.gather(*calls))
    message = await refusal_of(Reason.LIMIT_EXCEEDED, acquire(lab, life, "more"))
    assert f"the limit is {HOLDINGS_MAX}" in message
    assert await acquire(lab, other, "more") is not None
    held = await lab.coordinator.locks.holder("n0")
    assert held is not None
    await lab.coordinator.locks.release("n0", held.token)
    assert await acquire(lab, life, "n0") is not None


async def told(changes: AsyncIterator[Mapping[str, Member]], *names: str) -> Mapping[str, Member]:
    """Returns what a watch tells once exactly these are there."""
    async with asyncio.timeout(20):
        async for there in changes:
            if set(there) == set(names):
                return there
    raise AssertionError("the watch has ended")


async def test_a_watch_tells_who_is_there_and_who_comes_and_goes(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    life = await lab.coordinator.open_agent("c", False)
    a = await presence.join("g", "a", LEASE_MS, b"1")
    async with aclosing(presence.watch("g")) as changes:
        assert await told(changes, "a") == {"a": a}
        b = await presence.join("g", "b", LEASE_MS)
        await presence.join("g2", "elsewhere", LEASE_MS)
        assert await told(changes, "a", "b") == {"a": a, "b": b}
        later = await presence.join("g", "a", LEASE_MS, b"2")
        while (there := await anext(changes))["a"] != later:
            pass
        assert list(there) == ["a", "b"]
        await presence.leave("g", "b", b.number)
        await told(changes, "a")
        await presence.join("g", "c", LEASE_MS, life=life)
        await told(changes, "a", "c")
        await lab.coordinator.close_agent(life)
        await told(changes, "a")
    async with aclosing(presence.watch("nobody's")) as changes:
        assert await anext(changes) == {}


async def test_a_watch_that_is_read_slowly_tells_what_is_there_when_it_is_read(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    async with aclosing(presence.watch("g")) as changes:
        assert await anext(changes) == {}
        for _ in range(20):
            members = [await presence.join("g", f"m{i}", LEASE_MS) for i in range(10)]
        # All of it is known here by now.
        await lab.coordinator.refresh()
        told = 0
        async with asyncio.timeout(20):
            while await anext(changes) != {member.name: member for member in members}:
                told += 1
        assert told < 20, "not each of 200 changes by itself"


async def test_a_watch_tells_of_a_lapse(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    await presence.join("g", "a", LEASE_MS)
    async with aclosing(presence.watch("g")) as changes:
        await told(changes, "a")
        task = asyncio.create_task(told(changes))
        await asyncio.sleep(0.05)
        assert not task.done()
        await lab.lapse_members("g")
        await task


@needs_etcd
async def test_what_an_incarnation_held_leaves_no_lease_behind(etcd: EtcdLab) -> None:
    before = etcd.server.leases()
    life = await etcd.coordinator.open_agent("a", False)
    for name in ("x", "y"):
        held = await acquire(etcd, life, name, request=f"7/{name}")
        assert await acquire(etcd, life, name, request=f"7/{name}") == held
    for _ in range(3):
        await etcd.coordinator.presence.join("g", "a", LEASE_MS, life=life)
    assert len(etcd.server.leases() - before) == 4, "one each, and the agent's"
    await etcd.coordinator.close_agent(life)
    assert etcd.server.leases() <= before
    assert not etcd.server.kvs(f"{etcd.root}mine/")


@needs_etcd
async def test_a_call_goes_on_at_another_process(etcd: EtcdLab) -> None:
    other = await etcd.another()
    try:
        life = await etcd.coordinator.open_agent("a", False)
        held = await took(etcd, "x", "first")
        here = await queued(etcd, life, request="7")
        place = max(kv.create_revision for kv in etcd.seats("x"))
        there = asyncio.create_task(
            other.locks.acquire("x", actor_name(*life), LEASE_MS, WAIT_MS, life=life, request="7")
        )
        await until(lambda: any(kv.mod_revision > kv.create_revision for kv in etcd.seats("x")))
        await etcd.coordinator.locks.release("x", held.token)
        got = await there
        assert got is not None
        assert got.token == place
        results = await asyncio.gather(here, return_exceptions=True)
        assert results[0] == got or (isinstance(results[0], Refusal) and results[0].reason is Reason.CONTENTION)
        assert await other.locks.holder("x") == got
    finally:
        await other.close()


@needs_etcd
async def test_the_seat_of_a_process_that_died_is_taken_over_by_the_retry(etcd: EtcdLab) -> None:
    other = await etcd.another()
    life = await etcd.coordinator.open_agent("a", False)
    held = await took(etcd, "x", "first")
    task = asyncio.create_task(other.locks.acquire("x", actor_name(*life), LEASE_MS, WAIT_MS, life=life, request="7"))
    await until(lambda: etcd.queued("x") == 1)
    # A process that dies drops nothing.
    client: Any = other._client
    client._closed = True
    task.cancel()
    await asyncio.wait((task,))
    assert etcd.queued("x") == 1
    again = asyncio.create_task(acquire(etcd, life, request="7", wait_ms=WAIT_MS))
    await until(lambda: any(kv.mod_revision > kv.create_revision for kv in etcd.seats("x")))
    assert etcd.queued("x") == 1, "it does not wait behind itself"
    await etcd.coordinator.locks.release("x", held.token)
    assert (await again) is not None
    await other.close()
