"""Claims: renewed while their holder works, given up in doubt, handed back on leaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.unit.client_support import (
    Fault,
    ManualTime,
    ScriptedServer,
    live_record,
    manual_transport,
    put_applied,
    scripted_server,
)

from noosphere.client import AckedWritesLost, ClaimLost, InvalidArgument, ServerError
from noosphere.client._board import Board, new_name, scalar_fields
from noosphere.client._space import Space
from noosphere.client._transport import Transport
from noosphere.client._values import JSON, Payload
from noosphere.consistency import Encoding, make_revision
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms

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
def board(transport: Transport) -> Board[Any]:
    return Board(Space(transport, "shared/launch"), JSON, "todo/")


def claimed(fence: int = 50) -> ms.ClaimNextResponse:
    record = live_record("todo/a", b'{"url":"x"}')
    record.claim.holder = "tester#1"
    record.claim.fence = fence
    record.claim.attempts = 2
    return ms.ClaimNextResponse(record=record, head=fence)


def completed() -> ms.CompleteResponse:
    record = claimed().record
    record.claim.done = True
    return ms.CompleteResponse(record=record, head=60)


RENEWED = ms.RenewResponse()
RELEASED = ms.ReleaseResponse()


async def test_completing_presents_the_fence_and_ends_the_claim(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", claimed(fence=50))
    server.script("Complete", completed())
    async with board.claim(where={"kind": "crawl"}) as claim:
        assert claim is not None
        assert (claim.key, claim.value, claim.fence, claim.attempts) == ("todo/a", {"url": "x"}, 50, 2)
        record = await claim.complete({"ok": True})
        assert record.claim is not None
        assert record.claim.done
        with pytest.raises(ClaimLost):
            await claim.complete({"ok": True})
    request = server.requests["Complete"][0]
    assert (request.key, request.fence, request.result.data) == ("todo/a", 50, b'{"ok":true}')
    assert server.requests["ClaimNext"][0].where["kind"].string_value == "crawl"
    assert not server.requests["Release"]


async def test_leaving_without_completing_releases(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", claimed(fence=50))
    server.script("Release", RELEASED)
    with pytest.raises(ZeroDivisionError):
        async with board.claim():
            raise ZeroDivisionError
    assert [request.fence for request in server.requests["Release"]] == [50]


async def test_a_failed_release_does_not_hide_the_bodys_error(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", claimed())
    server.script("Release", Fault(reason="CLAIM_LOST"))
    with pytest.raises(ZeroDivisionError):
        async with board.claim():
            raise ZeroDivisionError


async def test_no_free_task_is_none(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", ms.ClaimNextResponse(head=3))
    async with board.claim() as claim:
        assert claim is None
    assert not server.requests["Release"]


async def test_a_third_of_the_lease_is_never_passed_without_renewal(
    server: ScriptedServer, board: Board[Any], time: ManualTime
) -> None:
    server.script("ClaimNext", claimed(fence=50))
    server.script("Renew", *[RENEWED] * 5)
    server.script("Complete", completed())
    async with board.claim(lease=LEASE) as claim:
        assert claim is not None
        for _ in range(5):
            assert await time.sleeper() == pytest.approx(LEASE / 3)
            time.advance(LEASE / 3)
            await server.arrival("Renew")
        await claim.complete()
    assert {(request.fence, request.lease.seconds) for request in server.requests["Renew"]} == {(50, 30)}


async def work_until_cancelled(board: Board[Any], time: ManualTime, *, obey: bool = True) -> None:
    async with board.claim(lease=LEASE) as claim:
        assert claim is not None
        await time.sleeper()
        time.advance(LEASE / 3)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert not claim.is_open
            if obey:
                raise


@pytest.mark.parametrize("reason", ["CLAIM_LOST", "ACKED_WRITES_LOST"])
@pytest.mark.parametrize("obey", [True, False])
async def test_a_lost_claim_cancels_the_body(
    server: ScriptedServer, board: Board[Any], time: ManualTime, obey: bool, reason: str
) -> None:
    """Also a body that ignores its cancellation learns on leaving that the task is no longer its own."""
    server.script("ClaimNext", claimed())
    server.script("Renew", Fault(reason=reason))
    with pytest.raises(ClaimLost) as caught:
        await work_until_cancelled(board, time, obey=obey)
    assert caught.value.reason == "CLAIM_LOST"
    assert isinstance(caught.value.__cause__, AckedWritesLost) == (reason == "ACKED_WRITES_LOST")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert not server.requests["Release"]


def lost_in_a_failover() -> Fault:
    cut, end = make_revision(1, 40), make_revision(1, 90)
    detail = errors_pb2.LostRevisionsDetail(
        namespace="shared/launch", to=end, head=make_revision(2, 1), **{"from": cut}
    )
    return Fault(reason="ACKED_WRITES_LOST", detail=detail)


async def test_a_loss_that_is_heard_on_giving_back_is_told(server: ScriptedServer, board: Board[Any]) -> None:
    """Only who presents what was lost is told so, and once: the refusal of the release may be that one time."""
    server.script("ClaimNext", claimed(make_revision(1, 50)))
    server.script("Release", lost_in_a_failover())
    with pytest.raises(AckedWritesLost) as caught:
        async with board.claim():
            pass
    assert (caught.value.lost_after, caught.value.lost_through) == (make_revision(1, 40), make_revision(1, 90))


async def test_a_loss_that_is_heard_while_a_block_fails_is_told_by_the_next_causal_read(
    server: ScriptedServer, board: Board[Any], transport: Transport
) -> None:
    server.script("ClaimNext", claimed(make_revision(1, 50)))
    server.script("Release", lost_in_a_failover())
    with pytest.raises(ZeroDivisionError):
        async with board.claim():
            raise ZeroDivisionError
    demand = transport.progress.causal.demand("causal", "shared/launch")
    assert demand.presented is not None
    assert any(make_revision(1, 40) < seen <= make_revision(1, 90) for seen in demand.presented.named("shared/launch"))


async def work_while_time_passes(board: Board[Any], time: ManualTime) -> None:
    async with board.claim(lease=LEASE):
        ticking = asyncio.create_task(tick(time))
        try:
            await asyncio.Event().wait()
        finally:
            ticking.cancel()


async def test_a_lease_in_doubt_ends_the_body_in_time(
    server: ScriptedServer, board: Board[Any], time: ManualTime
) -> None:
    """No answer to any renewal: the holder stops when its own deadline has passed, whatever the server thinks."""
    server.script("ClaimNext", claimed())
    server.script("Renew", *[Fault("INTERNAL")] * 200)
    began = time.clock()
    with pytest.raises(ClaimLost, match="could not be renewed within its lease of 30 s"):
        await work_while_time_passes(board, time)
    assert time.clock() - began == pytest.approx(LEASE)


@pytest.mark.parametrize("slow", ["ClaimNext", "Renew"])
async def test_the_lease_counts_from_before_its_request_was_sent(
    server: ScriptedServer, board: Board[Any], time: ManualTime, slow: str
) -> None:
    """The answer takes 6 s, all of which the server may have counted already."""
    sent: list[float] = []

    def answer(reply: Message) -> Callable[[Any], Message]:
        def step(_: Any) -> Message:
            sent.append(time.clock())
            if slow in type(reply).__name__:
                time.advance(6.0)
            return reply

        return step

    server.script("ClaimNext", answer(claimed()))
    if slow == "Renew":
        server.script("Renew", answer(RENEWED))
    server.script("Renew", *[Fault("INTERNAL")] * 200)
    with pytest.raises(ClaimLost, match="could not be renewed"):
        await work_while_time_passes(board, time)
    assert time.clock() == pytest.approx(sent[-1] + LEASE)


async def tick(time: ManualTime) -> None:
    while True:
        time.advance(await time.sleeper())


async def test_the_deadline_counts_from_before_the_claim_was_sent(
    server: ScriptedServer, board: Board[Any], time: ManualTime
) -> None:
    """The answer took 25 s: only 5 s of the lease are sure, so the claim is renewed before it is handed out."""

    def slow(_: ms.ClaimNextRequest) -> ms.ClaimNextResponse:
        time.advance(25.0)
        return claimed()

    server.script("ClaimNext", slow)
    server.script("Renew", RENEWED)
    server.script("Complete", completed())
    async with board.claim(lease=LEASE, timeout=60.0) as claim:
        assert claim is not None
        assert len(server.requests["Renew"]) == 1
        await claim.complete()


async def test_a_claim_that_was_lost_before_it_arrived_is_none(
    server: ScriptedServer, board: Board[Any], time: ManualTime
) -> None:
    def slow(_: ms.ClaimNextRequest) -> ms.ClaimNextResponse:
        time.advance(40.0)
        return claimed()

    server.script("ClaimNext", slow)
    server.script("Renew", Fault(reason="CLAIM_LOST"))
    async with board.claim(lease=LEASE, timeout=60.0) as claim:
        assert claim is None


async def test_a_cancelled_caller_stays_cancelled(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", claimed())
    server.script("Release", RELEASED)
    inside = asyncio.Event()

    async def work() -> None:
        async with board.claim():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.requests["Release"]) == 1


async def test_a_renewal_does_not_take_the_holders_own_completion_for_a_loss(
    server: ScriptedServer, board: Board[Any], time: ManualTime
) -> None:
    """The renewal falls due while the completion is under way: it waits, and finds nothing left to renew."""
    server.script("ClaimNext", claimed())
    answer = asyncio.Event()

    def late(_: ms.CompleteRequest) -> ms.CompleteResponse:
        answer.set()
        return completed()

    server.script("Complete", late)
    server.script("Renew", Fault(reason="CLAIM_LOST"))
    async with board.claim(lease=LEASE) as claim:
        assert claim is not None
        await time.sleeper()
        completing = asyncio.create_task(claim.complete())
        await asyncio.sleep(0)
        time.advance(LEASE / 3)
        await completing
    assert answer.is_set()
    assert not server.requests["Renew"]


async def test_completing_again_in_doubt_keeps_the_request_id(server: ScriptedServer, board: Board[Any]) -> None:
    """The first completion may have been applied: only under its own id is the second one answered by it."""
    server.script("ClaimNext", claimed())
    server.script("Complete", Fault("INTERNAL"), completed())
    async with board.claim() as claim:
        assert claim is not None
        with pytest.raises(ServerError) as caught:
            await claim.complete({"ok": 1})
        assert caught.value.outcome == "unknown"
        assert claim.is_open
        await claim.complete({"ok": 1})
    first, second = (request.call.request_id.sequence.sequence for request in server.requests["Complete"])
    assert first == second
    assert board._space.transport.sequencer.answered_through == second


async def test_another_result_is_another_request(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", claimed())
    server.script("Complete", Fault("INTERNAL"), completed())
    async with board.claim() as claim:
        assert claim is not None
        with pytest.raises(ServerError):
            await claim.complete({"ok": 1})
        await claim.complete({"ok": 2})
    first, second = (request.call.request_id.sequence.sequence for request in server.requests["Complete"])
    assert first < second


async def test_a_long_wait_is_asked_for_in_slices(server: ScriptedServer, board: Board[Any], time: ManualTime) -> None:
    def nothing(request: ms.ClaimNextRequest) -> ms.ClaimNextResponse:
        time.advance(request.wait.seconds + request.wait.nanos / 1e9)
        return ms.ClaimNextResponse(head=3)

    server.script("ClaimNext", nothing, nothing, nothing)
    async with board.claim(wait=12.0) as claim:
        assert claim is None
    requests = server.requests["ClaimNext"]
    assert [request.wait.seconds for request in requests] == [5, 5, 2]
    # While a call waits, hundreds may pass it: it takes no number, which would keep all of theirs from being forgotten.
    assert {request.call.request_id.WhichOneof("id") for request in requests} == {"uuid"}
    assert len({request.call.request_id.uuid for request in requests}) == 3


async def test_a_claim_that_does_not_wait_takes_a_number(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", ms.ClaimNextResponse(head=3))
    async with board.claim():
        pass
    assert [request.call.request_id.sequence.sequence for request in server.requests["ClaimNext"]] == [1]


@pytest.mark.parametrize(("lease", "wait", "field"), [(0.5, 0, "lease"), (4000, 0, "lease"), (30, 61, "wait")])
async def test_bounds_are_named(board: Board[Any], lease: float, wait: float, field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{field}: "):
        board.claim(lease=lease, wait=wait)


async def test_a_block_is_for_one_use(server: ScriptedServer, board: Board[Any]) -> None:
    server.script("ClaimNext", ms.ClaimNextResponse())
    scope = board.claim()
    async with scope:
        pass
    with pytest.raises(RuntimeError, match="one use"):
        await scope.__aenter__()


async def test_a_new_task_is_created_with_its_scalars(server: ScriptedServer, transport: Transport) -> None:
    server.script("Put", put_applied(5), put_applied(6))
    space = Space(transport, "shared/launch")
    tasks: Board[Any] = Board(space, JSON, "todo/")
    first = await tasks.add({"kind": "crawl", "n": 3, "deep": {"x": 1}})
    await tasks.add({"kind": "crawl"}, key="b", attributes={"own": True})
    sent = [request.put for request in server.requests["Put"]]
    assert [put.precondition.expected_version for put in sent] == [0, 0]
    assert all(put.precondition.HasField("expected_version") for put in sent)
    assert first.key.startswith("todo/")
    assert sent[1].key == "todo/b"
    assert (sent[0].attributes["kind"].string_value, sent[0].attributes["n"].int_value) == ("crawl", 3)
    assert set(sent[0].attributes) == {"kind", "n"}
    assert sent[1].attributes["own"].bool_value


def test_only_what_can_be_a_filter_is_one() -> None:
    value = JSON.encode({"long": "x" * 257, "none": None, "list": [1], "big": 2**70, "ok": "y", "t": True, "f": 0.5})
    assert scalar_fields(value) == {"ok": "y", "t": True, "f": 0.5}
    many = JSON.encode({str(n): n for n in range(40)})
    assert list(scalar_fields(many)) == [str(n) for n in range(16)]
    assert scalar_fields(JSON.encode([1, 2])) == {}
    assert scalar_fields(Payload(b"\xff", Encoding.BYTES)) == {}


def test_new_names_sort_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((1_700_000_000_000_000_000, 1_700_000_000_001_000_000, 1_900_000_000_000_000_000))
    monkeypatch.setattr("noosphere.client._board.time.time_ns", lambda: next(moments))
    names = [new_name() for _ in range(3)]
    assert names == sorted(names)
