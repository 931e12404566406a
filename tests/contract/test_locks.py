"""The ports of locks, elections and presence."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.contract.coordlab import CoordinatorLab, EtcdLab
from tests.contract.lab import EmbeddedLab, until
from tests.support.etcd import needs_etcd

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.locks import Held, Member
from noosphere.server.storage.leasing import WAITERS_MAX

NAMES = ["deploy", "a|b", "x%_*", "锁/主", "ä/b:c-{d}"]
LEASE_MS = 15_000
WAIT_MS = 60_000


@pytest.fixture
def lab(coordinator_lab: CoordinatorLab) -> CoordinatorLab:
    return coordinator_lab


async def refusal_of(reason: Reason, call: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(Refusal) as refused:
        await call
    assert refused.value.reason is reason
    return refused.value.message


async def took(lab: CoordinatorLab, name: str, owner: str, **options: Any) -> Held:
    """Takes a lock that is free."""
    held = await lab.coordinator.locks.acquire(name, owner, LEASE_MS, **options)
    assert held is not None
    return held


async def waiting(lab: CoordinatorLab, name: str, owner: str, wait_ms: int = WAIT_MS) -> asyncio.Task[Held | None]:
    """Waits for a lock that somebody holds, behind all who wait already."""
    before = lab.queued(name)
    task = asyncio.create_task(lab.coordinator.locks.acquire(name, owner, LEASE_MS, wait_ms))
    await until(lambda: lab.queued(name) > before)
    return task


@pytest.mark.parametrize("name", NAMES)
async def test_one_holds_a_lock_until_it_is_released(lab: CoordinatorLab, name: str) -> None:
    locks = lab.coordinator.locks
    assert await locks.holder(name) is None
    first = await took(lab, name, "a#1", data=b"at home")
    assert first == Held(name, "a#1", first.token, LEASE_MS, b"at home")
    assert await locks.acquire(name, "b#2", LEASE_MS) is None
    assert await locks.acquire(name, "a#1", LEASE_MS) is None, "also not for its holder again"
    assert await locks.holder(name) == first
    await locks.renew(name, first.token)
    assert await locks.release(name, first.token)
    assert await locks.holder(name) is None
    second = await took(lab, name, "b#2")
    assert second.token > first.token > 0
    assert not await locks.release(name, first.token), "what was released is not released again"
    assert await locks.holder(name) == second


async def test_locks_whose_names_begin_alike_are_different(lab: CoordinatorLab) -> None:
    held = [await took(lab, name, "a#1") for name in ("a", "a/", "a/b", "ab")]
    assert await lab.coordinator.locks.release("a", held[0].token)
    for other in held[1:]:
        assert await lab.coordinator.locks.holder(other.name) == other


async def test_who_waits_gets_it_in_turn_with_growing_tokens(lab: CoordinatorLab) -> None:
    held = await took(lab, "x", "first")
    tasks = [await waiting(lab, "x", f"w{i}") for i in range(4)]
    tokens = [held.token]
    for i, task in enumerate(tasks):
        assert await lab.coordinator.locks.release("x", tokens[-1])
        assert await lab.coordinator.locks.acquire("x", "impatient", LEASE_MS) is None, "nobody goes before the queue"
        got = await task
        assert got is not None
        assert got.owner == f"w{i}"
        assert await lab.coordinator.locks.holder("x") == got
        tokens.append(got.token)
    assert tokens == sorted(set(tokens))


async def test_a_lapsed_lock_goes_to_the_next_and_its_token_is_stale(lab: CoordinatorLab) -> None:
    locks = lab.coordinator.locks
    held = await took(lab, "x", "paused")
    tasks = [await waiting(lab, "x", f"w{i}") for i in range(2)]
    for task in tasks:
        await lab.lapse_lock("x")
        later = await task
        assert later is not None
        assert later.token > held.token
        message = await refusal_of(Reason.STALE_FENCE, locks.renew("x", held.token))
        assert message == f"lock 'x' is not held under token {held.token} any more"
        assert not await locks.release("x", held.token)
        assert await locks.holder("x") == later
        held = later


async def test_a_lapse_is_seen_by_whoever_is_next_after_the_first_has_left(lab: CoordinatorLab) -> None:
    await took(lab, "x", "paused")
    cancelled, patient = await waiting(lab, "x", "cancelled"), await waiting(lab, "x", "patient")
    cancelled.cancel()
    await until(lambda: lab.queued("x") == 1)
    await lab.lapse_lock("x")
    got = await patient
    assert got is not None
    assert got.owner == "patient"


async def test_a_lapsed_lock_that_nobody_waits_for_is_free(lab: CoordinatorLab) -> None:
    first = await took(lab, "x", "gone")
    await lab.lapse_lock("x")
    assert await lab.coordinator.locks.holder("x") is None
    await refusal_of(Reason.STALE_FENCE, lab.coordinator.locks.renew("x", first.token))
    assert (await took(lab, "x", "next")).token > first.token


async def test_who_has_waited_long_enough_leaves_the_queue(lab: CoordinatorLab) -> None:
    held = await took(lab, "x", "a#1")
    task = await waiting(lab, "x", "impatient", wait_ms=300)
    lab.advance(300)
    assert await task is None
    assert lab.queued("x") == 0
    await lab.coordinator.locks.release("x", held.token)
    assert (await took(lab, "x", "b#2")).owner == "b#2"


async def test_who_is_cancelled_leaves_the_queue(lab: CoordinatorLab) -> None:
    held = await took(lab, "x", "a#1")
    cancelled, patient = await waiting(lab, "x", "cancelled"), await waiting(lab, "x", "patient")
    cancelled.cancel()
    await until(lambda: lab.queued("x") == 1)
    await lab.coordinator.locks.release("x", held.token)
    got = await patient
    assert got is not None
    assert got.owner == "patient"


async def test_however_many_want_it_one_has_it(lab: CoordinatorLab) -> None:
    inside, tokens = 0, []

    async def work(owner: str) -> None:
        nonlocal inside
        for _ in range(4):
            held = await lab.coordinator.locks.acquire("x", owner, LEASE_MS, WAIT_MS)
            assert held is not None
            inside += 1
            assert inside == 1
            tokens.append(held.token)
            await lab.coordinator.locks.holder("x")
            inside -= 1
            assert await lab.coordinator.locks.release("x", held.token)

    await asyncio.gather(*(work(f"w{i}") for i in range(8)))
    assert len(tokens) == 32
    assert tokens == sorted(set(tokens)), "tokens grow in the order of the grants"


@pytest.mark.parametrize("how", ["reopen", "crash"])
async def test_tokens_go_on_after_a_restart(lab: CoordinatorLab, how: str) -> None:
    held = await took(lab, "x", "a#1")
    member = await lab.coordinator.presence.join("g", "m", LEASE_MS)
    await (lab.reopen() if how == "reopen" else lab.crash())
    coordinator = lab.coordinator
    if lab.leases_outlive_the_process:
        await coordinator.locks.renew("x", held.token)
        assert await coordinator.presence.members("g") == (member,)
        assert await coordinator.locks.release("x", held.token)
    else:
        await refusal_of(Reason.STALE_FENCE, coordinator.locks.renew("x", held.token))
        assert await coordinator.presence.members("g") == ()
    assert (await took(lab, "x", "b#2")).token > held.token
    assert (await coordinator.presence.join("g", "m", LEASE_MS)).number > member.number


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        pytest.param({"name": ""}, Reason.INVALID_FIELD, "lock.name: must not be empty", id="empty"),
        pytest.param({"name": "a\0b"}, Reason.INVALID_FIELD, "lock.name: must not be empty or contain NUL", id="nul"),
        pytest.param({"name": "\ud800"}, Reason.INVALID_FIELD, "lock.name: is not Unicode", id="surrogate"),
        pytest.param(
            {"name": "x" * 129}, Reason.VALUE_TOO_LARGE, "lock.name has 129 bytes, the limit is 128", id="name"
        ),
        pytest.param({"owner": "x" * 257}, Reason.VALUE_TOO_LARGE, "lock.owner has 257", id="owner"),
        pytest.param({"lease_ms": 999}, Reason.INVALID_FIELD, "lock.lease_ms: 999 is not between", id="short"),
        pytest.param({"lease_ms": 3_600_001}, Reason.INVALID_FIELD, "lock.lease_ms: 3600001", id="long"),
        pytest.param({"wait_ms": -1}, Reason.INVALID_FIELD, "lock.wait_ms: -1 is not between 0", id="wait"),
        pytest.param({"data": b"x" * 4097}, Reason.VALUE_TOO_LARGE, "lock.data has 4097", id="data"),
    ],
)
async def test_a_lock_out_of_bounds_is_refused(
    lab: CoordinatorLab, changed: dict[str, Any], reason: Reason, words: str
) -> None:
    asked: dict[str, Any] = {"name": "x", "owner": "a#1", "lease_ms": LEASE_MS, "wait_ms": 0, "data": b"", **changed}
    assert words in await refusal_of(reason, lab.coordinator.locks.acquire(**asked))


async def test_a_closed_coordinator_grants_nothing(lab: CoordinatorLab) -> None:
    await lab.coordinator.close()
    await refusal_of(Reason.ENGINE_UNAVAILABLE, lab.coordinator.locks.acquire("x", "a#1", LEASE_MS))
    await refusal_of(Reason.ENGINE_UNAVAILABLE, lab.coordinator.presence.join("g", "m", LEASE_MS))


async def test_an_embedded_lock_is_held_to_the_millisecond(embedded: EmbeddedLab) -> None:
    locks = embedded.coordinator.locks
    held = await locks.acquire("x", "a#1", LEASE_MS)
    assert held is not None
    for _ in range(3):
        embedded.advance(LEASE_MS - 1)
        await locks.renew("x", held.token)
    embedded.advance(LEASE_MS - 1)
    assert await locks.holder("x") == held
    embedded.advance(1)
    assert await locks.holder("x") is None


async def test_more_than_the_limit_do_not_wait(embedded: EmbeddedLab) -> None:
    locks = embedded.coordinator.locks
    held = await locks.acquire("x", "a#1", LEASE_MS)
    assert held is not None
    tasks = [asyncio.create_task(locks.acquire("x", f"w{i}", LEASE_MS, WAIT_MS)) for i in range(WAITERS_MAX)]
    await asyncio.sleep(0)
    message = await refusal_of(Reason.LIMIT_EXCEEDED, locks.acquire("x", "more", LEASE_MS, WAIT_MS))
    assert f"the limit is {WAITERS_MAX}" in message
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await locks.release("x", held.token)
    assert await locks.acquire("x", "b#2", LEASE_MS) is not None


@needs_etcd
async def test_attempts_that_fail_leave_no_lease_behind(etcd: EtcdLab) -> None:
    before = etcd.server.leases()
    locks = etcd.coordinator.locks
    held = await locks.acquire("x", "a#1", LEASE_MS)
    assert held is not None
    for _ in range(10):
        failed = await asyncio.gather(*(locks.acquire("x", f"w{i}", LEASE_MS) for i in range(100)))
        assert failed == [None] * 100
    assert len(etcd.server.leases() - before) == 1
    await locks.release("x", held.token)
    # These race for it, so most of them have begun a lease already.
    raced = await asyncio.gather(*(locks.acquire("x", f"w{i}", LEASE_MS) for i in range(50)))
    won = [held for held in raced if held is not None]
    assert len(won) == 1
    assert len(etcd.server.leases() - before) == 1
    await locks.release("x", won[0].token)
    assert etcd.server.leases() <= before


@needs_etcd
async def test_who_waits_in_one_process_gets_what_is_released_in_another(etcd: EtcdLab) -> None:
    other = await etcd.another()
    try:
        held = await other.locks.acquire("x", "a#1", LEASE_MS)
        assert held is not None
        task = await waiting(etcd, "x", "b#2")
        await other.locks.renew("x", held.token)
        assert await other.locks.release("x", held.token)
        got = await task
        assert got is not None
        assert await other.locks.holder("x") == got
    finally:
        await other.close()


@needs_etcd
async def test_a_place_in_the_queue_is_kept_for_as_long_as_somebody_waits(etcd: EtcdLab) -> None:
    held = await took(etcd, "x", "a#1")
    task = asyncio.create_task(etcd.coordinator.locks.acquire("x", "b#2", 3_000, WAIT_MS))
    await until(lambda: etcd.queued("x") == 1)
    seats = [kv.create_revision for kv in etcd.seats("x")]
    # Its lease is as long, and began later: when it has lapsed, one that nobody renewed would have lapsed too.
    await etcd.coordinator.presence.join("clock", "m", 3_000)
    await until(lambda: not etcd.server.kvs(f"{etcd.root}here/clock\0"))
    assert [kv.create_revision for kv in etcd.seats("x")] == seats
    await etcd.coordinator.locks.release("x", held.token)
    got = await task
    assert got is not None
    assert got.token == seats[1]


@needs_etcd
async def test_members_that_join_again_leave_no_lease_behind(etcd: EtcdLab) -> None:
    before = etcd.server.leases()
    for _ in range(20):
        member = await etcd.coordinator.presence.join("g", "m", LEASE_MS)
    assert len(etcd.server.leases() - before) == 1
    assert await etcd.coordinator.presence.leave("g", "m", member.number)
    assert etcd.server.leases() <= before


@needs_etcd
async def test_a_place_in_the_queue_that_has_lapsed_is_taken_anew(etcd: EtcdLab) -> None:
    held = await took(etcd, "x", "a#1")
    task = await waiting(etcd, "x", "b#2")
    seat = max(etcd.seats("x"), key=lambda kv: kv.create_revision)
    etcd.server.lapse(seat.lease)
    await etcd.coordinator.locks.release("x", held.token)
    got = await task
    assert got is not None
    assert got.token > seat.create_revision
    assert await etcd.coordinator.locks.holder("x") == got


@pytest.mark.parametrize("name", NAMES)
async def test_a_member_is_there_until_it_leaves(lab: CoordinatorLab, name: str) -> None:
    presence = lab.coordinator.presence
    assert await presence.members(name) == ()
    b = await presence.join(name, "b", LEASE_MS, b"port 2")
    a = await presence.join(name, "a", LEASE_MS, b"port 1")
    await presence.join(f"{name}/more", "c", LEASE_MS)
    assert b == Member(name, "b", b.number, LEASE_MS, b"port 2")
    assert await presence.members(name) == (a, b)
    await presence.keep(name, "a", a.number)
    assert await presence.leave(name, "a", a.number)
    assert not await presence.leave(name, "a", a.number)
    assert await presence.members(name) == (b,)
    await refusal_of(Reason.STALE_FENCE, presence.keep(name, "a", a.number))


async def test_a_member_that_joins_again_replaces_its_earlier_life(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    first = await presence.join("g", "m", LEASE_MS, b"old")
    second = await presence.join("g", "m", LEASE_MS, b"new")
    assert second.number > first.number
    assert await presence.members("g") == (second,)
    message = await refusal_of(Reason.STALE_FENCE, presence.keep("g", "m", first.number))
    assert message == f"member 'm' of 'g' is not there as {first.number} any more; join again"
    assert not await presence.leave("g", "m", first.number)
    assert await presence.members("g") == (second,)


async def test_a_member_whose_lease_has_lapsed_is_gone(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    member = await presence.join("g", "m", LEASE_MS)
    await lab.lapse_members("g")
    assert await presence.members("g") == ()
    await refusal_of(Reason.STALE_FENCE, presence.keep("g", "m", member.number))
    assert not await presence.leave("g", "m", member.number)
    again = await presence.join("g", "m", LEASE_MS)
    assert await presence.members("g") == (again,)


async def test_a_member_out_of_bounds_is_refused(lab: CoordinatorLab) -> None:
    presence = lab.coordinator.presence
    assert "member.group" in await refusal_of(Reason.INVALID_FIELD, presence.join("", "m", LEASE_MS))
    assert "member.name" in await refusal_of(Reason.INVALID_FIELD, presence.join("g", "a\0", LEASE_MS))
    assert "member.lease_ms" in await refusal_of(Reason.INVALID_FIELD, presence.join("g", "m", 1))
    assert "member.data" in await refusal_of(Reason.VALUE_TOO_LARGE, presence.join("g", "m", LEASE_MS, b"x" * 4097))
    assert await presence.members("g") == ()
