"""Functions that a sync client is to call: they run in the caller's thread, whatever they do there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from noosphere.client.sync._portal import Portal
from noosphere.client.sync._process import borrow, give_back


@pytest.fixture
def portal() -> Iterator[Portal]:
    used = borrow()
    yield used
    give_back(used)


async def call_twice(function: Callable[[int], Awaitable[int]]) -> int:
    return await function(1) + await function(2)


def test_they_run_in_the_callers_thread_and_may_call_the_client(portal: Portal) -> None:
    threads: list[int] = []

    async def on_the_loop(value: int) -> int:
        assert threading.get_ident() != threads[0]
        return value

    def function(value: int) -> int:
        threads.append(threading.get_ident())
        return portal.run(on_the_loop, 10 * value)

    call = portal.call()
    assert call.run(call_twice, call.relay(function)) == 30
    assert threads == [threading.get_ident()] * 2


def test_concurrent_ones_are_run_one_after_the_other(portal: Portal) -> None:
    order: list[int] = []

    async def both(function: Callable[[int], Awaitable[int]]) -> list[int]:
        return await asyncio.gather(*(function(n) for n in range(10)))

    def function(value: int) -> int:
        order.append(value)
        return value

    call = portal.call()
    assert call.run(both, call.relay(function)) == order == list(range(10))


def test_their_exceptions_pass_through_the_coroutine(portal: Portal) -> None:
    failure = ValueError("mine")
    seen = []

    async def watch(function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except ValueError as error:
            seen.append(error)
            raise

    def function() -> None:
        raise failure

    call = portal.call()
    with pytest.raises(ValueError, match="mine") as caught:
        call.run(watch, call.relay(function))
    assert seen == [failure]
    assert caught.value is failure


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_program_cancels_the_coroutine(portal: Portal, kind: type[BaseException]) -> None:
    cancelled = threading.Event()

    async def watch(function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def function() -> None:
        raise kind

    call = portal.call()
    with pytest.raises(kind):
        call.run(watch, call.relay(function))
    assert cancelled.is_set()


def test_stop_iteration_does_not_end_the_coroutine_in_silence(portal: Portal) -> None:
    def function(value: int) -> int:
        return next(iter(()))

    call = portal.call()
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        call.run(call_twice, call.relay(function))
    assert isinstance(caught.value.__cause__, StopIteration)


def test_an_async_one_is_refused(portal: Portal) -> None:
    async def function(value: int) -> int:
        return value

    call = portal.call()
    with pytest.raises(TypeError, match="async"):
        call.run(call_twice, call.relay(function))


def test_a_deadline_that_passes_meanwhile_is_noticed_afterwards(portal: Portal) -> None:
    expired = threading.Event()
    done = []

    async def limited(function: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(0):
                await function()
        finally:
            expired.set()

    def function() -> None:
        expired.wait()
        done.append(True)

    call = portal.call()
    with pytest.raises(TimeoutError):
        call.run(limited, call.relay(function))
    assert len(done) <= 1


def test_one_that_is_kept_beyond_its_call_says_so(portal: Portal) -> None:
    kept: list[Callable[[], Awaitable[None]]] = []

    async def keep(function: Callable[[], Awaitable[None]]) -> None:
        kept.append(function)

    async def use() -> None:
        await kept[0]()

    call = portal.call()
    call.run(keep, call.relay(lambda: None))
    with pytest.raises(RuntimeError, match="after the call"):
        portal.run(use)
