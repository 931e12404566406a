"""Reservations: kept while their holder thinks, given up at the end, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.client_support import (
    Fault,
    ManualTime,
    ScriptedServer,
    got,
    live_record,
    manual_transport,
    put_applied,
    put_refused,
    scripted_server,
)

from noosphere.client import Conflict, InvalidArgument, Key, SiblingConflict, Unavailable
from noosphere.client._space import Space
from noosphere.client._transport import Transport
from noosphere.client._values import JSON
from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

LEASE = 30.0


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
async def transport(server: ScriptedServer, time: ManualTime) -> AsyncIterator[Transport]:
    async with manual_transport(server, time) as made:
        yield made


@pytest.fixture
def key(transport: Transport) -> Key[Any]:
    return Key(Space(transport, "shared/launch"), JSON, "plan")


def mine(fence: int = 50) -> ms.ReserveResponse:
    return ms.ReserveResponse(fence=fence, holder="tester#1", head=60)


THEIRS = ms.ReserveResponse(holder="other#4", head=60)
CANCELLED = ms.CancelReservationResponse(head=61)


async def test_a_reservation_is_given_up_at_the_end(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Reserve", mine(fence=50))
    server.script("CancelReservation", CANCELLED)
    scope = key.reserve()
    reservation = await scope.__aenter__()
    assert (reservation.held, reservation.holder, reservation.fence) == (True, "tester#1", 50)
    await scope.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not reservation.held
    (request,) = server.requests["CancelReservation"]
    assert (request.namespace, request.key, request.fence) == ("shared/launch", "plan", 50)


async def test_somebody_elses_is_told_and_left_alone(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Reserve", THEIRS)
    async with key.reserve() as reservation:
        assert (reservation.held, reservation.holder) == (False, "other#4")
    assert not server.requests["CancelReservation"]


async def test_a_third_of_the_lease_is_never_passed_without_renewal(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", *[mine()] * 4)
    server.script("CancelReservation", CANCELLED)
    async with key.reserve(lease=LEASE):
        await server.arrival("Reserve")
        for _ in range(3):
            assert await time.sleeper() == pytest.approx(LEASE / 3)
            time.advance(LEASE / 3)
            await server.arrival("Reserve")
    assert {request.lease.seconds for request in server.requests["Reserve"]} == {30}
    assert [request.wait.seconds for request in server.requests["Reserve"]] == [0] * 4


async def test_losing_it_stops_nobody(server: ScriptedServer, key: Key[Any], time: ManualTime) -> None:
    server.script("Reserve", mine(), THEIRS)
    scope = key.reserve(lease=LEASE)
    async with scope as reservation:
        await time.sleeper()
        time.advance(LEASE / 3)
        assert scope._keeper is not None
        await scope._keeper
        assert (reservation.held, reservation.holder) == (False, "other#4")
    assert not server.requests["CancelReservation"]


async def test_a_lease_that_could_not_be_renewed_is_over(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", mine(), *[Fault("INTERNAL")] * 200)
    scope = key.reserve(lease=LEASE)
    async with scope as reservation:
        began = time.clock()
        ticking = asyncio.create_task(tick(time))
        assert scope._keeper is not None
        await scope._keeper
        ticking.cancel()
        assert time.clock() - began == pytest.approx(LEASE)
        assert (reservation.held, reservation.holder) == (False, "")
    assert not server.requests["CancelReservation"]


async def test_who_has_lost_it_does_not_keep_others_of_the_client_waiting(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", mine(fence=50), THEIRS, mine(fence=70))
    server.script("CancelReservation", CANCELLED)
    scope = key.reserve(lease=LEASE)
    async with scope:
        await time.sleeper()
        time.advance(LEASE / 3)
        assert scope._keeper is not None
        await scope._keeper
        async with key.reserve() as second:
            assert (second.held, second.fence) == (True, 70)
    assert [request.fence for request in server.requests["CancelReservation"]] == [70]


async def test_tasks_of_one_client_take_turns(server: ScriptedServer, key: Key[Any], time: ManualTime) -> None:
    """To the server they are one holder, so it would tell each of them that it holds the key."""
    server.script("Reserve", *[mine()] * 3)
    server.script("CancelReservation", *[CANCELLED] * 3)
    inside: list[int] = []
    most = 0

    async def think(n: int) -> None:
        nonlocal most
        async with key.reserve(wait=60) as reservation:
            assert reservation.held
            inside.append(n)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(n)

    await asyncio.gather(*map(think, range(3)))
    assert most == 1
    assert not key._space.transport.progress.thinking


async def test_a_turn_that_does_not_come_in_time_is_not_waited_for(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", mine())
    server.script("CancelReservation", CANCELLED)

    async def wait() -> tuple[bool, str]:
        async with key.reserve(wait=5) as reservation:
            return reservation.held, reservation.holder

    async with key.reserve(lease=LEASE):
        ticking = asyncio.create_task(tick(time))
        server.script("Reserve", *[mine()] * 10)
        assert await wait() == (False, "tester#1")
        ticking.cancel()
    assert len(server.requests["CancelReservation"]) == 1


async def test_a_waiter_that_is_cancelled_leaves_the_queue(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", mine(), mine())
    server.script("CancelReservation", CANCELLED, CANCELLED)
    async with key.reserve():
        waiting = asyncio.create_task(key.reserve(wait=60).__aenter__())
        await time.sleeper()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with key.reserve() as reservation:
        assert reservation.held


@pytest.mark.parametrize("turns", range(6))
async def test_a_waiter_that_is_cancelled_when_its_turn_comes_passes_it_on(
    server: ScriptedServer, key: Key[Any], time: ManualTime, turns: int
) -> None:
    """At whichever step between the release and the wake-up: nobody else would ever get it."""
    queue = asyncio.Lock()
    key._space.transport.progress.thinking["shared/launch", "plan"] = queue
    await queue.acquire()
    waiting = asyncio.create_task(key.reserve(wait=60).__aenter__())
    await time.sleeper()
    queue.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not queue.locked()


async def test_a_long_wait_is_asked_for_in_slices(server: ScriptedServer, key: Key[Any], time: ManualTime) -> None:
    def nothing(request: ms.ReserveRequest) -> ms.ReserveResponse:
        time.advance(request.wait.seconds)
        return THEIRS

    server.script("Reserve", nothing, nothing, nothing)
    async with key.reserve(wait=12) as reservation:
        assert not reservation.held
    assert [request.wait.seconds for request in server.requests["Reserve"]] == [5, 5, 2]


@pytest.mark.parametrize(("lease", "wait", "field"), [(0.5, 0, "lease"), (4000, 0, "lease"), (30, 61, "wait")])
async def test_bounds_are_named(key: Key[Any], lease: float, wait: float, field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{field}: "):
        key.reserve(lease=lease, wait=wait)


async def test_a_block_is_for_one_use(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Reserve", THEIRS)
    scope = key.reserve()
    async with scope:
        pass
    with pytest.raises(RuntimeError, match="one use"):
        await scope.__aenter__()


# Updates that reserve their key.


def conflicting(dot: int) -> ms.PutResponse:
    return put_refused(Reason.CONFLICT, live_record("plan", b"%d" % dot, dot=dot))


async def test_first_reserves_before_it_reads(server: ScriptedServer, key: Key[Any]) -> None:
    came: list[str] = []

    def noting(name: str, reply: Any) -> Callable[[Any], Any]:
        def step(_: Any) -> Any:
            came.append(name)
            return reply

        return step

    server.script("Reserve", noting("reserve", mine()))
    server.script("Get", noting("get", got("plan", b"1", dot=10)))
    server.script("Put", noting("put", put_applied(11)))
    server.script("CancelReservation", noting("cancel", CANCELLED))
    record = await key.update(lambda current, _: (current or 0) + 1, reserve="first")
    assert record.value == 2
    assert came == ["reserve", "get", "put", "cancel"]


async def test_on_conflict_reserves_after_two_refusals_and_reads_again(server: ScriptedServer, key: Key[Any]) -> None:
    """While it waited for the other, that one has written: it thinks about that, not about what it was told before."""
    server.script("Get", got("plan", b"1", dot=10), got("plan", b"40", dot=40))
    server.script("Put", conflicting(20), conflicting(30), put_applied(41))
    server.script("Reserve", mine())
    server.script("CancelReservation", CANCELLED)
    asked: list[tuple[int | None, Any]] = []

    def change(current: int | None, conflict: Conflict[int] | None) -> int:
        asked.append((current, conflict and (conflict.mine, conflict.theirs and conflict.theirs.value)))
        return (current or 0) + 1

    record = await key.update(change, reserve="on_conflict")
    assert record.version == 41
    assert asked == [(1, None), (20, (2, 20)), (40, (21, 40))]
    assert [request.put.precondition.context.prefix for request in server.requests["Put"]] == [10, 20, 40]
    assert len(server.requests["Reserve"]) == len(server.requests["CancelReservation"]) == 1


async def test_an_update_that_loses_its_reservation_does_not_wait_for_itself(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", mine(fence=50), THEIRS, *[mine(fence=70)] * 200)
    server.script("Get", got("plan", b"1", dot=10), got("plan", b"20", dot=20))
    server.script("Put", conflicting(20), put_applied(21))
    server.script("CancelReservation", CANCELLED)
    ticking: list[asyncio.Task[None]] = []

    async def think(current: int | None, conflict: Conflict[int] | None) -> int:
        if conflict is None:
            # The thought takes so long that the reservation is looked after, and found to be another's.
            (keeper,) = (task for task in asyncio.all_tasks() if task.get_name() == "keep reservation plan")
            await time.sleeper()
            time.advance(LEASE / 3)
            await keeper
            ticking.append(asyncio.create_task(tick(time)))
        return (current or 0) + 1

    record = await key.update(think, reserve="first")
    ticking[0].cancel()
    assert record.value == 21
    # It asked the server again, and got it.
    assert [request.fence for request in server.requests["CancelReservation"]] == [70]


@pytest.mark.parametrize("policy", ["never", "on_conflict"])
async def test_without_need_nothing_is_reserved(server: ScriptedServer, key: Key[Any], policy: Any) -> None:
    server.script("Get", got("plan", b"1", dot=10))
    server.script("Put", conflicting(20), put_applied(21))
    await key.update(lambda current, _: current, reserve=policy)
    assert not server.requests["Reserve"]


async def test_without_a_reservation_the_update_goes_on(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Get", got("plan", b"1", dot=10))
    server.script("Put", put_applied(11))
    server.script("Reserve", Fault(reason="LIMIT_EXCEEDED"))
    await key.update(lambda current, _: current, reserve="first")
    assert len(server.requests["Put"]) == 1


async def test_a_failed_update_gives_its_reservation_up(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Reserve", mine())
    server.script("Get", Fault("UNKNOWN", message="scripted"))
    server.script("CancelReservation", CANCELLED)
    with pytest.raises(Exception, match="scripted"):
        await key.update(lambda current, _: current, reserve="first")
    assert len(server.requests["CancelReservation"]) == 1


async def test_a_cancelled_update_gives_its_reservation_up(server: ScriptedServer, key: Key[Any]) -> None:
    server.script("Reserve", mine())
    server.script("Get", got("plan", b"1", dot=10))
    server.script("CancelReservation", CANCELLED)
    thinking = asyncio.Event()

    async def think(current: Any, conflict: Any) -> Any:
        thinking.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(key.update(think, reserve="first"))
    await thinking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.requests["CancelReservation"]) == 1


async def test_a_policy_is_one_of_three(key: Key[Any]) -> None:
    with pytest.raises(InvalidArgument, match="reserve: 'always' is not one of never, on_conflict, first"):
        await key.update(lambda current, _: current, reserve="always")  # type: ignore[arg-type] # what a typo does


async def test_siblings_are_handed_to_the_function_with_their_values(server: ScriptedServer, key: Key[Any]) -> None:
    values = [
        pb.LiveValue(dot=dot, actor="b#1", value=pb.Value(data=b"%d" % dot, encoding=pb.ENCODING_JSON))
        for dot in (5, 9)
    ]
    record = pb.Record(key="plan", version=9, context=pb.CausalContext(prefix=9), values=values)
    server.script("Get", ms.GetResponse(record=record, head=9))
    server.script("Put", put_applied(10))

    def join(current: int | None, conflict: Conflict[int] | None) -> int:
        assert current == 9
        assert isinstance(conflict, SiblingConflict)
        assert conflict.theirs is not None
        return sum(conflict.theirs.values)

    written = await key.update(join)
    assert written.value == 14
    assert server.requests["Put"][0].put.precondition.context == pb.CausalContext(prefix=9)
    # Nobody else who reads it is spared the question.
    server.script("Get", ms.GetResponse(record=record, head=9))
    read = await key.read()
    with pytest.raises(Exception, match="UNRESOLVED_SIBLINGS"):
        _ = read.value


async def test_a_server_that_is_away_is_told_by_reserve_itself(
    server: ScriptedServer, key: Key[Any], time: ManualTime
) -> None:
    server.script("Reserve", *[Fault(reason="ENGINE_UNAVAILABLE")] * 70)
    ticking = asyncio.create_task(tick(time))
    with pytest.raises(Unavailable):
        await key.reserve().__aenter__()
    ticking.cancel()
    assert not key._space.transport.progress.thinking


async def tick(time: ManualTime) -> None:
    while True:
        time.advance(await time.sleeper())
