"""The way of one session's calls: its id and namespace, the services' stubs, and the client's transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from noosphere.v1.context_service_pb2_grpc import ContextServiceStub
from noosphere.v1.session_service_pb2_grpc import SessionServiceStub

from ._arguments import checked_text
from ._space import Space
from ._transport import Method, Transport

if TYPE_CHECKING:
    # Exist for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.context_service_pb2_grpc import ContextServiceAsyncStub
    from noosphere.v1.session_service_pb2_grpc import SessionServiceAsyncStub

Reply = TypeVar("Reply")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Services:
    """The services of sessions and contexts as one client calls them.

    Attributes:
        transport: the client's way to the server.
        sessions: the stub of SessionService.
        contexts: the stub of ContextService.
    """

    transport: Transport
    sessions: SessionServiceAsyncStub
    contexts: ContextServiceAsyncStub

    @classmethod
    def on(cls, transport: Transport) -> Services:
        """Returns the services on a client's channel."""
        channel = transport.channel
        return cls(transport, SessionServiceStub(channel), ContextServiceStub(channel))


@dataclass(frozen=True, slots=True)
class Link:
    """The calls of one session.

    Attributes:
        services: the services.
        id: the session's id.
    """

    services: Services
    id: str

    @property
    def transport(self) -> Transport:
        """The client's way to the server."""
        return self.services.transport

    @property
    def sessions(self) -> SessionServiceAsyncStub:
        """The stub of SessionService."""
        return self.services.sessions

    @property
    def namespace(self) -> str:
        """The name of the session's namespace."""
        return namespace_of(self.id)

    @property
    def space(self) -> Space:
        """The session's namespace.

        Raises:
            InvalidArgument: the id is none.
        """
        return Space(self.transport, self.namespace)

    async def read(self, method: Method[Reply], request: Any, timeout: float | None) -> Reply:
        """Sends a call that changes nothing; ``request`` has a field ``call``."""
        return await self.transport.read(method, request, timeout=timeout, namespace=self.namespace)

    async def write(
        self,
        method: Method[Reply],
        request: Any,
        request_id: str | None,
        timeout: float | None,
        *,
        opened: Callable[[Any], str] | None = None,
    ) -> tuple[Reply, str]:
        """Sends a mutating call; returns the reply, and the request id for messages.

        Args:
            method: the stub's method.
            request: its request, with a field ``call``.
            request_id: the caller's own UUID, or None for the next number.
            timeout: the deadline with all retries, in seconds.
            opened: tells from a reply which namespace its ``head`` is of, where that is not this session's.
        """
        return await self.transport.write(
            method, request, request_id=request_id, timeout=timeout, namespace=self.namespace, opened=opened
        )

    async def pages(
        self,
        method: Method[Reply],
        request: Any,
        entries: Callable[[Reply], Iterable[Any]],
        to: Callable[[Any], Item],
        timeout: float | None,
    ) -> AsyncIterator[Item]:
        """Yields what a list holds, page by page.

        Args:
            method: the stub's method.
            request: the request of the first page.
            entries: where a reply has its entries.
            to: makes of an entry what callers see.
            timeout: the deadline of each page with its retries, in seconds.
        """
        async for entry in pages(self.transport, method, request, entries, to, timeout, self.namespace):
            yield entry


async def pages(
    transport: Transport,
    method: Method[Reply],
    request: Any,
    entries: Callable[[Reply], Iterable[Any]],
    to: Callable[[Any], Item],
    timeout: float | None,
    namespace: str = "",
) -> AsyncIterator[Item]:
    """Yields what a list holds, page by page; see ``Link.pages``."""
    while True:
        reply: Any = await transport.read(method, request, timeout=timeout, namespace=namespace)
        for entry in entries(reply):
            yield to(entry)
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token


def namespace_of(session_id: str) -> str:
    """Returns the name of a session's namespace."""
    return f"sessions/{checked_text('session_id', session_id)}"


def opened_namespace(reply: Any) -> str:
    """Returns the namespace of the session in a reply: of one that the server has named, or of a fork."""
    return namespace_of(reply.session.id)
