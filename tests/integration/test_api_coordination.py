"""Locks, elections and presence over the API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.coordination import LEASE_MS, Coordinated, fresh
from tests.support.engine import LocalServer
from tests.support.statuses import Refused
from tests.support.worlds import DIRECT, World

from noosphere.v1 import coordination_service_pb2 as pb

LOCAL = pytest.mark.parametrize("world", ["in process"], indirect=True)


async def agents(world: World, *names: str) -> list[Coordinated]:
    return [Coordinated(await world.agent(name)) for name in names]


async def refused(reason: str, call: Awaitable[Any]) -> str:
    with pytest.raises(Refused) as found:
        await call
    assert found.value.reason == reason, found.value
    return str(found.value.message)


@DIRECT
async def test_one_agent_holds_a_lock_and_everybody_is_told_who(world: World) -> None:
    a, b = await agents(world, "a", "b")
    name = fresh("deploy")
    assert await b.holder(name) is None
    lock = await a.took(name, data=b"at home")
    assert (lock.holder, lock.data, lock.lease.seconds) == (a.agent.name, b"at home", LEASE_MS // 1000)
    assert await b.acquire(name) is None
    assert await b.holder(name) == lock
    await a.renew(lock)
    assert await a.release(lock)
    assert not await a.release(lock)
    assert (await b.took(name)).token > lock.token


@LOCAL
async def test_who_waits_gets_a_lock_in_turn(world: World) -> None:
    a, b, c = await agents(world, "a", "b", "c")
    name = fresh("x")
    lock = await a.took(name)
    second = asyncio.create_task(b.acquire(name, wait_ms=60_000))
    # Another call of the same agent comes later than the one before it on any way to the server.
    await b.holder(name)
    third = asyncio.create_task(c.acquire(name, wait_ms=60_000))
    await c.holder(name)
    await a.release(lock)
    first_served = await second
    assert first_served is not None
    assert first_served.holder == b.agent.name
    assert not third.done()
    await b.release(first_served)
    assert (await third) is not None


@DIRECT
async def test_what_is_written_under_an_older_token_is_refused(world: World) -> None:
    a, b = await agents(world, "a", "b")
    name, space = fresh("deploy"), world.space()
    old = await a.took(name, lease_ms=1_000)
    await a.agent.put(space, "k", "old", blind=True, call=a.agent.call(fences={name: old.token}))
    await world.elapse(1_500)
    new = await b.took(name, wait_ms=30_000)
    await b.agent.put(space, "k", "new", blind=True, call=b.agent.call(fences={name: new.token}))
    late = a.agent.put(space, "k", "late", blind=True, call=a.agent.call(fences={name: old.token}))
    assert name in await refused("STALE_FENCE", late)
    await refused("STALE_FENCE", a.renew(old))
    assert (await b.agent.get(space, "k")).values[0].value.data == b'"new"'


@DIRECT
@pytest.mark.parametrize("wait_ms", [0, 5_000])
async def test_a_retry_is_told_the_same_token_and_takes_nothing_twice(world: World, wait_ms: int) -> None:
    a, b = await agents(world, "a", "b")
    name = fresh("x")
    call = a.agent.call(sequence=7)
    lock = await a.took(name, call=call, wait_ms=wait_ms)
    assert await a.took(name, call=call, wait_ms=wait_ms) == lock
    await refused("REQUEST_ID_REUSED", a.acquire(name, call=call, wait_ms=wait_ms, data=b"other"))
    assert await a.release(lock)
    assert await b.took(name), "nothing was left behind"


@DIRECT
@pytest.mark.parametrize("how", ["close", "takeover"])
async def test_the_end_of_an_agent_frees_its_locks_and_ends_its_memberships(world: World, how: str) -> None:
    a, b = await agents(world, "a", "b")
    name, group = fresh("x"), fresh("g")
    await a.took(name)
    await a.join(group)
    waiting = asyncio.create_task(b.acquire(name, wait_ms=60_000))
    await b.holder(name)
    if how == "close":
        await a.agent.api.close_agent(a.agent.actor)
    else:
        await a.agent.api.open_agent(a.agent.actor.agent_id, takeover=True)
    lock = await waiting
    assert lock is not None
    assert lock.holder == b.agent.name
    assert await b.members(group) == []
    for call in (a.acquire(fresh("y")), a.join(group), a.holder(name), a.members(group), anext(a.watch(group))):
        await refused("STALE_INCARNATION", call)


@DIRECT
async def test_locks_are_listed_by_name_and_prefix(world: World) -> None:
    (a,) = await agents(world, "a")
    prefix = fresh("list")
    taken = [await a.took(f"{prefix}/{i}") for i in range(5)]
    assert await a.locks(f"{prefix}/", page_size=2) == taken
    assert await a.locks(f"{prefix}/3") == [taken[3]]
    await a.release(taken[0])
    assert await a.locks(f"{prefix}/") == taken[1:]


@DIRECT
async def test_members_are_there_until_they_leave(world: World) -> None:
    a, b = await agents(world, "a", "b")
    group = fresh("crawlers")
    mine, other = await a.join(group, data=b"1"), await b.join(group)
    assert (mine.agent_id, mine.data) == (a.agent.actor.agent_id, b"1")
    assert await a.members(group, page_size=1) == [mine, other]
    again = await a.join(group, data=b"2")
    assert again.number > mine.number
    await refused("STALE_FENCE", a.keep(group, mine))
    await refused("STALE_FENCE", b.keep(group, again))
    await a.keep(group, again)
    assert await a.leave(group, again)
    assert not await a.leave(group, again)
    assert await b.members(group) == [other]


@DIRECT
async def test_a_watch_tells_who_comes_and_goes(world: World) -> None:
    a, b = await agents(world, "a", "b")
    group = fresh("crawlers")
    watch = b.watch(group)
    assert await anext(watch) == pb.WatchMembersResponse(), "nobody is there"
    mine = await a.join(group, data=b"1")
    assert await anext(watch) == pb.WatchMembersResponse(joined=[mine])
    again = await a.join(group, data=b"2")
    assert await anext(watch) == pb.WatchMembersResponse(joined=[again])
    other = b.watch(group)
    assert await anext(other) == pb.WatchMembersResponse(joined=[again])
    await a.leave(group, again)
    for stream in (watch, other):
        assert await anext(stream) == pb.WatchMembersResponse(left=[a.agent.actor.agent_id])
        await stream.aclose()


OUT_OF_BOUNDS: dict[str, tuple[Callable[[Coordinated], Awaitable[Any]], str, str]] = {
    "own name": (lambda a: a.acquire("~upkeep"), "INVALID_FIELD", "lock.name: '~upkeep' begins with '~'"),
    "own name asked for": (lambda a: a.holder("~upkeep"), "INVALID_FIELD", "lock.name"),
    "own names listed": (lambda a: a.locks("~"), "INVALID_FIELD", "prefix"),
    "own group": (lambda a: a.join("~replicas"), "INVALID_FIELD", "group: '~replicas'"),
    "own group watched": (lambda a: anext(a.watch("~replicas")), "INVALID_FIELD", "group"),
    "own group listed": (lambda a: a.members("~replicas"), "INVALID_FIELD", "group"),
    "no name": (lambda a: a.acquire(""), "INVALID_FIELD", "lock.name"),
    "long name": (lambda a: a.acquire("x" * 129), "VALUE_TOO_LARGE", "129"),
    "long data": (lambda a: a.acquire("x", data=b"x" * 4097), "VALUE_TOO_LARGE", "4097"),
    "short lease": (lambda a: a.acquire("x", lease_ms=999), "INVALID_FIELD", "999"),
    "long wait": (lambda a: a.acquire("x", wait_ms=60_001), "INVALID_FIELD", "60001"),
    "long lease of a member": (lambda a: a.join("g", lease_ms=3_600_001), "INVALID_FIELD", "3600001"),
    "no token": (lambda a: a.renew(pb.Lock(name="x")), "INVALID_FIELD", "token"),
    "large token": (lambda a: a.release(pb.Lock(name="x", token=1 << 63)), "INVALID_FIELD", "token"),
    "no number": (lambda a: a.leave("g", pb.Member()), "INVALID_FIELD", "number"),
    "many locks a page": (lambda a: a.locks("", page_size=1_001), "INVALID_FIELD", "page_size"),
}


@DIRECT
@pytest.mark.parametrize("what", OUT_OF_BOUNDS)
async def test_what_is_out_of_bounds_is_refused_by_name(world: World, what: str) -> None:
    (a,) = await agents(world, "a")
    call, reason, words = OUT_OF_BOUNDS[what]
    assert words in await refused(reason, call(a))


@DIRECT
async def test_who_takes_something_says_who_it_is(world: World) -> None:
    (a,) = await agents(world, "a")
    nobody = Coordinated(a.agent)
    for method, request, kind in (
        ("AcquireLock", pb.AcquireLockRequest(name="x"), pb.AcquireLockResponse),
        ("JoinGroup", pb.JoinGroupRequest(group="g"), pb.JoinGroupResponse),
    ):
        request.call.SetInParent()
        assert "call.actor" in await refused("INVALID_FIELD", nobody.call(method, request, kind))


@LOCAL
async def test_the_servers_own_locks_are_not_listed(world: World) -> None:
    (a,) = await agents(world, "a")
    locks = world.server.engine.memory.core.coordinator.locks  # type: ignore[attr-defined] # a local one's
    for name in ("~a", "~b", "~c"):
        assert await locks.acquire(name, "server", LEASE_MS) is not None
    mine = [await a.took(name) for name in ("a", "锁", "x")]
    assert await a.locks("", page_size=1) == sorted(mine, key=lambda lock: lock.name)


@LOCAL
async def test_more_calls_than_the_limit_do_not_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noosphere.server.coordination.locks.WAITING_MAX", 2)
    a, b = await agents(world, "a", "b")
    held = [await a.took(fresh("x")) for _ in range(3)]
    waiting = [asyncio.create_task(b.acquire(lock.name, wait_ms=60_000)) for lock in held[:2]]
    await world.elapse(1)
    assert "the limit is 2" in await refused("LIMIT_EXCEEDED", b.acquire(held[2].name, wait_ms=60_000))
    assert await b.acquire(held[2].name) is None, "who does not wait is answered"
    for lock in held:
        await a.release(lock)
    assert [lock is not None for lock in await asyncio.gather(*waiting)] == [True, True]
    assert await b.took(held[2].name, wait_ms=60_000)


@LOCAL
async def test_many_members_are_told_in_messages_of_a_bounded_size(world: World) -> None:
    (a,) = await agents(world, "a")
    group = fresh("g")
    presence = world.server.engine.memory.core.coordinator.presence  # type: ignore[attr-defined] # a local one's
    for number in range(1_200):
        await presence.join(group, f"m{number:04}", LEASE_MS)
    watch = a.watch(group)
    sizes: list[tuple[int, bool]] = []
    while not sizes or sizes[-1][1]:
        message = await anext(watch)
        sizes.append((len(message.joined), message.more))
    assert sizes == [(500, True), (500, True), (200, False)]
    assert len(await a.members(group, page_size=1_000)) == 1_200
    await watch.aclose()


@LOCAL
async def test_a_lapsed_lock_is_free_and_a_lapsed_member_is_gone(world: World) -> None:
    a, b = await agents(world, "a", "b")
    name, group = fresh("x"), fresh("g")
    lock, member = await a.took(name), await a.join(group)
    watch = b.watch(group)
    await anext(watch)
    await world.elapse(LEASE_MS - 1)
    await a.renew(lock)
    await a.keep(group, member)
    await world.elapse(LEASE_MS - 1)
    assert await b.holder(name) == lock
    assert await b.members(group) == [member]
    await world.elapse(1)
    assert await b.holder(name) is None
    assert (await anext(watch)).left == [member.agent_id]
    await refused("STALE_FENCE", a.renew(lock))
    await refused("STALE_FENCE", a.keep(group, member))


async def test_a_shutdown_ends_waiting_and_watching(local: LocalServer) -> None:
    a, b = [Coordinated(await local.api.agent(name)) for name in ("a", "b")]
    await a.took("x")
    watch = b.watch("g")
    await anext(watch)
    waiting = asyncio.create_task(b.acquire("x", wait_ms=60_000))
    await local.elapse(1)
    local.engine.memory.signals.drain()
    await refused("DRAINING", waiting)
    await refused("DRAINING", anext(watch))
    locks: Any = local.engine.memory.core.coordinator.locks
    assert not locks._locks["x"].queue, "who does not wait any more is not in the queue"
