"""The async client's face over a sync client, so that the same tests drive both.

Every call is made in a thread of its own, so what a test does concurrently is done by concurrent threads.
Functions that a test hands in may be async as ever: the thread that runs them has the test's loop do it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from tests.support.statuses import refused
from tests.support.transport import CALL_SECONDS_MAX, Response, Stream

import noosphere.client as aio
import noosphere.client.sync as sync
from noosphere.client.sync._twin import Twin

Connect = Callable[..., AbstractAsyncContextManager[aio.Client]]
"""``noosphere.client.connect``, or :func:`connect`."""

THREADS_MAX = 2_048
_END = object()


class Threads:
    """Where the calls of one test are made."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.loop = asyncio.get_running_loop()
        self._pool = pool

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function in a thread; what it returns or raises has the async face."""
        task = functools.partial(function, *map(self.bare, args), **{n: self.bare(v) for n, v in kwargs.items()})
        try:
            return self.dressed(await self.loop.run_in_executor(self._pool, task))
        except aio.NoosphereError as error:
            raise self._with_faces(error) from None

    def dressed(self, value: Any) -> Any:
        """Returns what a test sees of a value: twins have the async face."""
        if isinstance(value, Twin):
            return Face(self, value)
        if isinstance(value, aio.NoosphereError):
            return self._with_faces(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.dressed, value))
        if isinstance(value, tuple):
            return tuple(map(self.dressed, value))
        if inspect.isgenerator(value):
            return map(self.dressed, value)
        return value

    def bare(self, value: Any) -> Any:
        """Returns an argument as the sync client wants it."""
        if isinstance(value, Face):
            return value._twin
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(map(self.bare, value))
        kind = getattr(sync, type(value).__name__, None)
        if kind is not None and type(value).__module__.startswith("noosphere.client._") and kind is not type(value):
            # Plain data of the async client, as Put is.
            return kind(**{name: self.bare(getattr(value, name)) for name in type(value).__dataclass_fields__})
        return self._run_here(value) if inspect.isfunction(value) or inspect.ismethod(value) else value

    def _run_here(self, function: Any) -> Any:
        async def called(args: tuple[Any, ...]) -> Any:
            found = function(*map(self.dressed, args))
            return self.bare(await found if inspect.isawaitable(found) else found)

        return lambda *args: asyncio.run_coroutine_threadsafe(called(args), self.loop).result()

    def _with_faces(self, error: aio.NoosphereError) -> aio.NoosphereError:
        for name, value in vars(error).items():
            setattr(error, name, self.dressed(value))
        return error


class Face:
    """An object of the sync client that looks like the async client's."""

    def __init__(self, threads: Threads, twin: Twin[Any]) -> None:
        self._threads = threads
        self._twin = twin
        self._records: Iterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        original = inspect.getattr_static(type(self._twin._inner), name, None)
        found = getattr(self._twin, name)
        if not inspect.isfunction(original):
            return self._threads.dressed(found)
        if inspect.iscoroutinefunction(original):
            return functools.partial(self._threads.call, found)
        lists = original.__annotations__["return"].startswith("AsyncIterator")
        return functools.partial(self._call, found, lists)

    def _call(self, function: Any, lists: bool, /, *args: Any, **kwargs: Any) -> Any:
        threads = self._threads
        found = function(*map(threads.bare, args), **{name: threads.bare(value) for name, value in kwargs.items()})
        return self._iterate(found) if lists else threads.dressed(found)

    async def _iterate(self, items: Iterator[Any]) -> AsyncIterator[Any]:
        while (item := await self._threads.call(next, items, _END)) is not _END:
            yield item

    async def __aenter__(self) -> Any:
        return await self._threads.call(cast("Any", self._twin).__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        found: bool | None = await self._threads.call(cast("Any", self._twin).__exit__, kind, error, trace)
        return found

    def __aiter__(self) -> Face:
        return self

    async def __anext__(self) -> Any:
        if (item := await self._threads.call(next, self._twin, _END)) is _END:
            raise StopAsyncIteration
        return item

    def __bool__(self) -> bool:
        return bool(self._twin)

    def __len__(self) -> int:
        return len(cast("Any", self._twin))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Face) and self._twin == other._twin

    def __hash__(self) -> int:
        return hash(self._twin)

    def __repr__(self) -> str:
        return repr(self._twin)


class SyncTransport:
    """Raw calls through ``Client.call`` of a sync client, and raw streams on its loop."""

    def __init__(self, client: sync.Client, pool: ThreadPoolExecutor) -> None:
        self._client = client
        self._pool = pool

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call."""
        send = self._client.channel.unary_unary(
            f"/{service}/{method}", request_serializer=_to_bytes, response_deserializer=kind.FromString
        )

        async def attempt(request: Any, *, timeout: float | None = None) -> Response:
            try:
                return await send(request, timeout=CALL_SECONDS_MAX)
            except grpc.aio.AioRpcError as error:
                # Nothing of what the client would make of it: tests of the API see the status itself.
                raise refused(error.code(), error.details(), error.trailing_metadata()) from None

        call = functools.partial(self._client.call, attempt, request)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        return _SyncStream(self._client, self._pool, f"/{service}/{method}", request, kind)

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream."""
        send = self._client.channel.stream_unary(
            f"/{service}/{method}", request_serializer=_to_bytes, response_deserializer=kind.FromString
        )

        async def attempt() -> Response:
            try:
                return await send(iter(requests), timeout=CALL_SECONDS_MAX)
            except grpc.aio.AioRpcError as error:
                raise refused(error.code(), error.details(), error.trailing_metadata()) from None

        run = functools.partial(self._client._portal.run, attempt)
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)


class _SyncStream(Stream[Response]):
    def __init__(
        self, client: sync.Client, pool: ThreadPoolExecutor, path: str, request: Message, kind: type[Response]
    ) -> None:
        self._portal = client._portal
        self._pool = pool
        send = client.channel.unary_stream(path, request_serializer=_to_bytes, response_deserializer=kind.FromString)

        async def begin() -> Any:
            return send(request)

        self._call = self._portal.run(begin)

    def __aiter__(self) -> AsyncIterator[Response]:
        return self

    async def __anext__(self) -> Response:
        async def read() -> Any:
            try:
                return await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise refused(error.code(), error.details(), error.trailing_metadata()) from None

        found = await asyncio.get_running_loop().run_in_executor(self._pool, self._portal.run, read)
        if found is grpc.aio.EOF:
            raise StopAsyncIteration
        return cast("Response", found)

    async def aclose(self) -> None:
        """Cancels the stream."""
        self._portal.post(self._call.cancel)


def _to_bytes(message: Message) -> bytes:
    return message.SerializeToString()


@asynccontextmanager
async def sync_transport(address: str) -> AsyncIterator[SyncTransport]:
    """Connects a sync client for raw calls."""
    with ThreadPoolExecutor(THREADS_MAX) as pool, sync.connect(address) as client:
        yield SyncTransport(client, pool)


@asynccontextmanager
async def connect(*args: Any, **kwargs: Any) -> AsyncIterator[aio.Client]:
    """Connects a sync client; the arguments are those of ``noosphere.client.connect``."""
    with ThreadPoolExecutor(THREADS_MAX) as pool:
        threads = Threads(pool)
        block = sync.connect(*args, **kwargs)
        client = await threads.call(block.__enter__)
        try:
            yield cast("aio.Client", client)
        finally:
            await threads.call(block.__exit__, None, None, None)
