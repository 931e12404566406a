"""The way from any thread to the one event loop on which the calls of every sync client run.

One loop thread per process, not one per client: gRPC's poller wakes every loop that uses it in a process,
so each further loop costs all of them; and the number of threads stays one whatever is opened. Nothing
that a caller hands in runs on it except the encoding of values, so no client can hold up another. The
thread starts with the first client and ends with the last.

A thread has at most one call under way, because it waits for it: what is queued here is bounded by the
number of callers. Callers that wait at once are taken over by the loop in one step, so that the client
can send their calls together.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, cast

from noosphere.client import ClientClosed

from ._errors import ForkedClient
from ._twin import with_twins

P = ParamSpec("P")
R = TypeVar("R")

LOOK_SECONDS = 1.0
"""How often a waiting thread looks up: a signal that comes just before it falls asleep does not wake it."""
SETTLE_SECONDS = 1.0
"""How long an interrupted caller waits for its cancelled call to end."""
STOP_SECONDS = 5.0
"""How long the loop's last tasks may take to end."""


class Portal:
    """One event loop in a daemon thread. Made by :func:`~noosphere.client.sync._process.borrow`.

    Raises:
        RuntimeError: the system has no thread to give.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: list[Call[Any]] = []
        self._awake = False
        self._stopped = False
        self._ending = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self.loop.set_exception_handler(_report)
        self._thread = threading.Thread(target=self._main, name="noosphere-sync", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._runner.close()
            raise

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that has the loop's thread."""
        return os.getpid() != self._pid

    def call(self) -> Call[Any]:
        """Returns a call that is yet to be made."""
        return Call(self)

    def run(self, method: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs ``method`` on the loop and returns what it returns, or raises what it raises.

        Raises:
            ForkedClient: the loop's thread is in another process.
            ClientClosed: the loop has ended, or ended meanwhile.
            RuntimeError: this is the loop's own thread, which cannot wait for itself.
        """
        call: Call[R] = Call(self)
        return call.run(method, *args, **kwargs)

    def submit(self, call: Call[Any]) -> None:
        """Lets the loop begin a call; raises like :meth:`run`."""
        # Before the lock: whoever held it at the fork does not exist here.
        if self.forked:
            raise ForkedClient()
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("a sync client was called on its own event loop, which cannot wait for itself")
        with self._lock:
            if self._stopped:
                raise ClientClosed("the client is closed")
            call.submitted = True
            self._waiting.append(call)
            if not self._awake:
                self._awake = True
                self.loop.call_soon_threadsafe(self._begin)

    def post(self, step: Callable[..., object], *args: Any) -> bool:
        """Lets the loop run a short step without waiting for it; returns whether there is a loop."""
        if self.forked:
            return False
        with self._lock:
            if not self._stopped:
                self.loop.call_soon_threadsafe(step, *args)
            return not self._stopped

    def stop(self) -> None:
        """Cancels what still runs, ends the loop and waits for its thread."""
        if self.post(self._ending.set):
            self._thread.join(STOP_SECONDS)

    def _begin(self) -> None:
        with self._lock:
            calls, self._waiting = self._waiting, []
            self._awake = False
        for call in calls:
            call.begin()

    def _main(self) -> None:
        left: list[Call[Any]] = []
        try:
            with self._runner as runner:
                try:
                    runner.run(_until(self._ending))
                finally:
                    # From here on nothing new begins; leaving the block cancels what has begun.
                    with self._lock:
                        self._stopped = True
                        left, self._waiting = self._waiting, []
        finally:
            for call in left:
                call.finish(asyncio.CancelledError())


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # gRPC wakes every loop of a process for each event. So beside a loop of the user's own one of the two finds
    # nothing left to read (grpc#25364), and after a loop has ended the next one is handed the last events of its
    # cancelled calls. Both are harmless and would fill logs.
    error = context.get("exception")
    late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    if (late or isinstance(error, BlockingIOError)) and "PollerCompletionQueue" in repr(context.get("handle")):
        return
    loop.default_exception_handler(context)


class Call(Generic[R]):
    """One coroutine on the loop, and the thread that waits for it.

    Attributes:
        submitted: whether the loop knows of it.
    """

    __slots__ = ("_context", "_error", "_finished", "_mail", "_portal", "_result", "_task", "_work", "submitted")

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        # What the waiting thread is to run for the coroutine; None says that it has ended.
        self._mail: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._result: R | None = None
        self._error: BaseException | None = None
        self.submitted = False
        self._finished = False

    def run(self, method: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Makes the call; see :meth:`Portal.run`. An interrupted wait cancels it."""
        self.prepare(method, *args, **kwargs)
        try:
            self.wait()
        except BaseException:
            self.abort()
            raise
        return self.answer()

    def prepare(self, method: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Says what to call."""
        self._work: Callable[[], Coroutine[Any, Any, R]] = functools.partial(method, *args, **kwargs)

    def wait(self) -> None:
        """Waits until the call has ended. An interrupted wait leaves it under way: wait again, or abort."""
        if not self.submitted:
            self._portal.submit(self)
        while not self._finished:
            try:
                job = self._mail.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if job is not None:
                job.run()

    def answer(self) -> R:
        """Returns or raises what the ended call did."""
        error, self._error = self._error, None
        if error is None:
            return cast("R", self._result)
        try:
            if isinstance(error, asyncio.CancelledError):
                raise ClientClosed("the client was closed during the call", outcome="unknown") from error
            raise with_twins(self._portal, error)
        finally:
            # The exception's traceback holds this frame: without a cycle it is freed at once.
            del error

    def abort(self) -> None:
        """Cancels the call and waits a moment for its end."""
        if self.submitted and not self._finished and self._portal.post(self._cancel):
            try:
                while self._mail.get(timeout=SETTLE_SECONDS) is not None:
                    pass
            except queue.Empty:
                pass

    def relay(self, function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Returns a coroutine function that runs ``function`` in the thread that waits for this call.

        The function cannot be interrupted: a deadline that passes meanwhile is noticed when it returns.
        """

        async def relayed(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._finished:
                raise RuntimeError(f"{function!r} was called after the call that it was given to")
            job = _Job(self._portal, functools.partial(function, *args, **kwargs))
            self._mail.put(job)
            return cast("R", await job.done)

        return relayed

    def begin(self) -> None:
        """Starts the coroutine; on the loop."""
        self._task = self._portal.loop.create_task(self._main(), context=self._context)
        # A task that is cancelled before its first step never reaches its own end.
        self._task.add_done_callback(lambda _: self.finish(asyncio.CancelledError()))

    def finish(self, error: BaseException | None) -> None:
        """Wakes the waiting thread, once."""
        if not self._finished:
            self._error = error
            self._finished = True
            self._mail.put(None)

    async def _main(self) -> None:
        try:
            self._result = await self._work()
        except BaseException as error:  # whatever it is, it belongs to the caller
            self.finish(error)
        else:
            self.finish(None)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Job:
    """A function that the waiting thread runs for the coroutine it waits for."""

    __slots__ = ("_function", "_portal", "done")

    def __init__(self, portal: Portal, function: Callable[[], Any]) -> None:
        self._portal = portal
        self._function = function
        self.done: asyncio.Future[Any] = portal.loop.create_future()

    def run(self) -> None:
        """Runs it and hands back what it returned or raised; what is no ``Exception`` is raised here."""
        if self.done.done():
            return
        try:
            found = self._function()
            if inspect.isawaitable(found):
                if inspect.iscoroutine(found):
                    found.close()
                raise TypeError("the function is async; a sync client calls it in the caller's thread")
        except StopIteration as error:
            # As in a coroutine, where it would read as the coroutine's own end.
            refused = RuntimeError("the function raised StopIteration")
            refused.__cause__ = error
            self._portal.post(self._settle, None, refused)
        except Exception as error:
            self._portal.post(self._settle, None, error)
        else:
            self._portal.post(self._settle, found, None)

    def _settle(self, found: Any, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(found)
