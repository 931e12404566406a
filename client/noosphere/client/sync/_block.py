"""Asynchronous context managers as ``with`` blocks: entered, held and left by one task on the loop.

One task, because a manager may count on that: a claim cancels the task that entered its block, a timeout
or a task group belongs to it. While the caller's block runs, the task waits; if it is cancelled meanwhile
it leaves the manager at once, and the caller learns of it when its block ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from noosphere.client import Client

from ._portal import Call, Portal
from ._process import borrow, give_back, track
from ._twin import Twin

V = TypeVar("V")
Inner = TypeVar("Inner")


class Block(Generic[V]):
    """One use of an asynchronous context manager by a thread."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[V, bool | None]) -> None:
        self._portal = portal
        self._manager = manager
        self._entered: asyncio.Future[V] = portal.loop.create_future()
        self._leaving: asyncio.Future[BaseException | None] = portal.loop.create_future()
        self._holder: asyncio.Task[bool] | None = None

    def enter(self) -> V:
        """Enters the manager; an interruption leaves it again."""
        try:
            return self._portal.run(self._enter)
        except BaseException:
            self.abandon()
            raise

    def leave(self, error: BaseException | None) -> bool:
        """Leaves the manager with what the block raised; returns whether that is to be suppressed.

        Raises:
            BaseException: what leaving raised.
        """
        if self._portal.forked:
            # A child that unwinds the stack it was forked with: the connection is not its to close.
            return False
        return self._portal.run(self._leave, error)

    def abandon(self) -> None:
        """Leaves the manager without waiting for it, if it was entered."""
        self._portal.post(self._cancel)

    async def _enter(self) -> V:
        self._holder = holder = asyncio.create_task(self._hold(), name="hold a block")
        holder.add_done_callback(_retrieve)
        try:
            await asyncio.wait((holder, self._entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            holder.cancel()
            await asyncio.wait([holder])
            raise
        if not self._entered.done():
            await holder
        return self._entered.result()

    async def _hold(self) -> bool:
        self._entered.set_result(await self._manager.__aenter__())
        cancelled: asyncio.CancelledError | None = None
        try:
            error = await self._leaving
        except asyncio.CancelledError as reason:
            told = self._leaving.done() and not self._leaving.cancelled()
            error = self._leaving.result() if told else reason
            cancelled = None if told else reason
        kind = None if error is None else type(error)
        suppress = await self._manager.__aexit__(kind, error, None if error is None else error.__traceback__)
        if cancelled is not None and not suppress:
            raise cancelled
        return bool(suppress)

    async def _leave(self, error: BaseException | None) -> bool:
        holder = self._holder
        assert holder is not None
        if holder.done() and error is not None:
            # It ended before the block did, which has raised what matters.
            return False
        if not self._leaving.done():
            self._leaving.set_result(error)
        try:
            return await holder
        except BaseException as raised:
            if raised is error:
                return False
            raise

    def _cancel(self) -> None:
        if self._holder is not None:
            self._holder.cancel()


def _retrieve(holder: asyncio.Task[bool]) -> None:
    # A block that is never left tells nobody; asyncio would log that.
    if not holder.cancelled():
        holder.exception()


class Scope(Generic[Inner, V]):
    """The ``with`` block of something that is open for as long as the block runs; for one use."""

    def __init__(
        self,
        portal: Portal,
        manager: AbstractAsyncContextManager[Inner, bool | None],
        twin: Callable[[Portal, Inner], V],
    ) -> None:
        self._portal = portal
        self._twin = twin
        self._manager = manager
        self._block: Block[Inner] | None = None

    def __enter__(self) -> V:
        """Opens it."""
        if self._block is not None:
            raise RuntimeError("a block is for one use; make a new one")
        self._block = Block(self._portal, self._manager)
        return self._twin(self._portal, self._block.enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Closes it."""
        assert self._block is not None
        return self._block.leave(error)


class Connection(Generic[V]):
    """The ``with`` block of a client, which has a share in the process's loop; for one use.

    Args:
        manager: opens the asynchronous client.
        twin: makes the client of it.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Client], twin: Callable[[Portal, Client], V]) -> None:
        self._manager = manager
        self._twin = twin
        self._portal: Portal | None = None
        self._block: Block[Client] | None = None

    def __enter__(self) -> V:
        """Connects."""
        if self._portal is not None:
            raise RuntimeError("a connection is for one use; call connect again")
        self._portal = portal = borrow()
        self._block = block = Block(portal, self._manager)
        try:
            inner = block.enter()
            track(inner._transport.channel)
            return self._twin(portal, inner)
        except BaseException:
            block.abandon()
            give_back(portal)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Closes the client, and the loop with the last one."""
        assert self._portal is not None
        assert self._block is not None
        try:
            return self._block.leave(error)
        finally:
            give_back(self._portal)


class BlockTwin(Twin[Inner]):
    """A twin that is used in a ``with`` block, and may be iterated in it; for one use."""

    __slots__ = ("_block", "_next")

    def __init__(self, portal: Portal, inner: Inner) -> None:
        super().__init__(portal, inner)
        self._block: Block[Any] | None = None
        self._next: Call[tuple[bool, Any]] | None = None

    def _begin(self) -> Any:
        """Enters the block."""
        if self._block is not None:
            raise RuntimeError(f"a {type(self).__name__} is for one use; make a new one")
        self._block = Block(self._portal, cast("AbstractAsyncContextManager[Any, bool | None]", self._inner))
        return self._block.enter()

    def _end(self, error: BaseException | None) -> bool:
        """Leaves the block."""
        assert self._block is not None
        if self._next is not None:
            self._next.abort()
            self._next = None
        return self._block.leave(error)

    def _advance(self) -> Any:
        """Returns the next item.

        An interrupted wait leaves the call under way for the next one, so that no item is lost.

        Raises:
            StopIteration: there is none.
        """
        if self._next is None:
            self._next = Call(self._portal)
            self._next.prepare(_advance, cast("AsyncIterator[Any]", self._inner))
        self._next.wait()
        ended, self._next = self._next, None
        more, item = ended.answer()
        if not more:
            raise StopIteration
        return item


async def _advance(source: AsyncIterator[Any]) -> tuple[bool, Any]:
    try:
        return True, await anext(source)
    except StopAsyncIteration:
        return False, None
