"""Retries: one deadline, one request id, bounded and jittered waits, and never a conflict."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client_support import (
    QUICK,
    SILENCE,
    Fault,
    ManualTime,
    ScriptedServer,
    got,
    put_applied,
    scripted_server,
)

from noosphere.client import (
    ClientClosed,
    Contention,
    DeadlineExceeded,
    InvalidArgument,
    LimitExceeded,
    NoosphereError,
    RetryPolicy,
    StaleIncarnation,
    Unavailable,
    connect,
)
from noosphere.client._transport import Transport
from noosphere.consistency import CODE_OF, Code, Reason
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

SECONDS = st.floats(0.001, 1e5)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_between_half_and_all_of_its_bound(attempts: int, chance: float) -> None:
    policy = RetryPolicy(first_delay=0.05, delay_max=1.0, chance=lambda: chance)
    bound = min(1.0, 0.05 * 2 ** min(attempts - 1, 30))
    assert bound / 2 <= policy.backoff(attempts) <= bound


@given(SECONDS, SECONDS)
def test_an_attempt_never_outlives_the_deadline_and_leaves_time_for_another(remaining: float, wait: float) -> None:
    policy = RetryPolicy()
    timeout = policy.attempt_timeout(remaining, wait)
    assert 0 < timeout <= remaining
    assert timeout == remaining or timeout >= wait + policy.attempt_min
    if remaining > 2 * (wait + policy.attempt_min):
        assert timeout <= remaining / 2


@given(st.integers(1, 63), SECONDS, st.none() | SECONDS)
def test_no_wait_goes_beyond_the_deadline(attempts: int, remaining: float, asked: float | None) -> None:
    delay = RetryPolicy().next_delay(attempts, remaining, asked)
    if delay is None:
        assert remaining < RetryPolicy().first_delay if asked is None else asked >= remaining
    else:
        assert delay < remaining
        assert asked is None or delay == asked


def test_attempts_are_bounded() -> None:
    policy = RetryPolicy(attempts_max=3)
    assert [policy.next_delay(attempts, 100.0) is None for attempts in (1, 2, 3, 4)] == [False, False, True, True]


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    """A transport whose time moves by its own sleeps, so that a whole deadline takes no time."""
    time = ManualTime()

    async def sleep(seconds: float) -> None:
        time.advance(seconds)

    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        policy = RetryPolicy(first_delay=1.0, delay_max=4.0, chance=lambda: 0.999999)
        transport = Transport(channel, "server:1", 20.0, policy, time.clock, sleep)
        transport.actor.CopyFrom(pb.Actor(agent_id="tester", incarnation=4))
        yield transport


class Attempts:
    """A stub's method that fails as told, taking all the time that an attempt has if it times out."""

    def __init__(self, transport: Transport, *faults: Fault) -> None:
        self.ids: list[str] = []
        self.timeouts: list[float] = []
        self._transport = transport
        self._faults = iter(faults)

    async def __call__(self, request: ms.PutRequest, *, timeout: float | None = None) -> ms.PutResponse:
        assert timeout is not None
        self.timeouts.append(timeout)
        self.ids.append(str(request.call.request_id))
        fault = next(self._faults, None)
        if fault is None:
            return put_applied(5)
        if fault.code == "DEADLINE_EXCEEDED":
            await self._transport.sleep(timeout)
        trailer = grpc.aio.Metadata(("grpc-status-details-bin", fault.status().SerializeToString()))
        raise grpc.aio.AioRpcError(fault.status_code, grpc.aio.Metadata(), trailer, details="scripted")


async def put(transport: Transport, method: Attempts, *, request_id: str | None = None) -> ms.PutResponse:
    reply, _ = await transport.write(method, ms.PutRequest(), request_id=request_id, timeout=None, namespace="shared/x")
    return reply


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
async def test_lost_attempts_are_repeated_under_the_same_id(transport: Transport, code: str) -> None:
    method = Attempts(transport, Fault(code), Fault(code))
    assert (await put(transport, method)).applied.revision == 5
    assert len(method.ids) == 3
    assert len(set(method.ids)) == 1
    assert transport.sequencer.answered_through == 1


