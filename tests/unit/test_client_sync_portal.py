"""The loop thread of the sync clients: every caller gets its own answer, and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import random
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from noosphere.client import ClientClosed
from noosphere.client.sync._portal import Portal
from noosphere.client.sync._process import borrow, give_back

THREADS = 32
CALLS = 100
SECONDS_MAX = 60
"""A bound against hanging."""
NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("number")


@pytest.fixture
def portal() -> Iterator[Portal]:
    used = borrow()
    yield used
    give_back(used)


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "noosphere-sync"]


async def echo(value: object) -> object:
    await asyncio.sleep(0)
    return value


def at_once(portal: Portal, calls: Sequence[Callable[[], Coroutine[Any, Any, object]]]) -> list[object]:
    """Makes calls from a thread each, while the loop is held, so that it takes all of them over in one turn."""
    held, release = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        release.wait()

    def call(number: int) -> object:
        NUMBER.set(number)
        return portal.run(calls[number])

    with ThreadPoolExecutor(len(calls) + 1) as pool:
        holding = pool.submit(portal.run, hold)
        try:
            assert held.wait(SECONDS_MAX)
            waiting = [pool.submit(call, number) for number in range(len(calls))]
            end = time.monotonic() + SECONDS_MAX
            while len(portal._waiting) < len(calls) and time.monotonic() < end:
                time.sleep(0.001)
        finally:
            release.set()
        holding.result()
        return [done.result() for done in waiting]


def test_every_caller_gets_its_own_answer(portal: Portal) -> None:
    """Answers come in another order than the calls, and half of them are errors."""

    async def answer(thread: int, number: int) -> tuple[int, int]:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        if number % 2:
            raise LookupError((thread, number))
        return thread, number

    def work(thread: int) -> int:
        for number in range(CALLS):
            if number % 2 == 0:
                assert portal.run(answer, thread, number) == (thread, number)
                continue
            with pytest.raises(LookupError) as caught:
                portal.run(answer, thread, number)
            assert caught.value.args == ((thread, number),)
        return thread

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == list(range(THREADS))


def test_callers_that_wait_at_once_are_begun_in_one_turn_of_the_loop(portal: Portal) -> None:
    """Otherwise the client could not send their calls together."""
    turns: list[str] = []

    async def count() -> None:
        if not turns:
            asyncio.get_running_loop().call_soon(turns.append, "next turn")
        turns.append("call")

    assert at_once(portal, [count] * THREADS) == [None] * THREADS
    portal.run(echo, 1)
    assert turns == ["call"] * THREADS + ["next turn"]


def test_the_thread_lives_as_long_as_somebody_uses_it() -> None:
    assert not loop_threads()
    one, other = borrow(), borrow()
    assert one is other
    assert len(loop_threads()) == 1
    assert loop_threads()[0].daemon
    give_back(one)
    assert other.run(echo, 1) == 1
    give_back(other)
    assert not loop_threads()
    with pytest.raises(ClientClosed):
        other.run(echo, 1)
    again = borrow()
    assert again is not one
    assert again.run(echo, 2) == 2
    give_back(again)


def test_an_exception_is_the_same_object_with_both_sides_in_its_traceback(portal: Portal) -> None:
    failure = ValueError("broken")

    async def fail_on_the_loop() -> None:
        await asyncio.sleep(0)
        raise failure

    for _ in range(2):
        failure.__traceback__ = None
        with pytest.raises(ValueError, match="broken") as caught:
            portal.run(fail_on_the_loop)
        assert caught.value is failure
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[0] == "test_an_exception_is_the_same_object_with_both_sides_in_its_traceback"
        assert names[-1] == "fail_on_the_loop"


def test_an_exception_leaves_no_cycle_behind(portal: Portal) -> None:
    """What an exception's frames refer to is freed with it, not by the garbage collector some time later."""

    class Failure(Exception):
        pass

    async def fail() -> None:
        raise Failure

    gc.disable()
    try:
        with contextlib.suppress(Failure):
            try:
                portal.run(fail)
            except Failure as error:
                alive = weakref.ref(error)
                raise
        assert portal.run(echo, 1) == 1
        assert alive() is None
    finally:
        gc.enable()


def test_system_exit_on_the_loop_reaches_the_caller_and_not_the_loop(portal: Portal) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        portal.run(leave)
    assert portal.run(echo, 1) == 1


def test_context_variables_are_those_of_the_caller(portal: Portal) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def read_and_set() -> str:
        found = variable.get()
        variable.set("of the call")
        return found

    variable.set("of the caller")
    assert portal.run(read_and_set) == "of the caller"
    assert variable.get() == "of the caller"


def test_context_variables_are_each_callers_own(portal: Portal) -> None:
    """Also if the loop takes over several callers in one turn, which was asked for in the first one's context."""

    async def number() -> int:
        return NUMBER.get()

    assert at_once(portal, [number] * THREADS) == list(range(THREADS))


def test_the_loops_own_thread_cannot_wait_for_itself(portal: Portal) -> None:
    async def nested() -> object:
        return portal.run(echo, 1)

    with pytest.raises(RuntimeError, match="cannot wait for itself"):
        portal.run(nested)


async def test_inside_a_running_loop_calls_work_and_hold_it_up(portal: Portal) -> None:
    assert portal.run(echo, 1) == 1


def test_calls_under_way_are_closed_with_the_loop() -> None:
    portal = borrow()
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(portal.run, wait)
        begun.wait()
        give_back(portal)
        with pytest.raises(ClientClosed) as caught:
            waiting.result()
    assert caught.value.outcome == "unknown"


def test_ctrl_c_ends_the_wait_and_cancels_the_call(portal: Portal) -> None:
    cancelled = threading.Event()
    caller = threading.get_ident()

    async def wait() -> None:
        signal.pthread_kill(caller, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.run(wait)
    assert cancelled.is_set()
    assert portal.run(echo, 1) == 1


def test_a_second_ctrl_c_does_not_wait_for_a_call_that_will_not_end(portal: Portal) -> None:
    caller = threading.get_ident()
    release = asyncio.Event()

    async def refuse() -> None:
        signal.pthread_kill(caller, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            signal.pthread_kill(caller, signal.SIGINT)
            await release.wait()

    with pytest.raises(KeyboardInterrupt):
        portal.run(refuse)
    assert portal.post(release.set)


@pytest.mark.parametrize(
    "error",
    [BlockingIOError(11, ""), RuntimeError("Event loop is closed")],
    ids=["nothing left to read", "an event for a loop that has ended"],
)
def test_noise_of_a_loop_beside_this_one_is_left_out_of_the_log(
    portal: Portal, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class PollerCompletionQueue:
        def __repr__(self) -> str:
            return "<Handle PollerCompletionQueue._handle_events(…)>"

    with caplog.at_level(logging.ERROR, "asyncio"):
        noise = {"message": "noise", "exception": error, "handle": PollerCompletionQueue()}
        portal.loop.call_exception_handler(noise)
        assert not caplog.records
        portal.loop.call_exception_handler({"message": "news", "exception": error})
        assert len(caplog.records) == 1
