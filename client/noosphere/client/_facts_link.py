"""The way of a client's calls about facts: the service's stub, whose facts are meant, what has been seen of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from noosphere.consistency import Refusal, decode_causal, encode_causal
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub

from ._arguments import checked_text
from ._causal import entries_of
from ._sequence import RequestTicket
from ._session_link import pages
from ._transport import Method, Transport

if TYPE_CHECKING:
    # Exists for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.fact_service_pb2_grpc import FactServiceAsyncStub

Reply = TypeVar("Reply")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class FactsLink:
    """The calls of one client about facts.

    Attributes:
        transport: the client's way to the server.
        stub: the stub of FactService.
    """

    transport: Transport
    stub: FactServiceAsyncStub

    @classmethod
    def on(cls, transport: Transport) -> FactsLink:
        """Returns the service on a client's channel."""
        return cls(transport, FactServiceStub(transport.channel))

    @property
    def own(self) -> str:
        """The agent's own: its name as an owner, and its scope."""
        return f"agent/{self.transport.actor.agent_id}"

    def or_own(self, field: str, name: str | None) -> str:
        """Returns an owner or a scope, the agent's own if none is given.

        Raises:
            InvalidArgument: it is no text.
        """
        return self.own if name is None else checked_text(field, name) or self.own

    def seen(self, scopes: Iterable[str]) -> list[bytes]:
        """Returns the causal tokens that ask for no less than this client has seen, or was told of, in scopes."""
        token = self.transport.progress.causal.token
        parts = (entries_of(token, ledger_of(scope)) for scope in dict.fromkeys(scopes))
        return [encode_causal(part) for part in parts if part is not None]

    async def read(self, method: Method[Reply], request: Any, timeout: float | None, scope: str = "") -> Reply:
        """Sends a call that changes nothing; ``request`` has a field ``call``.

        Args:
            method: the stub's method.
            request: its request.
            timeout: the deadline with all retries, in seconds.
            scope: in which scope; empty if the request names a thing by its id, or several scopes.
        """
        return await self.transport.read(method, request, timeout=timeout, namespace=scope and ledger_of(scope))

    async def write(
        self,
        method: Method[Reply],
        request: Any,
        request_id: str | None,
        timeout: float | None,
        scope: str = "",
        *,
        ticket: RequestTicket | None = None,
    ) -> Reply:
        """Sends a mutating call.

        Args:
            method: the stub's method.
            request: its request, with a field ``call``.
            request_id: the caller's own UUID, or None for the next number.
            timeout: the deadline with all retries, in seconds.
            scope: in which scope; empty if the request names a thing by its id.
            ticket: an id that the caller holds and closes; None for one of this call's own.
        """
        reply, _ = await self.transport.write(
            method,
            request,
            request_id=request_id,
            timeout=timeout,
            namespace=scope and ledger_of(scope),
            ticket=ticket,
        )
        return reply

    def learn(self, token: bytes) -> None:
        """Takes note of what a reply's causal token says: later searches find it, and others can be told of it."""
        if not token:
            return
        # Of a newer format: whoever cannot read it asks for less, which is the server's to judge.
        with suppress(Refusal):
            for namespace, revision in decode_causal(token, "token").revisions.items():
                self.transport.progress.causal.saw(namespace, revision, linearizable=True)

    def pages(
        self,
        method: Method[Reply],
        request: Any,
        entries: Callable[[Reply], Iterable[Any]],
        to: Callable[[Any], Item],
        timeout: float | None,
    ) -> AsyncIterator[Item]:
        """Yields what a list of ``request.scope`` holds, page by page; see ``Link.pages``."""
        return pages(self.transport, method, request, entries, to, timeout, ledger_of(request.scope))


def ledger_of(scope: str) -> str:
    """Returns the namespace whose revisions order what is decided about a scope's facts."""
    return f"facts/{scope}"
