"""Coalescing: one stream for many callers, of whom each has its own answer, error and deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client_support import (
    END,
    QUICK,
    SILENCE,
    Fault,
    ScriptedServer,
    got,
    live_record,
    put_applied,
    put_refused,
    scripted_server,
)

from noosphere.client import (
    Client,
    ClientClosed,
    Conflict,
    DeadlineExceeded,
    LimitExceeded,
    Namespace,
    PermissionDenied,
    ServerError,
    Unavailable,
    connect,
)
from noosphere.client._pipeline import CALL_BYTES_MAX, CALLS_PER_BATCH_MAX, CARRIED, IN_FLIGHT_MAX
from noosphere.client._sequence import OPEN_MAX
from noosphere.consistency import Reason
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms

MESSAGE_BYTES_MAX = 1024 * 1024


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK) as connected:
        yield connected


@pytest.fixture
def space(client: Client) -> Namespace:
    return client.shared("x")


def answer(call: ms.PipelineCall, response: Any = None) -> ms.PipelineReply:
    """Answers a put by its key's number, or a get by its key as the value."""
    if response is None:
        if call.HasField("put"):
            response = put_applied(int(call.put.put.key))
        else:
            response = got(call.get.key, b'"%s"' % call.get.key.encode())
    field = call.WhichOneof("request")
    assert field is not None
    reply = ms.PipelineReply(id=call.id)
    getattr(reply, field).CopyFrom(response)
    return reply


def answers(batch: ms.PipelineRequest) -> ms.PipelineResponse:
    """Answers every call of a batch, the last one first."""
    return ms.PipelineResponse(replies=[answer(call) for call in reversed(batch.calls)])


def refused(call: ms.PipelineCall, fault: Fault) -> ms.PipelineReply:
    return ms.PipelineReply(id=call.id, status=fault.status().SerializeToString())


def batches(server: ScriptedServer) -> list[ms.PipelineRequest]:
    return server.requests["Pipeline"]


def carried(server: ScriptedServer) -> list[ms.PipelineCall]:
    return [call for batch in batches(server) for call in batch.calls]


async def put(space: Namespace, number: int) -> None:
    """Puts, and checks that the answer is this call's own."""
    record = await space.put(str(number), number)
    assert (record.key, record.value, record.version) == (str(number), number, number)


async def get(space: Namespace, key: str) -> None:
    record = await space.get(key)
    assert record is not None
    assert (record.key, record.value) == (key, key)


async def test_calls_of_one_turn_share_a_batch_and_each_gets_its_own_answer(
    server: ScriptedServer, space: Namespace
) -> None:
    server.script("Pipeline", answers)
    await asyncio.gather(*(put(space, n) for n in range(1, 50)), *(get(space, f"k{n}") for n in range(50)))
    (batch,) = batches(server)
    assert len(batch.calls) == 99
    assert not server.requests["Put"]


async def test_a_batch_is_bounded_by_count_and_numbers_are_never_used_twice(
    server: ScriptedServer, space: Namespace
) -> None:
    server.script("Pipeline", *[answers] * 20)
    await asyncio.gather(*(put(space, n) for n in range(1, 601)))
    await asyncio.gather(*(put(space, n) for n in range(1, 601)))
    sizes = [len(batch.calls) for batch in batches(server)]
    assert (max(sizes), sum(sizes)) == (CALLS_PER_BATCH_MAX, 1200)
    assert len({call.id for call in carried(server)}) == 1200


