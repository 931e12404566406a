"""A TCP proxy that does to a connection what networks do, when a test tells it to, and counts what it has done.

It has an event loop and a thread of its own, so that neither a busy test nor a blocked one changes what it does. One
fault is on at a time; :meth:`Proxy.during` fails if none of it happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from enum import StrEnum
from typing import Any, TypeVar

_STEERING_SECONDS_MAX = 30.0
_CHUNK_BYTES = 65_536
_LOOKS_MAX = 60_000

T = TypeVar("T")


class Fault(StrEnum):
    """What can be done to connections."""

    DELAY = "delay"
    """Every piece, either way, is held up for ``seconds``."""
    DROP_REPLIES = "drop replies"
    """A reply (longer than ``longer_than`` bytes) is thrown away and its connection cut: the request has passed."""
    HOLD_REPLIES = "hold replies"
    """What a server says waits; what clients say passes. All of it goes on when the fault ends."""
    HALF_OPEN = "half-open"
    """Connections are accepted, and what comes is thrown away, either way; nobody is told."""
    FREEZE = "freeze"
    """Nothing moves. All of it goes on when the fault ends."""
    DUPLICATE = "duplicate"
    """What a client sends over a connection that begins now is sent a second time, over a connection of its own."""
    CUT = "cut"
    """Connections are broken, and new ones as soon as they are accepted."""


class _Pair:
    """A client's connection and those to the server.

    Attributes:
        writers: all of them.
        second: the one over which everything is sent a second time, if that began with the connection.
        swallowed: whether something was thrown away.
    """

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.writers = [client]
        self.second: asyncio.StreamWriter | None = None
        self.swallowed = False

    def abort(self) -> None:
        """Ends all of it, as a reset."""
        for writer in self.writers:
            end = writer.get_extra_info("socket")
            if end is not None:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """See the module. Made by :func:`proxied`.

    Attributes:
        address: where clients connect, ``host:port``.
        counts: how often each fault has happened: pieces delayed, thrown away, held up or sent twice, connections cut.
    """

    def __init__(self, target: str, listen: str, enter: Callable[[], None]) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        host, _, port = listen.rpartition(":")
        # Made here: connections that it accepts are of this thread's network, those that are opened of the other's.
        self._socket = socket.create_server((host, int(port)))
        self._enter = enter
        host, number = self._socket.getsockname()[:2]
        self.address = f"{host}:{number}"
        self.counts: Counter[Fault] = Counter()
        self._fault: Fault | None = None
        self._begun = Fault.CUT
        self._seconds = 0.0
        self._longer_than = 0
        self._times: int | None = None
        self._before = 0
        self._moving = asyncio.Event()
        self._answering = asyncio.Event()
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def begin(self, fault: Fault, *, seconds: float = 0.1, longer_than: int = 64, times: int | None = None) -> None:
        """Begins a fault, in place of the one that is on. Returns when it is on.

        Args:
            fault: which one.
            seconds: of a delay.
            longer_than: bytes; what a server says in fewer is no reply to a call. Small frames of gRPC (acknowledged
                settings, pings, window updates) have at most 64.
            times: how many replies are dropped before the fault ends by itself; None: until it is ended.
        """
        self._steer(self._begin(fault, seconds, longer_than, times))

    def end(self) -> None:
        """Ends the fault. Connections of which something was swallowed are cut: they cannot be whole again."""
        self._steer(self._end())

    def cut(self) -> None:
        """Breaks every connection once; new ones are served."""
        self._steer(self._cut())

    async def happened(self) -> None:
        """Returns once the fault that was begun last has happened."""
        for _ in range(_LOOKS_MAX):
            if self.counts[self._begun] > self._before:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"the fault does not happen: {self._begun}")

    @contextlib.contextmanager
    def during(self, fault: Fault, **options: Any) -> Iterator[None]:
        """Has a fault on for the length of the block, and fails if it has not happened in it. See :meth:`begin`."""
        self.begin(fault, **options)
        try:
            yield
        finally:
            self.end()
        assert self.counts[fault] > self._before, f"the fault did not happen: {fault}"

    def start(self) -> None:
        """Starts to serve."""
        self._thread.start()
        self._steer(self._open())

    def close(self) -> None:
        """Ends every connection and the thread."""
        try:
            self._steer(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STEERING_SECONDS_MAX)
            self._loop.close()

    def _run(self) -> None:
        self._enter()
        self._loop.run_forever()

    def _steer(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(_STEERING_SECONDS_MAX)

    async def _open(self) -> None:
        self._moving.set()
        self._answering.set()
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._end()
        await self._cut()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        # Transports that were aborted close in the loop's next turns.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _begin(self, fault: Fault, seconds: float, longer_than: int, times: int | None) -> None:
        await self._end()
        self._begun, self._before = fault, self.counts[fault]
        self._fault, self._seconds, self._longer_than, self._times = fault, seconds, longer_than, times
        if fault is Fault.FREEZE:
            self._moving.clear()
        elif fault is Fault.HOLD_REPLIES:
            self._answering.clear()
        elif fault is Fault.CUT:
            await self._cut()

    async def _end(self) -> None:
        self._fault = None
        self._moving.set()
        self._answering.set()
        for pair in self._pairs:
            if pair.swallowed:
                pair.abort()

    async def _cut(self) -> None:
        for pair in self._pairs:
            self.counts[Fault.CUT] += 1
            pair.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            await self._end_to_end(reader, writer, pair)
        except asyncio.CancelledError:
            # By `close` only; asyncio would report a connection that was not served to its end.
            pass
        finally:
            self._pairs.discard(pair)
            for end in pair.writers:
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
            self._serving.discard(task)

    async def _end_to_end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        try:
            await self._connect(reader, writer, pair)
        except* (ConnectionError, EOFError, OSError):
            pass

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        if self._fault is Fault.CUT:
            self.counts[Fault.CUT] += 1
            raise ConnectionResetError
        await self._held_up()
        if self._fault is Fault.HALF_OPEN:
            await self._swallow(reader, pair)
        doubled = self._fault is Fault.DUPLICATE
        replies, upstream = await asyncio.open_connection(*self._target)
        pair.writers.append(upstream)
        async with asyncio.TaskGroup() as group:
            if doubled:
                ignored, pair.second = await asyncio.open_connection(*self._target)
                pair.writers.append(pair.second)
                group.create_task(_ignore(ignored))
            group.create_task(self._pass(reader, upstream, pair))
            group.create_task(self._pass_replies(replies, writer, pair))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._held_up()
            if self._fault is Fault.HALF_OPEN:
                self._lost(pair)
                continue
            writer.write(data)
            await writer.drain()
            if pair.second is not None:
                await self._pass_again(data, pair)
        raise EOFError

    async def _pass_again(self, data: bytes, pair: _Pair) -> None:
        assert pair.second is not None
        if self._fault is not Fault.DUPLICATE:
            # It misses something from here on.
            pair.second.transport.abort()
            pair.second = None
            return
        with contextlib.suppress(ConnectionError):
            pair.second.write(data)
            await pair.second.drain()
            self.counts[Fault.DUPLICATE] += 1

    async def _pass_replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._held_up()
            if self._fault is Fault.HOLD_REPLIES:
                self.counts[Fault.HOLD_REPLIES] += 1
                await self._answering.wait()
            if self._fault is Fault.HALF_OPEN:
                self._lost(pair)
                continue
            if self._fault is Fault.DROP_REPLIES and len(data) > self._longer_than:
                self.counts[Fault.DROP_REPLIES] += 1
                if self._times is not None:
                    self._times -= 1
                    if not self._times:
                        self._fault = None
                pair.abort()
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _held_up(self) -> None:
        """Waits as long as the fault wants."""
        if self._fault is Fault.DELAY:
            self.counts[Fault.DELAY] += 1
            await asyncio.sleep(self._seconds)
        elif self._fault is Fault.FREEZE:
            self.counts[Fault.FREEZE] += 1
            await self._moving.wait()

    async def _swallow(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        """Takes what a client says to nobody."""
        self._lost(pair)
        while await reader.read(_CHUNK_BYTES):
            self._lost(pair)
        raise EOFError

    def _lost(self, pair: _Pair) -> None:
        pair.swallowed = True
        self.counts[Fault.HALF_OPEN] += 1


async def _ignore(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(_CHUNK_BYTES):
            pass


@contextlib.contextmanager
def proxied(target: str, listen: str = "127.0.0.1:0", enter: Callable[[], None] = lambda: None) -> Iterator[Proxy]:
    """Runs a proxy in front of a server for the length of the block.

    Args:
        target: the server, ``host:port``.
        listen: where clients will connect; port 0: a free one.
        enter: called in the proxy's thread before it connects to anybody, to move it to another network.
    """
    proxy = Proxy(target, listen, enter)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
