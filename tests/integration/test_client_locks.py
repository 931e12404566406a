"""Locks, elections and groups through the client: both clients on a real server, and the kit's time for what lapses."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect
from tests.support.waiting import until

from noosphere.client import (
    Client,
    Fence,
    GroupWatch,
    InvalidArgument,
    LockHeld,
    LockInfo,
    LockLost,
    Put,
    StaleFence,
    ValueMismatch,
    ValueTooLarge,
)
from noosphere.testing import Server, server
from noosphere.testing.sync import server as sync_server
from noosphere.v1 import coordination_service_pb2 as pb
from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceStub

SECONDS_MAX = 60.0
_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """Returns a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}-{next(_numbers)}"


@pytest.fixture
async def srv() -> AsyncIterator[Server]:
    async with server() as found:
        yield found


async def test_one_client_holds_a_lock_and_others_wait_in_turn(binary: ServerProcess, connect: Connect) -> None:
    name, inside, tokens = fresh("deploy"), 0, []

    async def work(client: Client) -> None:
        nonlocal inside
        for _ in range(3):
            async with client.lock(name) as lock:
                inside += 1
                assert inside == 1
                assert lock.is_held
                assert lock.fence == Fence(name, lock.token)
                tokens.append(lock.token)
                holder = await client.election(name).leader()
                assert holder is not None
                assert (holder.holder, holder.token) == (client.actor, lock.token)
                inside -= 1
            assert not lock.is_held

    async with connect(binary.address) as a, connect(binary.address) as b, connect(binary.address) as c:
        await asyncio.gather(*(work(client) for client in (a, b, c)))
        assert len(tokens) == 9
        assert tokens == sorted(set(tokens))
        assert await a.election(name).leader() is None


async def test_a_lock_that_is_not_free_in_time_is_an_error_that_says_who_has_it(
    binary: ServerProcess, connect: Connect
) -> None:
    name = fresh("deploy")
    async with connect(binary.address) as a, connect(binary.address) as b:
        async with a.lock(name):
            for wait in (0, 0.05):
                with pytest.raises(LockHeld) as held:
                    async with b.lock(name, wait=wait):
                        raise AssertionError("it is a's")
                assert (held.value.holder, held.value.outcome) == (a.actor, "not_applied")
                assert name in held.value.message
        async with b.lock(name, wait=0) as lock:
            await lock.release()
            assert not lock.is_held
            async with a.lock(name, wait=0):
                pass


async def test_a_leader_says_where_it_is(binary: ServerProcess, connect: Connect) -> None:
    name = fresh("planner")
    async with connect(binary.address) as a, connect(binary.address) as b:
        assert await b.election(name).leader() is None
        async with a.election(name).lead(data={"port": 7}, lease=30) as lock:
            leader = await b.election(name).leader()
            assert leader == LockInfo(name, a.actor, lock.token, 30.0, b'{"port":7}')
            assert leader is not None
            assert (leader.agent, leader.data) == (a.agent, {"port": 7})
            assert [info async for info in b.locks(name)] == [leader]
            await lock.renew()
        assert [info async for info in b.locks(name)] == []


async def test_members_come_and_go(binary: ServerProcess, connect: Connect) -> None:
    group = fresh("crawlers")
    async with connect(binary.address) as a, connect(binary.address) as b:
        assert await b.group(group).members() == ()
        async with b.group(group).watch() as changes:
            first = await anext(changes)
            assert (first.members, first.joined, first.left) == ((), (), ())
            async with a.group(group).join(data={"shard": 1}) as membership:
                came = await anext(changes)
                assert [(m.agent, m.data, m.number) for m in came.joined] == [
                    (a.agent, {"shard": 1}, membership.number)
                ]
                assert await b.group(group).members() == came.members == came.joined
                await membership.update(None)
                again = await anext(changes)
                assert [(m.agent, m.data) for m in again.members] == [(a.agent, None)]
                assert membership.number == again.members[0].number > came.members[0].number
            left = await anext(changes)
            assert (left.members, left.left) == ((), (a.agent,))


@pytest.mark.parametrize(
    ("name", "words"), [("", "empty"), ("~upkeep", "'~'"), ("a\0b", "NUL"), ("\ud800", "surrogate"), (7, "not text")]
)
async def test_names_that_are_none_are_refused_here(srv: Server, name: str, words: str) -> None:
    async with srv.client("a") as client:
        for make in (client.lock, client.election, client.group):
            with pytest.raises(InvalidArgument, match=words):
                make(name)
        with pytest.raises(ValueTooLarge) as large:
            client.lock("é" * 65)
        assert (large.value.actual, large.value.limit) == (130, 128)
        for wrong in ({"lease": 0.5}, {"lease": 3601}, {"wait": -1}, {"data": b"bytes"}, {"data": float("nan")}):
            with pytest.raises(InvalidArgument):
                client.lock("x", **wrong)
        with pytest.raises(InvalidArgument, match="not a Fence"):
            client.fenced(("x", 1))  # type: ignore[arg-type] # that is the point
        with pytest.raises(InvalidArgument, match="9 fences, the limit is 8"):
            client.fenced(*(Fence(f"x{i}", 1) for i in range(5))).fenced(*(Fence(f"y{i}", 1) for i in range(4)))