async def test_a_batch_is_bounded_by_bytes_and_what_is_large_goes_by_itself(
    server: ScriptedServer, space: Namespace
) -> None:
    server.script("Pipeline", *[answers] * 20)
    server.script("Put", put_applied(100))
    large = space.put("100", "x" * (CALL_BYTES_MAX + 1))
    half = [space.put(str(n), "x" * (CALL_BYTES_MAX // 2)) for n in range(1, 21)]
    await asyncio.gather(large, *half)
    assert [request.put.key for request in server.requests["Put"]] == ["100"]
    assert len(carried(server)) == 20
    assert 2 < len(batches(server)) <= 4
    assert all(batch.ByteSize() <= MESSAGE_BYTES_MAX for batch in batches(server))


async def test_above_the_limit_callers_wait_their_turn_and_nobody_fails(
    server: ScriptedServer, space: Namespace
) -> None:
    held: list[ms.PipelineCall] = []
    most = 0

    def hold(batch: ms.PipelineRequest) -> list[ms.PipelineResponse]:
        """Answers one call a batch once there are so many that whoever keeps the limit can send no more than one."""
        nonlocal most
        held.extend(batch.calls)
        most = max(most, len(held))
        return [ms.PipelineResponse(replies=[answer(held.pop(0))])] if len(held) >= IN_FLIGHT_MAX else []

    def release(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        replies = [answer(call) for call in (*held, *batch.calls)]
        held.clear()
        return ms.PipelineResponse(replies=replies)

    server.script("Pipeline", *[hold] * 20, *[release] * 1000)
    await asyncio.gather(*(get(space, f"k{n}") for n in range(1, IN_FLIGHT_MAX + 300)))
    assert most == IN_FLIGHT_MAX
    assert len(carried(server)) == IN_FLIGHT_MAX + 299


async def test_one_error_is_one_callers_error(server: ScriptedServer, space: Namespace) -> None:
    def some_fail(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        first, second, third, *rest = batch.calls
        conflict = put_refused(Reason.CONFLICT, live_record("1", b"0", dot=9))
        replies = [answer(first, conflict), refused(second, Fault(reason="PERMISSION_DENIED"))]
        return ms.PipelineResponse(replies=[*replies, answer(third), *map(answer, rest)])

    server.script("Pipeline", some_fail)
    results = await asyncio.gather(*(put(space, n) for n in range(1, 10)), return_exceptions=True)
    assert isinstance(results[0], Conflict)
    assert results[0].theirs is not None
    assert results[0].theirs.value == 0
    assert isinstance(results[1], PermissionDenied)
    assert (results[1].reason, results[1].outcome) == ("PERMISSION_DENIED", "not_applied")
    assert results[2:] == [None] * 7


async def test_one_deadline_is_one_callers_deadline(server: ScriptedServer, space: Namespace) -> None:
    """The call that is not answered fails by itself; those before and after it do not wait for it."""

    def skip(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        return ms.PipelineResponse(replies=[answer(call) for call in batch.calls if call.put.put.key != "7"])

    server.script("Pipeline", *[skip] * 100)
    slow = asyncio.create_task(space.put("7", 7, timeout=2))
    await asyncio.gather(*(put(space, n) for n in range(1, 7)))
    with pytest.raises(DeadlineExceeded) as caught:
        await slow
    assert caught.value.outcome == "unknown"
    await put(space, 8)
    sent = [call for call in carried(server) if call.put.put.key == "7"]
    assert len(sent) > 1, "an attempt has half of what is left, so that there is another"
    assert len({str(call.put.call.request_id) for call in sent}) == 1
    assert all(0 < call.timeout.ToMilliseconds() <= 1_200 for call in sent)


async def test_an_answer_that_comes_too_late_is_nobodys(server: ScriptedServer, space: Namespace) -> None:
    late: list[ms.PipelineReply] = []

    def withhold(batch: ms.PipelineRequest) -> list[ms.PipelineResponse]:
        late.extend(answer(call) for call in batch.calls)
        return []

    def all_of_it(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        return ms.PipelineResponse(replies=[*late, *map(answer, batch.calls), *late])

    server.script("Pipeline", withhold, all_of_it)
    gone = asyncio.create_task(space.put("1", 1))
    await server.arrival("Pipeline")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await put(space, 2)


async def test_cancelled_callers_disturb_nobody(server: ScriptedServer, space: Namespace) -> None:
    """Cancelled before they are sent, while they are on their way, and just as they are answered."""
    chance = random.Random(7)

    def any_order(batch: ms.PipelineRequest) -> list[ms.PipelineResponse]:
        replies = [answer(call) for call in batch.calls]
        chance.shuffle(replies)
        cut = chance.randrange(len(replies) + 1)
        return [ms.PipelineResponse(replies=part) for part in (replies[:cut], replies[cut:]) if part]

    server.script("Pipeline", *[any_order] * 5_000)
    done = cancelled = 0

    async def caller(first: int) -> None:
        nonlocal done, cancelled
        for number in range(first, first + 40):
            task = asyncio.create_task(put(space, number))
            turns = chance.randrange(12)
            for _ in range(turns):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                cancelled += 1
            else:
                task.result()
                done += 1

    await asyncio.gather(*(caller(n * 100 + 1) for n in range(64)))
    assert min(done, cancelled) > 200
    await put(space, 1)
    last = carried(server)[-1].put.call.request_id.sequence
    assert last.answered_through == last.sequence - 1


async def test_a_cancelled_call_that_was_not_sent_never_is(server: ScriptedServer, space: Namespace) -> None:
    server.script("Pipeline", answers)
    gone = asyncio.create_task(put(space, 1))
    stays = asyncio.create_task(put(space, 2))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert [call.put.put.key for call in carried(server)] == ["2"]


async def test_calls_of_a_failed_stream_are_repeated_under_their_ids(server: ScriptedServer, space: Namespace) -> None:
    """Some were answered before it failed; nobody else's answer reaches those that were not."""

    def half(batch: ms.PipelineRequest) -> list[Any]:
        replies = [answer(call) for call in batch.calls[:10]]
        return [ms.PipelineResponse(replies=replies), Fault("UNAVAILABLE")]

    server.script("Pipeline", half, *[answers] * 100)
    await asyncio.gather(*(put(space, n) for n in range(1, 31)))
    ids: dict[str, list[str]] = {}
    for call in carried(server):
        ids.setdefault(call.put.put.key, []).append(str(call.put.call.request_id.sequence.sequence))
    assert sorted(len(found) for found in ids.values()) == [1] * 10 + [2] * 20
    assert all(len(set(found)) == 1 for found in ids.values())
    assert len({call.id for call in carried(server)}) == 50


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "CANCELLED"])
async def test_whatever_ends_a_stream_nobody_is_told_that_nothing_happened(server: ScriptedServer, code: str) -> None:
    # Not ended by a deadline: how many attempts that leaves is for the machine to say.
    async with connect(server.address, agent="a", retry=replace(QUICK, attempts_max=3), timeout=60) as client:
        server.script("Pipeline", *[Fault(code)] * 1000)
        with pytest.raises(Unavailable) as caught:
            await client.shared("x").put("1", 1)
        assert caught.value.outcome == "unknown"
        assert len(batches(server)) == 3


async def test_a_stream_that_is_refused_says_why(server: ScriptedServer, space: Namespace) -> None:
    server.script("Pipeline", Fault("PERMISSION_DENIED", reason="PERMISSION_DENIED"))
    with pytest.raises(PermissionDenied) as caught:
        await space.put("1", 1)
    assert caught.value.outcome == "not_applied"
    assert len(batches(server)) == 1


async def test_a_stream_that_ends_in_good_order_leaves_nobody_behind(server: ScriptedServer, space: Namespace) -> None:
    """A server that stops says so, reads no further, and never begins what is still on its way."""
    draining = ms.PipelineResponse(draining=True)

    def last_words(batch: ms.PipelineRequest) -> list[Any]:
        return [ms.PipelineResponse(replies=[answer(call) for call in batch.calls[:5]]), draining, END]

    server.script("Pipeline", last_words, *[answers] * 100)
    await asyncio.gather(*(put(space, n) for n in range(1, 21)))
    assert len(batches(server)[0].calls) == 20
    assert len(carried(server)) == 35


async def test_while_a_stream_ends_new_calls_take_another(server: ScriptedServer, space: Namespace) -> None:
    """The old one still answers what it had begun."""
    first: list[ms.PipelineCall] = []

    def announce(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        first.extend(batch.calls)
        return ms.PipelineResponse(draining=True)

    half_closed, released = asyncio.Event(), asyncio.Event()

    async def last_words() -> ms.PipelineResponse:
        half_closed.set()
        await released.wait()
        return ms.PipelineResponse(replies=[answer(call) for call in first])

    server.last_words = last_words
    server.script("Pipeline", announce, *[answers] * 10)
    old = asyncio.create_task(put(space, 1))
    await half_closed.wait()
    await put(space, 2)
    assert not old.done()
    released.set()
    await old
    assert [call.put.put.key for call in carried(server)] == ["1", "2"]
    assert server.streams == 2


async def test_a_server_without_pipeline_is_called_unary(server: ScriptedServer, space: Namespace) -> None:
    server.script("Pipeline", Fault("UNIMPLEMENTED"))
    server.script("Put", *[lambda request: put_applied(int(request.put.key))] * 400)
    await asyncio.gather(*(put(space, n) for n in range(1, 301)))
    await put(space, 301)
    assert len(batches(server)) <= 2
    keys = [request.put.key for request in server.requests["Put"]]
    assert sorted(map(int, keys)) == list(range(1, 302)), "each once: nothing of the stream was executed"
    numbers = [request.call.request_id.sequence.sequence for request in server.requests["Put"]]
    assert len(set(numbers)) == 301


async def test_an_answer_that_is_too_large_for_the_stream_is_asked_for_again(
    server: ScriptedServer, space: Namespace
) -> None:
    limit = errors_pb2.LimitDetail(field="calls.reply", actual=5_000_000, limit=4_000_000)

    def too_large(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        return ms.PipelineResponse(
            replies=[refused(call, Fault(reason="LIMIT_EXCEEDED", detail=limit)) for call in batch.calls]
        )

    server.script("Pipeline", too_large)
    records = [live_record("a", b"1"), live_record("b", b"2")]
    server.script("BatchGet", ms.BatchGetResponse(records=records, head=9))
    assert [record.value for record in await space.get_many(["a", "b"])] == [1, 2]
    # Any other limit is the caller's business.
    other = Fault(reason="LIMIT_EXCEEDED", detail=errors_pb2.LimitDetail(field="namespace", actual=2, limit=1))
    server.script("Put", other)
    with pytest.raises(LimitExceeded):
        await space.put("c", 1)


async def test_an_answer_of_another_kind_is_an_error_of_the_server(server: ScriptedServer, space: Namespace) -> None:
    def confused(batch: ms.PipelineRequest) -> ms.PipelineResponse:
        call, other = batch.calls
        wrong = ms.PipelineReply(id=call.id, delete=ms.DeleteResponse())
        return ms.PipelineResponse(replies=[wrong, answer(other), ms.PipelineReply(id=999)])

    server.script("Pipeline", confused)
    results = await asyncio.gather(put(space, 1), put(space, 2), return_exceptions=True)
    assert isinstance(results[0], ServerError)
    assert "answered by something else" in results[0].message
    assert results[0].outcome == "unknown"
    assert results[1] is None


async def test_a_status_that_cannot_be_read_is_an_error_of_the_server(server: ScriptedServer, space: Namespace) -> None:
    server.script("Pipeline", lambda batch: ms.PipelineResponse(replies=[ms.PipelineReply(id=1, status=b"\xff\xff")]))
    with pytest.raises(ServerError):
        await put(space, 1)


async def test_a_client_that_is_closed_ends_what_is_under_way_and_what_waits(server: ScriptedServer) -> None:
    server.script("Pipeline", *[SILENCE] * 100)
    async with connect(server.address, agent="a", retry=QUICK, timeout=60) as client:
        space = client.shared("x")
        writes = [asyncio.create_task(space.put(str(n), n)) for n in range(OPEN_MAX + 10)]
        reads = [asyncio.create_task(space.get(str(n))) for n in range(IN_FLIGHT_MAX)]
        while len(carried(server)) < IN_FLIGHT_MAX:
            await server.arrival("Pipeline")
    results = await asyncio.gather(*writes, *reads, return_exceptions=True)
    assert all(isinstance(result, ClientClosed) for result in results)
    # What waited for its turn was never sent.
    outcomes = [result.outcome for result in results[: OPEN_MAX + 10] if isinstance(result, ClientClosed)]
    assert outcomes == ["unknown"] * OPEN_MAX + ["not_applied"] * 10
    with pytest.raises(ClientClosed):
        await space.put("1", 1)


async def test_what_the_stream_does_not_carry_stays_unary(server: ScriptedServer, space: Namespace) -> None:
    server.script("ListHistory", ms.ListHistoryResponse(head=1))
    server.script("ClaimNext", ms.ClaimNextResponse(head=1))
    assert [entry async for entry in space.history()] == []
    async with space.board("todo/").claim() as claim:
        assert claim is None
    assert not batches(server)


async def test_coalescing_can_be_switched_off(server: ScriptedServer) -> None:
    server.script("Put", *[lambda request: put_applied(int(request.put.key))] * 10)
    async with connect(server.address, agent="a", retry=QUICK, coalesce=False) as client:
        await asyncio.gather(*(put(client.shared("x"), n) for n in range(1, 11)))
    assert not batches(server)


def test_everything_that_the_contract_carries_is_carried() -> None:
    fields = {field.name for field in ms.PipelineCall.DESCRIPTOR.oneofs_by_name["request"].fields}
    assert set(CARRIED.values()) == fields
    methods = ms.DESCRIPTOR.services_by_name["MemoryService"].methods_by_name
    for name, field in CARRIED.items():
        assert methods[name].input_type is ms.PipelineCall.DESCRIPTOR.fields_by_name[field].message_type
        assert methods[name].output_type is ms.PipelineReply.DESCRIPTOR.fields_by_name[field].message_type
