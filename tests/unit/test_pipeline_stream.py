"""The stream of batches by itself: who is begun, who waits, who is answered, whatever the calls do."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.unit.pipeline_support import SECONDS_MAX, batches, get, line, lists, put, settled

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.signals import HeadSignals
from noosphere.server.rpc import pipeline
from noosphere.server.rpc.pipeline import PipelineStream
from noosphere.v1 import memory_service_pb2 as pb

# -- answers ----------------------------------------------------------------------------------------


async def test_every_call_gets_its_own_answer_and_a_batch_of_reads_one_message() -> None:
    async with line() as both:
        both.send(*(get(number) for number in range(1, 21)))
        both.end()
        await both.rest()
        assert {number: reply.get.head for number, reply in both.answers.items()} == {n: n for n in range(1, 21)}


async def test_what_waits_holds_up_nobody() -> None:
    async with line() as both:
        both.send(put(1), get(2), put(3), get(4))
        await both.until(2)
        assert set(both.answers) == {2, 4}
        both.send(get(5))
        await both.until(3)
        both.calls.let_go.set()
        both.end()
        await both.rest()
        assert [both.answers[number].put.head for number in (1, 3)] == [1, 3]


async def test_one_calls_error_is_its_own() -> None:
    async with line() as both:
        both.send(get(1), get(2, "refused"), get(3, "broken"), pb.PipelineCall(id=4), get(5))
        both.end()
        await both.rest()
        assert both.answers[1].get.head == 1
        assert both.answers[5].get.head == 5
        refused = both.status(2)
        assert (refused.code.name, refused.reason, refused.message) == ("ABORTED", "CONFLICT", "refused is refused")
        broken = both.status(3)
        assert (broken.code.name, broken.reason) == ("INTERNAL", "")
        assert broken.message == "internal error in get: ValueError", "not what the caller wrote"
        assert both.status(4).reason == "INVALID_FIELD"
        assert "calls.request" in both.status(4).message


async def test_a_number_may_be_used_again_once_it_was_answered() -> None:
    async with line() as both:
        both.send(get(1))
        await both.until(1)
        both.answers.clear()
        both.send(get(1, "7"))
        await both.until(1)
        assert both.answers[1].get.head == 7


async def test_a_number_that_is_under_way_ends_the_stream_after_what_was_begun() -> None:
    async with line() as both:
        both.send(put(1), get(2), put(1), get(3))
        await both.until(1)
        await settled()
        assert both.calls.running == 1, "what was under way is not given up"
        both.calls.let_go.set()
        with pytest.raises(Refusal, match=r"calls\.id: 1 is the number") as caught:
            await both.rest()
        assert caught.value.reason is Reason.INVALID_FIELD
        assert set(both.answers) == {1, 2}
        assert both.calls.begun == {"1": 1, "2": 1}


async def test_nothing_of_a_batch_that_is_too_large_is_begun() -> None:
    async with line() as both:
        both.send(put(1))
        both.send(*(get(number) for number in range(2, 259)))
        await settled()
        both.calls.let_go.set()
        with pytest.raises(Refusal, match="calls has 257 entries, the limit is 256") as caught:
            await both.rest()
        assert caught.value.reason is Reason.VALUE_TOO_LARGE
        assert (set(both.answers), set(both.calls.begun)) == ({1}, {"1"})


async def test_a_connection_that_fails_ends_the_stream() -> None:
    async with line() as both:
        both.send(put(1))
        both.break_off(ConnectionError("gone"))
        await settled()
        both.calls.let_go.set()
        with pytest.raises(ConnectionError):
            await both.rest()
        assert set(both.answers) == {1}


async def test_an_empty_batch_is_nothing() -> None:
    async with line() as both:
        both.send()
        both.send(get(1))
        both.end()
        await both.rest()
        assert set(both.answers) == {1}


# -- deadlines --------------------------------------------------------------------------------------


async def test_a_call_that_is_out_of_time_is_told_so_once_and_the_others_go_on() -> None:
    async with line() as both:
        both.send(put(1, timeout=Duration(nanos=1_000_000)), put(2), put(3, timeout=Duration(seconds=60)))
        await both.until(1)
        assert both.status(1).code.name == "DEADLINE_EXCEEDED"
        assert "1 ms" in both.status(1).message
        await settled()
        assert both.calls.gone == ["1"]
        both.calls.let_go.set()
        both.end()
        await both.rest()
        assert [both.answers[number].put.head for number in (2, 3)] == [2, 3]


@pytest.mark.parametrize(
    "timeout",
    [Duration(), Duration(seconds=-1), Duration(seconds=1, nanos=-1), Duration(seconds=24 * 3600 + 1)],
    ids=["zero", "negative", "mixed", "long"],
)
async def test_a_call_with_a_malformed_deadline_is_not_begun(timeout: Duration) -> None:
    async with line() as both:
        both.send(get(1, timeout=timeout), get(2))
        both.end()
        await both.rest()
        assert both.status(1).reason == "INVALID_FIELD"
        assert "calls.timeout" in both.status(1).message
        assert set(both.calls.begun) == {"2"}


# -- flow control -----------------------------------------------------------------------------------


async def test_a_stream_with_too_many_calls_under_way_is_not_read_any_further() -> None:
    async with line() as both:
        for batch in batches(put(number) for number in range(1, 2_001)):
            both.send(*batch)
        reading = asyncio.create_task(both.until(2_000))
        await settled()
        assert both.calls.running == pipeline.IN_FLIGHT_MAX
        assert both.taken == 5, "the batch that holds the next call, and no further one"
        both.calls.let_go.set()
        await reading
        assert both.calls.most == pipeline.IN_FLIGHT_MAX
        assert all(both.answers[number].put.head == number for number in range(1, 2_001))


async def test_answers_that_nobody_takes_stop_the_reading() -> None:
    """Bytes count, not calls: a thousand answers of a megabyte each must not pile up."""
    async with line() as both:
        both.calls.size = 1_000_000
        for batch in batches(get(number) for number in range(1, 301)):
            both.send(*batch)
        await both.message()
        await settled()
        begun = len(both.calls.begun)
        assert begun * both.calls.size <= pipeline.UNSENT_BYTES_MAX + 2 * both.calls.size
        await settled()
        assert len(both.calls.begun) == begun, "nothing happens until the caller takes an answer"
        await both.until(300)
        assert all(both.answers[number].get.head == number for number in range(1, 301))


async def test_small_answers_that_nobody_takes_stop_the_reading_too() -> None:
    async with line() as both:
        for batch in batches(get(number) for number in range(1, 3_001)):
            both.send(*batch)
        await both.message()
        for _ in range(50):
            await settled()
        assert len(both.calls.begun) <= pipeline.IN_FLIGHT_MAX + both.sizes[0]
        await both.until(3_000)


async def test_only_so_many_lists_are_made_at_a_time() -> None:
    async with line() as both:
        both.send(*(lists(number) for number in range(1, 21)), get(21))
        await both.until(1)
        await settled()
        assert set(both.answers) == {21}
        assert both.calls.running == pipeline.LISTS_MAX
        both.calls.let_go.set()
        both.end()
        await both.rest()
        assert both.calls.most == pipeline.LISTS_MAX
        assert all(both.answers[number].list.head == number for number in range(1, 21))


async def test_an_answer_that_no_message_can_hold_is_refused_by_name() -> None:
    async with line() as both:
        both.calls.size = pipeline.REPLY_BYTES_MAX
        both.send(get(1))
        await both.until(1)
        assert (both.status(1).reason, both.status(1).limit().field) == ("LIMIT_EXCEEDED", "calls.reply")
        both.calls.size = 0
        both.send(get(2))
        await both.until(2)
        assert both.answers[2].get.head == 2


async def test_a_message_holds_no_more_than_it_should() -> None:
    async with line() as both:
        both.calls.size = 300_000
        both.send(*(get(number) for number in range(1, 11)))
        both.end()
        await both.rest()
        assert max(both.sizes) == 3


# -- shutdown ---------------------------------------------------------------------------------------


async def test_at_a_shutdown_every_call_that_was_sent_is_answered() -> None:
    async with line() as both:
        both.send(put(1), get(2))
        await both.until(1)
        both.signals.drain()
        await both.message()
        assert both.drained
        both.send(get(3), put(4))
        await both.until(3)
        assert [both.status(number).reason for number in (3, 4)] == ["DRAINING"] * 2
        assert set(both.calls.begun) == {"1", "2"}, "what is refused was not executed"
        both.calls.let_go.set()
        await both.until(4)
        assert both.answers[1].put.head == 1
        both.end()
        await both.rest()


async def test_a_batch_that_waits_for_room_at_a_shutdown_is_answered_to_its_end() -> None:
    async with line() as both:
        for batch in batches(put(number) for number in range(1, 1_151)):
            both.send(*batch)
        reading = asyncio.create_task(both.until(1_150))
        await settled()
        assert both.calls.running == pipeline.IN_FLIGHT_MAX
        both.signals.drain()
        await settled()
        both.calls.let_go.set()
        await reading
        refused = {n for n, reply in both.answers.items() if reply.WhichOneof("response") == "status"}
        assert refused
        assert {both.status(number).reason for number in refused} == {"DRAINING"}
        assert set(both.calls.begun) == {str(number) for number in range(1, 1_151) if number not in refused}


async def test_a_stream_whose_caller_does_not_mind_the_notice_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "LINGER_SECONDS", 0.0)
    async with line() as both:
        both.send(put(1), get(2))
        await both.until(1)
        both.signals.drain()
        await both.message()
        ended = asyncio.create_task(both.rest())
        await settled()
        assert not ended.done(), "not before what is under way was answered"
        both.calls.let_go.set()
        await asyncio.wait_for(ended, SECONDS_MAX)
        assert set(both.answers) == {1, 2}


async def test_a_batch_that_was_read_is_answered_even_if_the_stream_ends_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(pipeline, "WORTHWHILE_ANSWERS", 1)
    async with line() as both:
        both.send(*(get(number) for number in range(1, 51)))
        answered: list[int] = []
        async with asyncio.timeout(SECONDS_MAX):
            # Taken at once, so that now and then nothing is under way although the batch is not at its end.
            async for message in both.stream:
                answered += [reply.id for reply in message.replies]
                both.signals.drain()
        assert answered == list(range(1, 51))


async def test_a_stream_that_begins_during_the_shutdown_is_told_at_once() -> None:
    async with line() as both:
        both.signals.drain()
        both.send(get(1))
        await both.until(1)
        both.end()
        await both.rest()
        assert both.drained
        assert both.status(1).reason == "DRAINING"


async def test_a_stream_that_is_given_up_leaves_nobody_behind() -> None:
    async with line() as both:
        both.send(*(put(number) for number in range(1, 11)), get(11))
        await both.until(1)
        before = asyncio.all_tasks()
        await both.stream.aclose()
        assert sorted(both.calls.gone, key=int) == [str(number) for number in range(1, 11)]
        assert both.calls.running == 0
        assert len(asyncio.all_tasks()) <= len(before) - 11, "ten calls and the reader"


# -- contexts ---------------------------------------------------------------------------------------


async def test_calls_do_not_share_their_context() -> None:
    caller: contextvars.ContextVar[int] = contextvars.ContextVar("caller", default=0)
    let_go = asyncio.Event()

    async def handler(request: pb.GetRequest) -> pb.GetResponse:
        assert caller.get() == 0, "nothing is left of another call"
        token = caller.set(int(request.key))
        if int(request.key) % 2:
            await let_go.wait()
        head = caller.get()
        caller.reset(token)
        return pb.GetResponse(head=head)

    queue: asyncio.Queue[pb.PipelineRequest | None] = asyncio.Queue()

    async def requests() -> AsyncIterator[pb.PipelineRequest]:
        while (batch := await queue.get()) is not None:
            yield batch

    queue.put_nowait(pb.PipelineRequest(calls=[get(number) for number in range(1, 11)]))
    stream = PipelineStream({"get": handler}, HeadSignals()).run(requests())
    heads: dict[int, int] = {}
    while len(heads) < 10:
        message = await asyncio.wait_for(anext(stream), SECONDS_MAX)
        heads |= {reply.id: reply.get.head for reply in message.replies}
        let_go.set()
    await stream.aclose()
    assert heads == {number: number for number in range(1, 11)}


async def test_a_call_whose_stream_breaks_in_the_very_turn_in_which_it_was_begun_is_cancelled() -> None:
    """Or else it would never end, and hold whatever it holds: its key's turn, its place among a store's calls."""
    ended: list[str] = []

    async def handler(_: pb.GetRequest) -> pb.GetResponse:
        reading.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError("nobody has let it go")

    async def requests() -> AsyncIterator[pb.PipelineRequest]:
        yield pb.PipelineRequest(calls=[get(1)])
        await asyncio.Event().wait()

    async def read() -> None:
        async for _ in PipelineStream({"get": handler}, HeadSignals()).run(requests()):
            raise AssertionError("nothing is answered")

    reading = asyncio.create_task(read())
    await asyncio.wait([reading])
    assert ended == ["cancelled"]
