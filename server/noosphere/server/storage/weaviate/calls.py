"""Calls of Weaviate: each with a deadline and behind a breaker, none repeated, every failure a refusal in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import grpc
import grpc.aio

from noosphere.consistency import Reason, Refusal

from ...ports.runtime import Clock
from .access import WeaviateAccess
from .breaker import Breaker
from .channel import Answer, Connections, Message

CALLS_MAX = 32
"""Most calls on their way at a time; others wait for room."""

_WORDS_MAX = 300
_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_NOT_LET_IN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_READ_ONLY = ("read-only", "readonly", "read only")
_GONE = ("could not find class", "class not found", "tenant not found", "not found in schema")

T = TypeVar("T")
R = TypeVar("R")


class TooMuch(Exception):
    """An answer or a request that is more than one message can hold."""


class CollectionGone(Refusal):
    """The collection is not there, or not any more: another may be in its place."""


def unavailable(message: str, retry_after_ms: int | None = None) -> Refusal:
    """Returns the refusal of whatever needs Weaviate."""
    return Refusal(Reason.ENGINE_UNAVAILABLE, message, retry_after_ms=retry_after_ms)


class Calls:
    """See the module. Lives on one event loop.

    Args:
        access: how Weaviate is reached.
        clock: the source of time.
    """

    def __init__(self, access: WeaviateAccess, clock: Clock) -> None:
        self._access = access
        self._breaker = Breaker(clock)
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._connections: Connections | None = None
        self._closed = False

    @property
    def failing(self) -> bool:
        """Whether the last calls were not answered."""
        return self._breaker.open

    @property
    def losses(self) -> int:
        """How many calls were not answered so far: after one, somebody else may answer at the same address."""
        return self._breaker.losses

    def check(self) -> None:
        """Checks that this was not closed.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._closed:
            raise unavailable("the fact store is closed")

    async def call(self, method: str, request: Message, decode: Callable[[bytes], R]) -> R:
        """Calls a method of the gRPC interface.

        Raises:
            Refusal: ENGINE_UNAVAILABLE. What the call was to change may have changed.
            TooMuch: the request or its answer is too large.
        """
        return await self._guarded(lambda connections: connections.call(method, request, decode))

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Calls the REST interface; an answer may tell of a failure, too.

        Raises:
            Refusal: ENGINE_UNAVAILABLE: there was no answer, or this server is not let in.
        """
        answer = await self._guarded(lambda connections: connections.ask(method, path, body))
        if answer.status in (401, 403):
            raise self._not_let_in(answer.text)
        return answer

    async def close(self) -> None:
        """Disconnects; later calls are refused."""
        self._closed = True
        await self._disconnect()

    async def _guarded(self, call: Callable[[Connections], Awaitable[T]]) -> T:
        self.check()
        async with self._room:
            self.check()
            if wait_ms := self._breaker.wait_ms():
                raise unavailable(f"{self._where} has failed several times in a row, and is tried again later", wait_ms)
            if self._breaker.began():
                # A connection that was lost is made anew, with the files and addresses of now.
                await self._disconnect()
            try:
                connections = self._connected()
                found = await call(connections)
            except asyncio.CancelledError as error:
                self._breaker.given_up()
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # Nobody cancels the caller: the connection was closed under the call.
                raise unavailable(f"the connection to {self._where} was closed") from error
            except grpc.aio.AioRpcError as error:
                raise self._refusal(error) from error
            except grpc.aio.UsageError as error:
                self._breaker.failed()
                await self._disconnect()
                raise unavailable(f"the connection to {self._where} was closed") from error
            except Exception as error:
                raise self._lost(error) from error
            self._breaker.succeeded()
            return found

    def _connected(self) -> Connections:
        if self._connections is None:
            self._connections = Connections(self._access)
        return self._connections

    async def _disconnect(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def _refusal(self, error: grpc.aio.AioRpcError) -> Exception:
        code, words = error.code(), (error.details() or "")[:_WORDS_MAX]
        if code in _UNANSWERED:
            self._breaker.failed()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return unavailable(f"{self._where} has not answered within {self._access.call_ms_max} ms")
            return unavailable(f"{self._where} cannot be reached: {words}")
        self._breaker.succeeded()
        if code in _NOT_LET_IN:
            return self._not_let_in(words)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in words:
            return TooMuch(words)
        return refused(self._where, words)

    def _lost(self, error: Exception) -> Refusal:
        """Returns the refusal for a REST call that was not answered, or for a file that cannot be used."""
        import httpx

        self._breaker.failed()
        if isinstance(error, httpx.TimeoutException):
            return unavailable(f"{self._where} has not answered within {self._access.call_ms_max} ms")
        if isinstance(error, httpx.HTTPError):
            return unavailable(f"{self._where} cannot be reached: {error}")
        if isinstance(error, OSError | ValueError):
            return unavailable(f"the authorities in {self._access.tls_ca} cannot be used: {error}")
        raise error

    def _not_let_in(self, words: str) -> Refusal:
        key = "does not accept the API key" if self._access.api_key else "asks for an API key"
        return unavailable(f"{self._where} {key} (weaviate_api_key): {words[:_WORDS_MAX].strip()}")

    @property
    def _where(self) -> str:
        return f"Weaviate at {self._access.url}"


def refused(where: str, words: str) -> Refusal:
    """Returns the refusal for something that Weaviate would not do."""
    lower = words.lower()
    if any(phrase in lower for phrase in _READ_ONLY):
        return unavailable(f"{where} is read-only: {words}")
    if any(phrase in lower for phrase in _GONE):
        return CollectionGone(Reason.ENGINE_UNAVAILABLE, f"{where} has lost the collection of facts: {words}")
    return unavailable(f"{where} has refused a call: {words}")


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits calls side by side; the first failure ends the others and is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def both_of(one: Awaitable[T], other: Awaitable[R]) -> tuple[T, R]:
    """Awaits two side by side; the first failure ends the other and is raised."""
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    await together((first, second))
    return first.result(), second.result()
