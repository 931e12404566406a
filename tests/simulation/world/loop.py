"""A seeded event loop whose time is a number: it jumps to whatever comes next.

Nothing here waits for the machine. Whatever the program sets a timer for happens at that very moment of the virtual
clock; whoever is ready at the same moment runs in an order that the seed decides; what would have run on a thread
runs in between, at moments that the seed decides. So a run is a function of its seed, and hours take seconds.

What asyncio promises is kept: callbacks run in the order in which they were registered, and a task that yields once
lets everybody run who is ready. Only the order of tasks within such a turn is anybody's guess, and so the seed's.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import types
from asyncio import base_events, events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .trace import Trace

if TYPE_CHECKING:
    from .network import Network

T = TypeVar("T")

TURNS_MAX = 2_000_000
"""More turns than any run takes that gets anywhere."""

TURN_SECONDS = 1e-6
"""What a turn takes: who sleeps for less than a clock can tell would sleep at one moment for ever."""

BLOCKING_SECONDS_MAX = 0.004
"""How long what runs off the loop may take at most, unless whoever simulates it says so."""


class Stuck(Exception):
    """Nothing will ever happen again, or there is no end to what happens."""


class Family:
    """The tasks of one simulated process.

    Attributes:
        dead: whether it was killed: from then on nothing that it does has any effect outside.
    """

    def __init__(self) -> None:
        self.dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Takes note that a task has ended."""
        self.tasks.pop(task, None)


family: ContextVar[Family | None] = ContextVar("family", default=None)
"""The process that the present code runs in."""


class Escaped(Exception):
    """Something was reached that a seed does not decide."""