async def test_a_write_that_finds_no_room_waits_for_it_and_is_not_sent_before(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noosphere.client._sequence.OPEN_MAX", 1)
    answered = asyncio.Event()
    sent: list[int] = []

    async def method(request: ms.PutRequest, *, timeout: float | None = None) -> ms.PutResponse:
        sent.append(request.call.request_id.sequence.sequence)
        await answered.wait()
        return put_applied(5)

    async def write(timeout: float) -> None:
        await transport.write(method, ms.PutRequest(), request_id=None, timeout=timeout, namespace="shared/x")

    first, second = (asyncio.create_task(write(60)) for _ in range(2))
    await asyncio.sleep(0)
    with pytest.raises(DeadlineExceeded, match=r"under way, and none made room within 0\.01 s") as caught:
        await write(0.01)
    assert caught.value.outcome == "not_applied"
    assert sent == [1]
    answered.set()
    await asyncio.gather(first, second)
    assert sent == [1, 2]


async def test_a_callers_own_id_is_repeated_too(transport: Transport) -> None:
    method = Attempts(transport, Fault("UNAVAILABLE"))
    await put(transport, method, request_id="a987fbc9-4bed-3078-cf07-9141ba07c9f3")
    assert method.ids == ['uuid: "a987fbc9-4bed-3078-cf07-9141ba07c9f3"\n'] * 2


async def test_one_deadline_covers_all_attempts(transport: Transport) -> None:
    method = Attempts(transport, *[Fault("DEADLINE_EXCEEDED")] * 100)
    began = transport.clock()
    with pytest.raises(DeadlineExceeded, match=r"no answer from server:1 within 20 s \(4 attempts\)") as caught:
        await put(transport, method)
    assert caught.value.outcome == "unknown"
    assert caught.value.request_id == "tester#4/1"
    assert transport.clock() - began <= 20.0
    assert method.timeouts[0] == 10.0
    # Out of time is abandoned: the number counts as answered and is never used again.
    assert transport.sequencer.answered_through == 1
    follow_up = Attempts(transport)
    await put(transport, follow_up)
    assert "sequence: 2" in follow_up.ids[0]
    assert "answered_through: 1" in follow_up.ids[0]


async def test_who_runs_out_of_time_hears_what_the_server_has_said_before(transport: Transport) -> None:
    method = Attempts(transport, Fault(reason="ENGINE_UNAVAILABLE"), *[Fault("DEADLINE_EXCEEDED")] * 100)
    with pytest.raises(DeadlineExceeded, match=r"no answer from server:1 .*; an earlier attempt: ENGINE_UNAVAILABLE: "):
        await put(transport, method)


async def test_an_unreachable_server_is_named(transport: Transport) -> None:
    with pytest.raises(Unavailable, match="cannot reach server:1 within 20 s") as caught:
        await put(transport, Attempts(transport, *[Fault("UNAVAILABLE")] * 100))
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("reason", [reason for reason in Reason if CODE_OF[reason] is not Code.UNAVAILABLE])
async def test_a_refusal_is_never_repeated(transport: Transport, reason: Reason) -> None:
    method = Attempts(transport, Fault(reason=reason.value))
    with pytest.raises(NoosphereError) as caught:
        await put(transport, method)
    assert (caught.value.reason, caught.value.outcome, len(method.ids)) == (reason.value, "not_applied", 1)
    assert transport.sequencer.answered_through == 1


async def test_an_exhausted_server_is_given_the_time_it_asks_for(transport: Transport) -> None:
    method = Attempts(transport, Fault(reason="LIMIT_EXCEEDED", retry_delay=7.5))
    began = transport.clock()
    await put(transport, method)
    assert transport.clock() - began == 7.5


async def test_a_delay_beyond_the_deadline_is_left_to_the_caller(transport: Transport) -> None:
    method = Attempts(transport, Fault(reason="LIMIT_EXCEEDED", retry_delay=21.0))
    began = transport.clock()
    with pytest.raises(LimitExceeded) as caught:
        await put(transport, method)
    assert (caught.value.retry_after, transport.clock() - began, len(method.ids)) == (21.0, 0.0, 1)


async def test_a_later_refusal_does_not_deny_what_an_earlier_attempt_may_have_done(transport: Transport) -> None:
    """An incarnation that has ended takes its remembered calls with it."""
    method = Attempts(transport, Fault("DEADLINE_EXCEEDED"), Fault(reason="STALE_INCARNATION"))
    with pytest.raises(StaleIncarnation) as caught:
        await put(transport, method)
    assert caught.value.outcome == "unknown"


async def test_a_decided_retry_is_certain(transport: Transport) -> None:
    method = Attempts(transport, Fault("UNAVAILABLE"), Fault(reason="CONTENTION"))
    with pytest.raises(Contention) as caught:
        await put(transport, method)
    assert caught.value.outcome == "not_applied"


UUID = "a987fbc9-4bed-3078-cf07-9141ba07c9f3"


@pytest.mark.parametrize(("request_id", "forgotten_after"), [(None, 600.0), (UUID, 120.0)], ids=["number", "uuid"])
@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "UNAVAILABLE"])
async def test_a_call_in_doubt_is_not_repeated_once_the_server_may_have_forgotten_it(
    transport: Transport, code: str, request_id: str | None, forgotten_after: float
) -> None:
    """A deadline of a day is longer than the server remembers: a late attempt would be executed once more."""
    transport.timeout = 24 * 3600.0
    transport.retry = dataclasses.replace(transport.retry, attempts_max=10_000)
    method = Attempts(transport, *[Fault(code)] * 10_000)
    began = transport.clock()
    with pytest.raises((DeadlineExceeded, Unavailable), match="not repeated: the server may soon forget") as caught:
        await put(transport, method, request_id=request_id)
    assert caught.value.outcome == "unknown"
    assert len(method.ids) > 1
    # Every attempt has also ended by then, and nobody has given up without need.
    assert forgotten_after * 0.75 < transport.clock() - began < forgotten_after * 0.95


