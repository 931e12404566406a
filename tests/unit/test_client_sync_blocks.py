"""Asynchronous context managers as ``with`` blocks of a thread."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import TracebackType

import pytest

from noosphere.client import ClientClosed
from noosphere.client.sync._block import BlockTwin, Scope
from noosphere.client.sync._portal import Portal
from noosphere.client.sync._process import borrow, give_back


@pytest.fixture
def portal() -> Iterator[Portal]:
    used = borrow()
    yield used
    give_back(used)


def keep(portal: Portal, value: str) -> str:
    return value


class Manager:
    """Records what happens to it."""

    def __init__(self, *, suppress: bool = False) -> None:
        self.suppress = suppress
        self.tasks: list[asyncio.Task[object] | None] = []
        self.error: BaseException | None = None
        self.left = threading.Event()

    async def __aenter__(self) -> str:
        self.tasks.append(asyncio.current_task())
        return "inside"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.tasks.append(asyncio.current_task())
        self.error = error
        self.left.set()
        return self.suppress


def test_one_task_enters_and_leaves(portal: Portal) -> None:
    """A claim cancels the task that entered it; timeouts and task groups belong to theirs."""
    manager = Manager()
    with Scope(portal, manager, keep) as value:
        assert value == "inside"
        assert not manager.left.is_set()
    assert manager.tasks[0] is manager.tasks[1]
    assert manager.error is None


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_what_the_block_raises_is_told_and_raised(portal: Portal, kind: type[BaseException]) -> None:
    manager, failure = Manager(), kind("mine")
    with pytest.raises(kind) as caught, Scope(portal, manager, keep):
        raise failure
    assert caught.value is failure
    assert manager.error is failure
    # Whatever it was, the loop has survived it.
    with Scope(portal, Manager(), keep):
        pass


def test_a_manager_may_suppress_it(portal: Portal) -> None:
    with Scope(portal, Manager(suppress=True), keep):
        raise ValueError


def test_a_manager_may_raise_another(portal: Portal) -> None:
    @asynccontextmanager
    async def manager() -> AsyncIterator[str]:
        try:
            yield "inside"
        except ValueError as error:
            raise LookupError("another") from error

    failure = ValueError("mine")
    with pytest.raises(LookupError, match="another") as caught, Scope(portal, manager(), keep):
        raise failure
    assert caught.value.__cause__ is failure


def test_a_failure_to_enter_is_raised_and_nothing_is_left(portal: Portal) -> None:
    class Closed(Manager):
        async def __aenter__(self) -> str:
            raise ConnectionError("closed")

    manager = Closed()
    with pytest.raises(ConnectionError, match="closed"), Scope(portal, manager, keep):
        pass
    assert not manager.left.is_set()


@pytest.mark.parametrize("body_fails", [False, True])
def test_one_that_gives_up_meanwhile_is_heard_of_at_the_end(portal: Portal, body_fails: bool) -> None:
    """As a claim does when its lease is in doubt: it cancels the task that holds its block."""

    class Doubtful(Manager):
        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool:
            await super().__aexit__(kind, error, trace)
            assert isinstance(error, asyncio.CancelledError)
            raise ConnectionError("lost") from error

        def give_up(self) -> None:
            assert self.tasks[0] is not None
            self.tasks[0].cancel()

    def block() -> None:
        with Scope(portal, manager, keep):
            assert portal.post(manager.give_up)
            # It is left while the block still runs, which nothing interrupts.
            manager.left.wait()
            if body_fails:
                raise ValueError("of the block")

    manager = Doubtful()
    with pytest.raises(ValueError if body_fails else ConnectionError):
        block()


def test_ctrl_c_while_entering_leaves_nothing_entered(portal: Portal) -> None:
    caller = threading.get_ident()
    closed = threading.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.Event().wait()
            yield "never"
        finally:
            closed.set()

    with pytest.raises(KeyboardInterrupt), Scope(portal, slow(), keep):
        pass
    assert closed.is_set()


def test_ctrl_c_just_after_entering_leaves_it_again(portal: Portal) -> None:
    """The interrupt finds the call ended and its answer not yet taken: nobody would ever leave the block."""
    caller = threading.get_ident()

    class Quick(Manager):
        async def __aenter__(self) -> str:
            # The caller is woken once this task has come back; the signal is there before.
            signal.pthread_kill(caller, signal.SIGINT)
            return await super().__aenter__()

    manager = Quick()
    with pytest.raises(KeyboardInterrupt), Scope(portal, manager, keep):
        pass
    assert manager.left.wait(60)


def test_ctrl_c_while_leaving_cuts_it_short(portal: Portal) -> None:
    caller = threading.get_ident()
    cut = threading.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        yield "inside"
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.set()
            raise

    with pytest.raises(KeyboardInterrupt), Scope(portal, slow(), keep):
        pass
    assert cut.is_set()


class Numbers(Manager):
    """Counts; the caller is interrupted as soon as the first number is there."""

    def __init__(self, caller: int) -> None:
        super().__init__()
        self._caller = caller
        self._next = 0

    def __aiter__(self) -> Numbers:
        return self

    async def __anext__(self) -> int:
        self._next += 1
        if self._next == 1:
            signal.pthread_kill(self._caller, signal.SIGINT)
        if self._next >= 4:
            raise StopAsyncIteration
        return self._next


class Counted(BlockTwin[Numbers]):
    """As the generator writes it."""

    def __enter__(self) -> Counted:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        found: int = self._advance()
        return found


def test_ctrl_c_loses_no_item_that_was_on_its_way(portal: Portal) -> None:
    """The interrupt finds the item taken from its source and not yet handed out."""
    with Counted(portal, Numbers(threading.get_ident())) as numbers:
        with pytest.raises(KeyboardInterrupt):
            next(numbers)
        assert list(numbers) == [1, 2, 3]
        assert list(numbers) == []


def test_a_block_is_for_one_use(portal: Portal) -> None:
    scope = Scope(portal, Manager(), keep)
    with scope:
        pass
    with pytest.raises(RuntimeError, match="one use"), scope:
        pass


def test_blocks_are_left_when_the_loop_ends_under_them() -> None:
    portal, manager = borrow(), Manager()
    scope = Scope(portal, manager, keep)
    scope.__enter__()
    give_back(portal)
    assert isinstance(manager.error, asyncio.CancelledError)
    with pytest.raises(ClientClosed):
        scope.__exit__(None, None, None)
