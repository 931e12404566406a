"""Request ids: never reused, never forgotten too early, and never more than the server remembers."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.client import InvalidArgument
from noosphere.client._sequence import OPEN_MAX, WINDOW_MAX, RequestTicket, Sequencer, explicit
from noosphere.consistency.limits import REQUESTS_PER_CLIENT_MAX


def number(ticket: RequestTicket) -> int:
    wire = ticket.wire()
    assert wire.WhichOneof("id") == "sequence"
    return wire.sequence.sequence


def test_numbers_begin_at_one_and_go_on() -> None:
    sequencer = Sequencer()
    assert [number(sequencer.begin()) for _ in range(3)] == [1, 2, 3]


def test_an_open_call_is_not_answered() -> None:
    sequencer = Sequencer()
    first, second, third = (sequencer.begin() for _ in range(3))
    second.close()
    third.close()
    assert sequencer.answered_through == 0
    assert sequencer.begin().wire().sequence.answered_through == 0
    first.close()
    assert sequencer.answered_through == 3


def test_closing_twice_changes_nothing() -> None:
    sequencer = Sequencer()
    first, second = sequencer.begin(), sequencer.begin()
    first.close()
    first.close()
    assert sequencer.answered_through == 1
    second.close()
    assert sequencer.answered_through == 2


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_answered_through_is_below_every_open_call_and_never_falls(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    sequencer = Sequencer()
    opened: dict[int, RequestTicket] = {}
    issued: list[int] = []
    before = 0
    for _ in range(steps):
        if opened and chance.random() < 0.5:
            opened.pop(chance.choice(sorted(opened))).close()
        else:
            ticket = sequencer.begin()
            opened[number(ticket)] = ticket
            issued.append(number(ticket))
        answered = sequencer.answered_through
        assert answered >= before
        assert answered == (min(opened) - 1 if opened else len(issued))
        before = answered
    assert issued == list(range(1, len(issued) + 1))


def test_one_hanging_call_does_not_fill_the_servers_memory() -> None:
    """Calls that pass it get a UUID once the window is full, and numbers again when it has ended."""
    sequencer = Sequencer(new_uuid=lambda: uuid.UUID(int=5))
    hanging = sequencer.begin()
    for _ in range(WINDOW_MAX - 1):
        ticket = sequencer.begin()
        assert ticket.wire().WhichOneof("id") == "sequence"
        ticket.close()
    passing = sequencer.begin()
    assert passing.wire().uuid == str(uuid.UUID(int=5))
    passing.close()
    hanging.close()
    assert number(sequencer.begin()) == WINDOW_MAX + 1


async def test_calls_beyond_the_limit_are_admitted_in_their_order() -> None:
    sequencer = Sequencer()
    under_way = [await sequencer.admit() for _ in range(OPEN_MAX)]
    assert not sequencer.has_room
    waiting = [asyncio.create_task(sequencer.admit()) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    under_way[0].close()
    under_way[0].close()
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True, False, False], "one place, one call"
    under_way[1].close()
    assert number(await waiting[2]) == OPEN_MAX + 2
    (await waiting[0]).close()
    assert number(await waiting[3]) == OPEN_MAX + 3
    assert not sequencer.has_room
    under_way[2].close()
    assert sequencer.has_room


@pytest.mark.parametrize("turns", range(3))
async def test_a_place_is_not_lost_with_the_caller_it_was_handed_to(turns: int) -> None:
    sequencer = Sequencer()
    under_way = [sequencer.begin() for _ in range(OPEN_MAX)]
    first, second = (asyncio.create_task(sequencer.admit()) for _ in range(2))
    await asyncio.sleep(0)
    under_way[0].close()
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    if not first.cancelled():
        first.result().close()
    assert number(await asyncio.wait_for(second, 60)) <= OPEN_MAX + 2


async def test_many_calls_at_once_take_numbers_all_of_them() -> None:
    """UUIDs are few: the server remembers 10,000 in two minutes, for all clients of a namespace."""
    sequencer = Sequencer(new_uuid=lambda: pytest.fail("a call got a UUID"))
    chance = random.Random(5)
    begun: list[int] = []

    async def call() -> None:
        ticket = await sequencer.admit()
        begun.append(number(ticket))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        ticket.close()

    await asyncio.gather(*(call() for _ in range(10 * WINDOW_MAX)))
    assert sorted(begun) == list(range(1, 10 * WINDOW_MAX + 1))


def test_a_call_apart_holds_up_no_number() -> None:
    sequencer = Sequencer()
    waiting = sequencer.apart()
    for _ in range(2 * WINDOW_MAX):
        ticket = sequencer.begin()
        assert ticket.wire().WhichOneof("id") == "sequence"
        ticket.close()
    assert waiting.wire().WhichOneof("id") == "uuid"
    waiting.close()
    assert sequencer.has_room


def test_the_window_fits_into_what_the_server_remembers() -> None:
    assert WINDOW_MAX < REQUESTS_PER_CLIENT_MAX


def test_a_callers_own_id_is_sent_in_its_canonical_form() -> None:
    ticket = explicit("{A987FBC9-4BED-3078-CF07-9141BA07C9F3}")
    assert ticket.wire().uuid == "a987fbc9-4bed-3078-cf07-9141ba07c9f3"
    assert ticket.describe("a#1") == "a987fbc9-4bed-3078-cf07-9141ba07c9f3"


@pytest.mark.parametrize("text", ["", "17", "not-a-uuid", None, 7])
def test_other_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="request_id"):
        explicit(text)