class _SimFuture(asyncio.Future[Any]):
    """A future whose place in a set is not its address's."""

    def __init__(self, *, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self.serial = next(loop.serials)

    def __hash__(self) -> int:
        return self.serial


class _SimTask(asyncio.Task[Any]):
    """A task whose place in a set is not its address's."""

    def __init__(self, coro: Any, *, loop: SimLoop, name: str | None, context: Context | None) -> None:
        # Before the task is registered in a set.
        self.serial = next(loop.serials)
        super().__init__(coro, loop=loop, name=name or f"sim-{self.serial}", context=context)

    def __hash__(self) -> int:
        return self.serial


class SimLoop(base_events.BaseEventLoop):
    """See the module.

    Args:
        seed: decides everything.
        trace: takes note of what happens.

    Attributes:
        rng: the source of every decision of the loop; others take their own by :meth:`chance`.
        network: what connections go through; None: there is no network.
        serials: numbers for futures and tasks.
        failures: what has gone wrong without anybody having been told.
        blocking: whether something runs that would be on another thread.
    """

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.trace = trace or Trace()
        self.rng = self.chance("loop")
        self.network: Network | None = None
        self.serials = itertools.count(1)
        self.blocking = False
        self.failures: list[BaseException | str] = []
        self._now = 1_000.0
        self._turns = 0
        self._ends = math.inf
        self._clock_resolution = 1e-9
        self.set_exception_handler(_note_failure)

    def chance(self, what: str) -> random.Random:
        """Returns a generator of its own for one part of the world: it draws what it draws, whatever others do."""
        return random.Random(f"{self.seed}/{what}")

    def time(self) -> float:
        """Returns virtual monotonic seconds."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future."""
        return _SimFuture(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None, context: Any = None
    ) -> asyncio.Task[T]:
        """Returns a task."""
        cast("Any", self)._check_closed()
        task = _SimTask(coro, loop=self, name=None if name is None else str(name), context=context)
        own = family.get() if context is None else context.get(family)
        if own is not None:
            own.tasks[task] = None
            task.add_done_callback(own.leave)
        return task

    def run_in_executor(  # type: ignore[override] # the executor does not matter
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Calls a function at a moment of the seed's choosing, on this very thread."""
        outcome = self.create_future()

        def call() -> None:
            result, error = None, None
            self.blocking = True
            try:
                result = func(*args)
            except BaseException as raised:
                error = raised
            finally:
                self.blocking = False
            self.call_later(self.rng.uniform(0, BLOCKING_SECONDS_MAX), tell, result, error)

        def tell(result: T | None, error: BaseException | None) -> None:
            if outcome.cancelled():
                return
            if error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(error)

        self.call_later(self.rng.uniform(0, BLOCKING_SECONDS_MAX), call)
        return outcome

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> events.Handle:  # type: ignore[override] # typeshed's variadics
        """Registers a callback of what runs off the loop, see :attr:`blocking`; there are no other threads."""
        if not self.blocking:
            raise self.escaped(f"{callback!r} comes from another thread")
        return self.call_soon(callback, *args, context=context)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Ends a generator that nobody reads on, as asyncio does; it is dropped here, not by a collector's thread."""
        cast("Any", self)._asyncgens.discard(agen)
        if not self.is_closed():
            self.call_soon(self.create_task, agen.aclose())

    def escaped(self, how: str) -> Escaped:
        """Returns the error of a program that has got out of the simulation; the run has failed, whoever catches it."""
        error = Escaped(how)
        self.failures.append(error)
        return error

    def end_after(self, seconds: float) -> None:
        """Has the run fail if it lasts longer than so many virtual seconds from now."""
        self._ends = self._now + seconds

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Connects to a simulated listener; see ``streams``."""
        assert self.network is not None, "this world has no network"
        if options.get("ssl") is not None:
            raise NotImplementedError("a simulated connection is not encrypted")
        return await self.network.connect_stream(protocol_factory, str(host), int(port))

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        """Listens on a simulated address; see ``streams``."""
        assert self.network is not None, "this world has no network"
        return self.network.listen_stream(protocol_factory, str(host), int(port))

    async def shutdown_default_executor(self) -> None:
        """Does nothing: there is none."""

    def _write_to_self(self) -> None:
        """Does nothing: nobody sleeps."""

    def _process_events(self, event_list: object) -> None:
        """Does nothing: there are no file descriptors."""

    def _run_once(self) -> None:
        """Runs everybody who is ready; if nobody is, moves time to the next timer first."""
        ready, scheduled = cast("Any", self)._ready, cast("Any", self)._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not cast("Any", self)._stopping:
            if not scheduled:
                raise Stuck("everybody waits, and nothing will ever happen")
            self._now = max(self._now, scheduled[0]._when)
            if self._now > self._ends:
                raise Stuck(f"no end until {self._ends:g} s of virtual time")
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        self._turns += 1
        self._now += TURN_SECONDS
        if self._turns > TURNS_MAX:
            raise Stuck(f"no end after {TURNS_MAX} turns of the event loop")
        batch = [handle for handle in ready if not handle._cancelled]
        ready.clear()
        if len(batch) > 1:
            self._shuffle(batch)
        for handle in batch:
            if not handle._cancelled:
                handle._run()

    def _shuffle(self, batch: list[Any]) -> None:
        """Has those tasks that are ready together run in any order; everything else keeps its place."""
        places = [place for place, handle in enumerate(batch) if _is_step(handle._callback)]
        if len(places) > 1:
            steps = [batch[place] for place in places]
            self.rng.shuffle(steps)
            for place, step in zip(places, steps, strict=True):
                batch[place] = step


def _is_step(callback: Any) -> bool:
    """Tells whether a callback begins or resumes a task, which is of a type of C's own."""
    kind = type(callback)
    if kind is types.BuiltinMethodType:
        return isinstance(callback.__self__, asyncio.Task)
    return kind.__name__ == "TaskStepMethWrapper"


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Takes note of what asyncio would only have logged."""
    assert isinstance(loop, SimLoop)
    loop.failures.append(context.get("exception") or str(context.get("message")))


def run(loop: SimLoop, main: Coroutine[Any, Any, T], seconds_max: float) -> T:
    """Runs a coroutine to its end, and what it has left behind, then closes the loop.

    Args:
        loop: where.
        main: what.
        seconds_max: virtual seconds after which it is stuck.

    Raises:
        Stuck: it does not end.
    """
    loop.end_after(seconds_max)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end_after(seconds_max)
        left = sorted((task for task in asyncio.all_tasks(loop) if not task.done()), key=hash)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
