"""Where blocking calls run: the executor seam.

A simulation hands in a worker that runs calls at moments of its own choosing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Done = Callable[[Any, BaseException | None], None]


class Worker(Protocol):
    """Runs calls one after the other, in order, off the event loop."""

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Runs ``call``; ``done(result, error)`` is then called on the event loop."""
        ...

    def stop(self) -> None:
        """Ends the worker after what was submitted."""
        ...


class ThreadWorker:
    """One thread. Hand-over costs one queue operation each way, which matters beside CPU-bound threads."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Runs ``call``; ``done(result, error)`` is then called on the event loop."""
        self._calls.put((call, done))

    def stop(self) -> None:
        """Ends the thread after what was submitted; waits for that."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        take = self._calls.get
        while (task := take()) is not None:
            call, done = task
            result, error = None, None
            try:
                result = call()
            except BaseException as caught:
                error = caught
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                # The loop was closed without closing the store: nobody is left to be told.
                return
            # A finished batch or namespace must not live on until the next call comes.
            del task, call, done, result, error


async def run(worker: Worker, call: Callable[[], T]) -> T:
    """Runs ``call`` on ``worker`` and returns its result; the call is made even if the caller is cancelled."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)

    worker.submit(call, done)
    return await outcome
