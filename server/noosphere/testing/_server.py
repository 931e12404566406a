"""A real server inside a test, whose time and misfortunes are the test's to decide."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc

from noosphere.client import Client, RetryPolicy, connect
from noosphere.client._local import Surroundings, surrounding
from noosphere.server.app import Engine

from ._calls import ServerClock
from ._faults import Faults, UnmetFaults
from ._life import Life, life
from ._meter import Meter, MeteredChannel
from ._plan import Plan
from ._rest import Participant, Rest
from ._time import ClientTime

ADVANCE_SECONDS_MAX = 10 * 365 * 24 * 3600.0

# A test's server is back at once, so nobody need be patient with it; deadlines bound this as always.
_RETRY = RetryPolicy(first_delay=0.001, delay_max=0.01, attempts_max=10_000)
_CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    # The shortest that gRPC takes, for clients of a server that was restarted.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
)


class Server:
    """A running server; made by :func:`server`.

    It is the server that ``noosphere serve`` runs, on its embedded drivers and a data folder, behind gRPC on
    a loopback port. Only its clock is another: store time, leases, claims, lives of values and watches'
    bookmarks stand still until :meth:`advance` moves them.

    Attributes:
        faults: what is to go wrong.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rest = Rest()
        self._clock = ServerClock(self._rest.changed)
        self._plan = Plan(self._clock)
        self._life: Life | None = None
        self._stack = AsyncExitStack()
        self._others: dict[str, Client] = {}
        self._expected: set[str] = set()
        self._others_stack = AsyncExitStack()
        self._lives = 0
        self._port = 0
        self._moving = asyncio.Lock()
        self._fatal: list[BaseException] = []
        self.faults = Faults(self._plan, self._fail_over, self._other, self._is_client, self._suspend)

    @property
    def address(self) -> str:
        """Where it listens, as ``host:port``; stays the same over restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def now(self) -> datetime:
        """Store time, in UTC."""
        return datetime.fromtimestamp(self.engine.store.now_ms() / 1000, UTC)

    @property
    def epoch(self) -> int:
        """The store's present epoch."""
        return self.engine.store.epoch

    @property
    def engine(self) -> Engine:
        """The services and the store, for tests that look behind the API; another one after a restart.

        Raises:
            RuntimeError: the server is not running.
        """
        if self._life is None:
            raise RuntimeError("the server is not running")
        return self._life.engine

    def client(
        self, agent: str | None = None, *, takeover: bool = False, timeout: float = 5.0
    ) -> AbstractAsyncContextManager[Client]:
        """Connects as an agent: ``noosphere.client.connect`` with the server's address.

        Args:
            agent: the agent's name; None for a fresh one.
            takeover: end a living incarnation of the agent.
            timeout: the default deadline of each call with all its retries, in seconds.
        """
        return connect(self.address, agent=agent, takeover=takeover, timeout=timeout)

    async def advance(self, seconds: float) -> None:
        """Moves time on, from event to event, and returns once everything that this brings about has happened.

        Values end and tombstones are reaped when they are due, claims and leases lapse unless their holders
        in this process renew them, which they do as in production, and calls that wait (for a task, say)
        give up in time. Idle sessions are closed, and closed ones purged. Clients in other processes hear of time only
        through the server.

        Args:
            seconds: how long, more than 0 and at most ten years.

        Raises:
            ValueError: ``seconds`` is neither.
            TimeoutError: a client never comes to rest.
        """
        if not 0 < seconds <= ADVANCE_SECONDS_MAX:
            raise ValueError(f"seconds: {seconds!r} is not above 0 and at most {ADVANCE_SECONDS_MAX:g}")
        async with self._moving:
            clock = self._clock
            end_ms = clock.monotonic_ms() + max(1, round(seconds * 1000))
            await self._rest.come(clock.calls)
            while (left_ms := end_ms - clock.monotonic_ms()) > 0:
                step_ms = max(1, min(left_ms, await self._until_next_ms()))
                clock.advance(step_ms)
                await self._rest.move(step_ms / 1000)
                await self._rest.come(clock.calls)
                await self._sweep()
            # Also what is due at no moment of its own: logs that have become too old, sessions that are idle.
            await self.engine.memory.upkeep.round()
            await self.engine.sessions.upkeep.round()
            await self._come_to_rest()

    async def settle(self) -> None:
        """Returns once every call of a client in this process is answered, or waits for time to move.

        By then whoever reads a watch has read everything that has happened, and summaries that were due are made.

        Raises:
            TimeoutError: a client never comes to rest.
        """
        await self._come_to_rest()

    async def restart(self) -> None:
        """Stops in good order and starts again on the same folder and port; the epoch stays."""
        async with self._moving:
            await self._end(orderly=True)
            await self._begin(self._data)

    async def _come_to_rest(self) -> None:
        await self._rest.come(self._clock.calls)
        if self._life is not None:
            await self.engine.sessions.summary_worker.idle()
            await self._rest.come(self._clock.calls)

    async def _until_next_ms(self) -> int:
        """Returns how long until the next thing happens that somebody may notice."""
        found: list[float] = [math.ceil(min(self._rest.next_seconds() * 1000, 1e15))]
        if (parked_ms := self._clock.calls.next_ms) is not None:
            found.append(parked_ms - self._clock.monotonic_ms())
        now_ms = self.engine.store.now_ms()
        found += (due_ms - now_ms for _, _, due_ms in await self._dues() if due_ms > now_ms)
        return int(min(found))

    async def _sweep(self) -> None:
        """Ends values and reaps tombstones that are due, and lets everybody react to it."""
        seen: list[tuple[str, int, int]] = []
        while (due := [d for d in await self._dues() if d[2] <= self.engine.store.now_ms()]) and due != seen:
            # A round takes a bounded number of keys from each namespace.
            seen = due
            await self.engine.memory.upkeep.round()
            await self._rest.come(self._clock.calls)

    async def _dues(self) -> list[tuple[str, int, int]]:
        """Returns name, head and the next moment at which something is due of every namespace."""
        found: list[tuple[str, int, int]] = []
        after = ""
        while page := await self.engine.store.namespaces("", after, 256):
            after = page[-1].ref.name
            found += ((s.ref.name, s.head, s.next_due_ms) for s in page if not s.deleted)
        return found

    @property
    def _data(self) -> Path:
        return self._folder / f"life-{self._lives}"

    async def _begin(self, data: Path) -> None:
        workshop = Path(tempfile.mkdtemp(prefix="workshop-", dir=self._folder))
        self._plan.begin_life()
        self._life = await self._stack.enter_async_context(
            life(data, workshop, self._port, self._clock, self._plan, self._rest.streams, self._fatal.append)
        )
        self._port = self._life.port

    async def _end(self, *, orderly: bool) -> None:
        if self._life is None:
            return
        self._plan.end_life()
        await self._life.end(orderly=orderly)
        self._life = None
        await self._stack.aclose()

    async def _fail_over(self, lose: int) -> None:
        async with self._moving:
            ended = self._life
            if ended is None:
                raise RuntimeError("the server is not running")
            ended.journal.check(lose)
            old, epoch = self._data, self.epoch
            await self._end(orderly=False)
            self._lives += 1
            shutil.copytree(old, self._data, ignore=shutil.ignore_patterns("working.sqlite3*", "LOCK"))
            ended.journal.leave_behind(self._data, epoch, lose)
            await self._begin(self._data)

    def _surroundings(self, agent: str) -> Surroundings:
        """Returns what a client in this process lives by; called on the client's event loop.

        Raises:
            ValueError: the agent makes trouble by appointment.
        """
        if agent in self._plan.rivals and agent not in self._expected:
            raise ValueError(f"agent: {agent!r} is to come between the test's clients; be another")
        meter = Meter(self._rest.changed)
        client = Participant(ClientTime(agent, self._rest.changed), meter)
        channel = grpc.aio.insecure_channel(self.address, options=_CHANNEL_OPTIONS)
        self._rest.clients[client] = None
        left = lambda: self._rest.clients.pop(client, None)  # noqa: E731
        metered = MeteredChannel(channel, meter, self._rest.streams, left)
        return Surroundings(metered, client.time.clock, client.time.sleep, _RETRY)

    async def _other(self, agent: str) -> Client:
        """Returns the client of an agent that makes trouble."""
        if agent not in self._others:
            self._expected.add(agent)
            self._others[agent] = await self._others_stack.enter_async_context(self.client(agent))
            # It does nothing by itself: no lease of its own need be renewed while time moves.
            self._suspend(agent, True)
        return self._others[agent]

    def _is_client(self, agent: str) -> bool:
        """Tells whether the test itself is connected as an agent."""
        return agent not in self._expected and any(client.time.agent == agent for client in self._rest.clients)

    def _suspend(self, agent: str, suspended: bool) -> None:
        """Stops the time of an agent's clients, or lets it go on.

        Raises:
            ValueError: there is none to stop: the test would test something else.
        """
        clients = [client for client in self._rest.clients if client.time.agent == agent]
        if suspended and not clients:
            raise ValueError(f"agent: no client of {agent!r} is connected from this process")
        for client in clients:
            if suspended:
                client.time.suspend()
            else:
                client.time.resume()

    def _failures(self) -> list[BaseException]:
        """Returns what has gone wrong without anybody wishing for it."""
        return [*self._fatal, *self._plan.failed]

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        await self._begin(self._data)
        try:
            with surrounding(self.address, self._surroundings):
                try:
                    yield
                finally:
                    await self._plan.give_up()
                    await self._others_stack.aclose()
        finally:
            await self._end(orderly=False)


@asynccontextmanager
async def server(*, allow_unmet_faults: bool = False) -> AsyncIterator[Server]:
    """Runs a server of the test's own for the length of the block; many may run side by side.

    Args:
        allow_unmet_faults: whether faults may be left over that nobody met.

    Raises:
        UnmetFaults: at the end of the block, if a fault that was asked for has never happened.
    """
    with tempfile.TemporaryDirectory(prefix="noosphere-test-") as folder:
        found = Server(Path(folder))
        try:
            async with found._running():
                yield found
        except BaseException as error:
            # What the test has failed of may well be this.
            for failure in found._failures():
                error.add_note(f"the test's server failed: {failure!r}")
            raise
        if failures := found._failures():
            raise BaseExceptionGroup("the test's server failed", failures)
        if found.faults.unmet and not allow_unmet_faults:
            raise UnmetFaults(f"faults that never happened: {'; '.join(found.faults.unmet)}")