async def test_data_that_is_not_json_can_be_had_as_bytes(srv: Server) -> None:
    async with srv.client("a") as client:
        request = pb.AcquireLockRequest(name="x", data=b"\xff")
        request.lease.FromSeconds(30)
        request.call.actor.agent_id, _, number = client.actor.partition("#")
        request.call.actor.incarnation = int(number)
        stub = CoordinationServiceStub(client.channel)
        await client.call(stub.AcquireLock, request, changes=True)
        leader = await client.election("x").leader()
        assert leader is not None
        assert leader.raw == b"\xff"
        with pytest.raises(ValueMismatch):
            _ = leader.data


async def test_a_lock_renews_itself_for_as_long_as_its_block_runs(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        async with a.lock("x", lease=3) as lock, a.group("g").join(lease=3):
            for _ in range(10):
                await srv.advance(2.9)
                assert lock.is_held
                leader = await b.election("x").leader()
                assert leader is not None
                assert leader.token == lock.token
                assert [m.agent for m in await b.group("g").members()] == ["a"]
        async with b.lock("x", wait=0):
            pass


async def _hold(client: Client, entered: asyncio.Event, *, swallow: bool = False) -> None:
    async with client.lock("x", lease=3):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallow:
                raise


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_block_whose_lock_is_lost_is_cancelled(srv: Server, swallow: bool) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        entered = asyncio.Event()
        task = asyncio.create_task(_hold(a, entered, swallow=swallow))
        await entered.wait()
        with srv.faults.suspended("a"):
            await srv.advance(4)
            async with b.lock("x", wait=0) as lock:
                token = lock.token
                await srv.settle()
        await srv.advance(4)
        with pytest.raises(LockLost) as lost:
            await task
        assert lost.value.reason == "STALE_FENCE"
        assert not task.cancelled()
        assert token > 0


async def test_a_block_that_cannot_renew_in_time_is_cancelled(srv: Server) -> None:
    async with srv.client("a", timeout=20) as a:
        entered = asyncio.Event()
        task = asyncio.create_task(_hold(a, entered))
        await entered.wait()
        # The renewal takes longer than the lease.
        srv.faults.delay(10, method="RenewLock")
        await srv.advance(3.5)
        with pytest.raises(LockLost, match="could not be renewed within its lease of 3 s"):
            await task
        await srv.advance(30)


async def test_a_cancelled_block_is_cancelled_and_gives_its_lock_back(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        entered = asyncio.Event()
        task = asyncio.create_task(_hold(a, entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with b.lock("x", wait=0):
            pass


async def test_who_gives_up_waiting_leaves_the_queue(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        locks = srv.engine.memory.core.coordinator.locks._locks  # type: ignore[attr-defined] # the embedded driver's
        async with a.lock("x"):
            task = asyncio.create_task(_hold(b, asyncio.Event()))
            await until(lambda: bool(locks["x"].queue))
            task.cancel()
            await asyncio.wait((task,))
            await until(lambda: not locks["x"].queue)
        assert "x" not in locks


async def test_a_grant_that_nobody_heard_of_is_given_back(srv: Server) -> None:
    locks = srv.engine.memory.core.coordinator.locks._locks  # type: ignore[attr-defined] # the embedded driver's
    async with srv.client("a") as a, srv.client("b") as b:
        for wait in (0, 30):
            task = asyncio.create_task(_enter(a, "x", wait))
            # Granted, and the answer is on its way.
            while "x" not in locks or locks["x"].held is None:  # noqa: ASYNC110 - in this very turn of the loop
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            async with asyncio.timeout(SECONDS_MAX), b.lock("x"):
                pass


async def test_a_grant_after_a_long_wait_is_renewed_before_the_block_begins(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        entered = asyncio.Event()
        async with a.lock("x", lease=3):
            task = asyncio.create_task(_hold(b, entered))
            await srv.settle()
            await srv.advance(20)
            assert not entered.is_set()
        await entered.wait()
        await srv.advance(2.9)
        leader = await a.election("x").leader()
        assert leader is not None
        assert leader.holder == b.actor
        task.cancel()
        await asyncio.wait((task,))


async def test_waiting_for_longer_than_a_minute_goes_on(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        entered = asyncio.Event()
        async with a.lock("x"):
            task = asyncio.create_task(_hold(b, entered))
            await srv.settle()
            await srv.advance(200)
            assert not entered.is_set()
            waiting = asyncio.create_task(_enter(b, "x", 90))
            await srv.settle()
            await srv.advance(100)
            with pytest.raises(LockHeld):
                await waiting
        await entered.wait()
        task.cancel()
        await asyncio.wait((task,))


async def _enter(client: Client, name: str, wait: float) -> None:
    async with client.lock(name, wait=wait):
        pass


async def test_a_lost_reply_to_an_acquire_takes_the_lock_once(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        for wait in (0, 5):
            srv.faults.drop_reply(method="AcquireLock")
            async with a.lock("x", wait=wait):
                pass
            async with b.lock("x", wait=0):
                pass


async def test_the_end_of_a_client_frees_its_locks(srv: Server) -> None:
    async with srv.client("b") as b:
        async with srv.client("a") as a:
            scope = a.lock("x", lease=3600)
            await scope.__aenter__()
            member = a.group("g").join(lease=3600)
            await member.__aenter__()
        async with b.lock("x", wait=0):
            pass
        assert await b.group("g").members() == ()


async def test_what_is_written_under_an_older_token_is_refused_whatever_kind_of_write_it_is(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        async with a.lock("x", lease=3) as old:
            fence = old.fence
        under_old = a.fenced(fence)
        plan = under_old.shared("plan")
        record = await plan.put("k", 1)
        await plan.board("todo/").add({"n": 1}, "1")
        async with b.lock("x") as new:
            await b.fenced(new.fence).shared("plan").put("other", 1)
        for late in (
            plan.put("k2", 2),
            record.replace(2),
            plan.key("n").increment(1),
            plan.delete("k", blind=True),
            plan.transact([], [Put("k3", 3)]),
            plan.key("k").update(lambda value, conflict: 3),
        ):
            with pytest.raises(StaleFence):
                await late
        with pytest.raises(StaleFence):
            async with plan.board("todo/").claim():
                raise AssertionError("it is not to be had")
        assert (await under_old.shared("elsewhere").put("k", 1)).value == 1, (
            "nobody has written there under a later one"
        )
        assert (await a.shared("plan").put("free", 1)).value == 1, "without a fence nobody is kept away"
        assert (await plan.get("other")) is not None, "reading needs none"


async def test_a_session_can_be_written_under_a_lock(srv: Server) -> None:
    async with (
        srv.client("a") as a,
        srv.client("b") as b,
        a.lock("x", lease=3) as old,
        a.fenced(old.fence).session("s") as mine,
    ):
        await mine.append({"role": "user", "content": "one"})
        await old.release()
        async with b.lock("x") as new, b.fenced(new.fence).session("s") as theirs:
            await theirs.append({"role": "user", "content": "two"})
            with pytest.raises(StaleFence):
                await mine.append({"role": "user", "content": "three"})


async def test_lost_writes_are_written_again_under_their_lock(srv: Server) -> None:
    async with srv.client("a") as a, srv.client("b") as b:
        space = a.shared("plan")
        await space.put("base", 1)
        async with a.lock("x") as old:
            await a.fenced(old.fence).shared("plan").put("k", 1)
        await srv.faults.fail_over(lose=1)
        async with b.lock("x") as new:
            await b.fenced(new.fence).shared("plan").put("newer", 1)
        with pytest.raises(Exception, match="ACKED_WRITES_LOST") as lost:
            await space.key("k").read(consistency="causal")
        (result,) = await a.resubmit(lost.value)  # type: ignore[arg-type] # it is of this kind
        assert isinstance(result.error, StaleFence)
        assert await space.get("k") is None


async def test_a_member_that_has_lapsed_is_there_again(srv: Server) -> None:
    async with (
        srv.client("a") as a,
        srv.client("b") as b,
        a.group("g").join(lease=3, data=1) as membership,
        b.group("g").watch() as changes,
    ):
        before = membership.number
        assert [m.agent for m in (await anext(changes)).members] == ["a"]
        with srv.faults.suspended("a"):
            await srv.advance(4)
            assert (await anext(changes)).left == ("a",)
        await srv.advance(2)
        back = await anext(changes)
        assert [(m.agent, m.data) for m in back.joined] == [("a", 1)]
        assert membership.number > before


async def _next(watch: GroupWatch) -> tuple[str, ...]:
    async with asyncio.timeout(SECONDS_MAX):
        return tuple(member.agent for member in (await anext(watch)).members)


async def test_a_watch_goes_on_over_a_restart_and_tells_what_has_changed_meanwhile(srv: Server) -> None:
    async with (
        srv.client("a") as a,
        srv.client("b") as b,
        b.group("g").watch() as changes,
        a.group("g").join(lease=3) as membership,
    ):
        while await _next(changes) != ("a",):
            pass
        before = membership.number
        await srv.restart()
        # Leases end with the process: nobody is there until it says so again.
        await srv.advance(3)
        while not (change := await anext(changes)).members:
            assert change.left == ("a",)
        assert change.members[0].number == membership.number > before


def test_the_block_of_a_lock_in_a_thread_learns_of_its_loss(request: pytest.FixtureRequest) -> None:
    with sync_server() as srv, srv.client("a") as a, srv.client("b") as b:
        with pytest.raises(LockLost):
            _lose(srv, a, b)
        with a.lock("x", wait=0) as lock:
            assert lock.is_held


def _lose(srv: object, a: object, b: object) -> None:
    with a.lock("x", lease=3) as lock:  # type: ignore[attr-defined] # twins
        with srv.faults.suspended("a"):  # type: ignore[attr-defined]
            srv.advance(4)  # type: ignore[attr-defined]
            with b.lock("x", wait=0):  # type: ignore[attr-defined]
                pass
        srv.advance(4)  # type: ignore[attr-defined]
        assert not lock.is_held