async def test_the_time_of_a_call_in_doubt_begins_with_the_attempt_that_may_have_been_executed(
    transport: Transport,
) -> None:
    """A refusal is certain, so however long a server has no room, the call may wait for it."""
    transport.timeout = 24 * 3600.0
    refused = Fault(reason="LIMIT_EXCEEDED", retry_delay=100.0)
    method = Attempts(transport, *[refused] * 20, Fault("UNAVAILABLE"), Fault("UNAVAILABLE"))
    began = transport.clock()
    assert (await put(transport, method)).applied.revision == 5
    assert transport.clock() - began > 2_000.0
    assert len(set(method.ids)) == 1


async def test_reads_are_repeated_until_their_deadline(transport: Transport) -> None:
    method = Attempts(transport, *[Fault("DEADLINE_EXCEEDED")] * 3)
    await transport.read(method, ms.PutRequest(), timeout=24 * 3600.0, namespace="shared/x")
    assert method.timeouts[0] == 12 * 3600.0


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", True])
async def test_a_timeout_is_a_positive_number(transport: Transport, timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="timeout: "):
        transport.deadline(timeout)


# From here on over a real connection.


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


async def test_a_lost_reply_is_asked_for_again(server: ScriptedServer) -> None:
    """The server executed the put and its reply got lost; the retry is answered from memory."""
    server.script("Put", SILENCE, put_applied(5, replayed=True))
    async with connect(server.address, agent="a", retry=QUICK) as client:
        record = await client.shared("x").put("k", 1, timeout=2)
    assert record.applied is not None
    assert record.applied.replayed
    first, second = server.requests["Put"]
    assert first == second


async def test_reads_are_repeated_without_an_id(server: ScriptedServer) -> None:
    server.script("Get", Fault("UNAVAILABLE"), Fault(reason="DRAINING"), got("k", b"1"))
    async with connect(server.address, agent="a", retry=QUICK) as client:
        record = await client.shared("x").get("k")
    assert record is not None
    assert record.value == 1
    assert not any(request.call.HasField("request_id") for request in server.requests["Get"])


async def test_a_deadline_without_any_answer(server: ScriptedServer) -> None:
    server.script("Put", *[SILENCE] * 10)
    async with connect(server.address, agent="a", retry=QUICK) as client:
        with pytest.raises(DeadlineExceeded) as caught:
            await client.shared("x").put("k", 1, timeout=0.2)
        assert caught.value.outcome == "unknown"
        server.forget("Put")
        server.script("Put", put_applied(5))
        await client.shared("x").put("k", 2)
    last = server.requests["Put"][-1].call.request_id.sequence
    assert (last.sequence, last.answered_through) == (2, 1)


async def test_cancelled_calls_leave_the_connection_and_the_numbers_whole(server: ScriptedServer) -> None:
    """Cancelled at random moments; afterwards every call is answered by its own reply."""

    def echo(request: ms.PutRequest) -> ms.PutResponse:
        return put_applied(int(request.put.key))

    total = 400
    server.script("Put", *[echo] * (2 * total))
    async with connect(server.address, agent="a", retry=QUICK) as client:
        space = client.shared("x")
        tasks = [asyncio.create_task(space.put(str(n), n)) for n in range(1, total + 1)]
        for n, task in enumerate(tasks):
            if n % 3 == 0:
                task.cancel()
            await asyncio.sleep(0)
            if n % 3 == 1:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for n, result in enumerate(results, start=1):
            if not isinstance(result, asyncio.CancelledError):
                assert not isinstance(result, BaseException)
                assert (result.key, result.version) == (str(n), n)
        assert any(isinstance(result, asyncio.CancelledError) for result in results)
        assert (await space.put("7", 7)).version == 7
    last = server.requests["Put"][-1].call.request_id.sequence
    assert last.answered_through == last.sequence - 1
    numbers = [request.call.request_id.sequence.sequence for request in server.requests["Put"]]
    assert len(set(numbers)) == len(numbers)


async def test_a_closed_client_says_so(server: ScriptedServer) -> None:
    server.script("Put", SILENCE)
    async with connect(server.address, agent="a") as client:
        hanging = asyncio.create_task(client.shared("x").put("k", 1))
        await server.arrival("Put")
    with pytest.raises(ClientClosed) as caught:
        await hanging
    assert caught.value.outcome == "unknown"
    with pytest.raises(ClientClosed) as late:
        await client.shared("x").get("k")
    assert late.value.outcome == "not_applied"


async def test_a_given_channel_stays_open(server: ScriptedServer) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        async with connect(channel=channel, agent="a"):
            pass
        async with connect(channel=channel, agent="b") as client:
            assert client.actor == "b#2"


async def test_nobody_listening_is_unavailable() -> None:
    policy = dataclasses.replace(QUICK, attempts_max=3)
    with pytest.raises(Unavailable, match=r"cannot reach 127\.0\.0\.1:1 "):
        async with connect("127.0.0.1:1", retry=policy):
            pass
