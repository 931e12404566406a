"""The client: one agent's connection to shared memory."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import grpc

from noosphere.consistency import NamespacePolicy
from noosphere.v1 import memory_service_pb2 as ms

from ._agent import check_agent, close_agent, keep_agent, open_agent, random_agent
from ._arguments import checked_addresses
from ._background import noticed
from ._causal import to_text
from ._channel import open_channel
from ._client_data import NamespaceState as NamespaceState
from ._client_data import ServerInfo as ServerInfo
from ._coordination import LEASE_DEFAULT, CoordinationLink, checked_fences
from ._coordination_data import Fence, LockInfo
from ._errors import AckedWritesLost, InvalidArgument
from ._facts import Facts
from ._facts_link import FactsLink
from ._group import Group
from ._handover import observe
from ._listing import PAGE_SIZE
from ._local import surroundings_of
from ._lock import Election, LockScope
from ._namespace import Namespace
from ._resubmit import Resubmitted, resubmit
from ._retry import RetryPolicy
from ._scoped_token import ScopedToken, scoped_token
from ._session_data import SessionInfo, SessionSettings, SessionStatus
from ._session_link import Services
from ._session_scope import Existing, SessionScope, list_sessions, session_scope
from ._space import Space
from ._tls import Tls, explained, tls_source
from ._token import token_source
from ._tool_call import ToolCall, read_tool_call
from ._transport import Method, Transport
from ._wire import from_policy, span_seconds, to_policy, to_time

SERVER_DEFAULT = "127.0.0.1:7443"
SERVER_VARIABLE = "NOOSPHERE_SERVER"
TIMEOUT_DEFAULT = 5.0

Reply = TypeVar("Reply")


class Client:
    """One agent, connected. Made by :func:`connect`; bound to its event loop.

    It keeps no causal contexts: those live in the records that were read. It does keep how far it has seen
    each namespace, which orders reads and never authorises a write, and its last 256 acknowledged writes, in
    case that they are lost.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._services = Services.on(transport)
        self._facts = Facts(FactsLink.on(transport))
        self._coordination = CoordinationLink.on(transport)

    @property
    def agent(self) -> str:
        """The agent's stable name."""
        return self._transport.actor.agent_id

    @property
    def actor(self) -> str:
        """This incarnation, as records show it: ``agent#incarnation``."""
        return self._transport.actor_name

    @property
    def server(self) -> str:
        """The server's address, or those of several, as given."""
        return self._transport.server

    @property
    def channel(self) -> grpc.aio.Channel:
        """The client's channel, for stubs whose methods :meth:`call` calls."""
        return self._transport.channel

    @property
    def private(self) -> Namespace:
        """The agent's own namespace."""
        return self.namespace(f"agents/{self.agent}")

    @property
    def facts(self) -> Facts:
        """Long-term facts: what is remembered beyond sessions, found by search, and forgotten on request."""
        return self._facts

    def shared(self, name: str) -> Namespace:
        """Returns the namespace ``shared/<name>``."""
        return self.namespace(f"shared/{name}")

    def namespace(self, full_name: str) -> Namespace:
        """Returns a namespace by its full name, e.g. ``shared/launch``."""
        return Namespace(Space(self._transport, full_name))

    def lock(
        self,
        name: str,
        *,
        data: Any = None,
        lease: timedelta | float = LEASE_DEFAULT,
        wait: timedelta | float | None = None,
        timeout: float | None = None,
    ) -> LockScope:
        """Holds a lock for the length of an ``async with`` block; it waits for its turn before.

        ::

            async with client.lock("deploy") as lock:
                await client.fenced(lock.fence).shared("launch").put("state", "rolling out")

        The lock renews itself while the block runs. If that fails for so long that somebody else may have it,
        the block's task is cancelled and the ``async with`` raises LockLost. A program that is stopped for a while
        cannot notice that in time: what it writes through ``client.fenced`` is then refused by the server as soon as
        the next holder has written there.

        A lock is not for its holder again: a second block of the same client waits for the first one to end.

        Args:
            name: at most 128 bytes; everybody who names it means the same lock, and the same election.
            data: what is to be known of the holder, a JSON value of at most 4 KiB.
            lease: how long it is held without a renewal, in seconds or as a span: 1 s to 1 h. After a crash of the
                holder others wait for so long at most.
            wait: how long to wait for it, in seconds or as a span; None for as long as it takes. Those who wait get
                it in their order; after each minute of waiting the place in the queue is taken anew.
            timeout: the deadline of each call with its retries, in seconds, beyond ``wait``.

        Returns:
            A context manager that gives a :class:`Lock`, or raises LockHeld if the lock was not free in time.
        """
        return LockScope(self._coordination, name, data, lease, wait, timeout)

    def locks(
        self, prefix: str = "", *, page_size: int = PAGE_SIZE, timeout: float | None = None
    ) -> AsyncIterator[LockInfo]:
        """Lists the locks that are held, by name, page by page.

        Args:
            prefix: what their names begin with.
            page_size: locks per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        return self._coordination.locks(prefix, page_size, timeout)

    def election(self, name: str) -> Election:
        """Returns an election: a lock whose holder leads."""
        return Election(self._coordination, name)

    def group(self, name: str) -> Group:
        """Returns a group, whose members say that they are there."""
        return Group(self._coordination, name)

    def fenced(self, *fences: Fence) -> Client:
        """Returns this client, each of whose writes is made under some locks, also those of sessions and tasks.

        A namespace keeps the highest token of each lock that it has seen. What is written with a smaller one is
        refused with StaleFence: whoever was followed by another holder, who has written there, writes nothing more.

        Args:
            fences: of the locks that are held, ``lock.fence`` each; at most 8.

        Raises:
            InvalidArgument: there are more, or one is none.
        """
        return Client(self._transport.fenced(checked_fences(fences, len(self._transport.fences))))

    def session(
        self,
        session_id: str | None = None,
        *,
        title: str = "",
        labels: Mapping[str, str] | None = None,
        settings: SessionSettings | None = None,
        ephemeral: bool = False,
        existing: Existing = "allowed",
        timeout: float | None = None,
    ) -> SessionScope:
        """Opens a session for the length of an ``async with`` block, or joins one that is there.

        ::

            async with client.session("s1") as session, session.turn():
                await session.append({"role": "user", "content": question})

        Leaving the block does not close the session: others may use it, and so may this agent, later. An
        ephemeral one is closed by whoever opened it, and leaves nothing on disk, in logs or in replies.

        Args:
            session_id: its id, at most 128 bytes without a slash; None asks the server for one, as it has to be
                for an ephemeral session that is to be opened.
            title: for people. Title, labels and settings are those of a session that is created; one that is
                there stays as it is.
            labels: for filters, at most 16.
            settings: how it behaves; None for the defaults.
            ephemeral: leave nothing behind.
            existing: whether it may be there: ``allowed``; ``required``, which also finds closed ones, to be read
                and forked; ``refused``.
            timeout: the deadline of opening and closing it with all retries, in seconds.

        Returns:
            A context manager that gives a :class:`Session`.
        """
        return session_scope(
            self._services,
            session_id,
            title=title,
            labels=labels,
            settings=settings,
            ephemeral=ephemeral,
            existing=existing,
            timeout=timeout,
        )

    def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[SessionInfo]:
        """Lists sessions by id, page by page; ephemeral ones are not listed.

        Args:
            status: only open, or only closed ones.
            owner: only those that this agent opened.
            labels: only those whose labels equal all of these.
            page_size: sessions per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        return list_sessions(
            self._services, status=status, owner=owner, labels=labels, page_size=page_size, timeout=timeout
        )

    async def tool_call(self, ticket: str, *, timeout: float | None = None) -> ToolCall:
        """Returns the tool call of a ticket, to be finished by this client.

        Args:
            ticket: what ``ToolCall.ticket`` said, perhaps in another process.
            timeout: the deadline with all retries, in seconds.

        Raises:
            InvalidArgument: it is damaged, or no ticket.
            SessionNotFound: the session was purged.
            NoosphereError: anything else, see the tree.
        """
        return await read_tool_call(self._services, ticket, timeout)

    def causal_token(self) -> str:
        """Returns how far this client has seen each namespace, as text for another agent's :meth:`observe`.

        It names the 64 namespaces seen last. It orders reads and authorises nothing, above all no overwrite.
        """
        return to_text(self._transport.progress.causal.token)

    async def observe(self, token: str, *, timeout: float | None = None) -> None:
        """Takes over what another agent has seen: causal reads then show at least that.

        The server is asked at once whether all of it has survived.

        Args:
            token: the other's :meth:`causal_token`, or a JSON object with it as its member ``causal_token``.
            timeout: the deadline of each call with its retries, in seconds; eight namespaces are asked about
                at a time.

        Raises:
            AckedWritesLost: something that the other has seen, or written, did not survive. What did is
                taken over all the same.
            FutureRevision: the token is from elsewhere: the server never issued its revisions.
            InvalidArgument: the token is damaged, or of a newer format.
            NoosphereError: the server could not be asked.
        """
        await observe(self._transport, token, timeout)

    async def resubmit(self, lost: AckedWritesLost, *, timeout: float | None = None) -> tuple[Resubmitted, ...]:
        """Writes again what was lost, unless something else was written there since.

        Each write is made once, however often and from however many tasks this is called. Writes of one
        transaction are made together or not at all; what cannot be made is reported, not raised.

        Args:
            lost: the loss, whose ``own_writes`` are meant.
            timeout: the deadline of each call with its retries, in seconds.

        Returns:
            What became of each write, in their order.
        """
        return await resubmit(self._transport, lost, timeout)

    async def ensure_namespace(
        self, name: str, policy: NamespacePolicy | None = None, *, timeout: float | None = None
    ) -> NamespaceState:
        """Makes a namespace live: creates it, or opens a new generation of a deleted one.

        Args:
            name: the full name.
            policy: its rules; None for those of its pattern.
            timeout: the deadline with all retries, in seconds.
        """
        space = Space(self._transport, name)
        request = ms.EnsureNamespaceRequest(
            namespace=space.name, policy=from_policy(policy) if policy is not None else None
        )
        # Idempotent, so it needs no request id to be repeated.
        reply: ms.EnsureNamespaceResponse = await self._transport.read(
            self._transport.stub.EnsureNamespace, request, timeout=timeout, namespace=name
        )
        return NamespaceState(reply.generation, to_policy(reply.policy), reply.head, reply.created)

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns what the server is."""
        reply: ms.GetServerInfoResponse = await self._transport.invoke(
            self._transport.stub.GetServerInfo,
            ms.GetServerInfoRequest(),
            timeout=self._transport.deadline(timeout),
        )
        return ServerInfo(
            reply.version,
            reply.api_version,
            reply.epoch,
            to_time(reply.store_time),
            reply.engine,
            reply.durability,
            timedelta(seconds=span_seconds(reply.agent_lease)),
        )

    async def scoped_token(
        self,
        *,
        agent: str = "",
        owner: str = "",
        session: str = "",
        verbs: Sequence[str] = (),
        ttl: timedelta | float | None = None,
        timeout: float | None = None,
    ) -> ScopedToken:
        """Makes a token that may do less than this client's credential, for whom less is enough.

        An assistant for many users so never holds more than one of them at a time. It ends with the token that this
        client has presented.

        Args:
            agent: the only agent that it may act as; "" for all of this credential's.
            owner: the only owner of facts for whom it may act, such as ``user/42``; "" for all of this credential's.
            session: the only session that it may touch; "" for all.
            verbs: at most these of ``read``, ``write``, ``delete``, ``watch``, ``resolve``, ``admin`` and ``act``; none
                for all.
            ttl: how long it is valid, in seconds or as a span, at most 24 h; None for an hour.
            timeout: the deadline with all retries, in seconds.

        Raises:
            PermissionDenied: it would be more than this credential may do.
            FailedPrecondition: the server takes no API tokens (``TOKENS_OFF``).
            InvalidArgument: an argument is malformed.
        """
        return await scoped_token(self._transport, agent, owner, session, verbs, ttl, timeout)

    async def call(
        self, method: Method[Reply], request: Any, *, changes: bool = False, timeout: float | None = None
    ) -> Reply:
        """Calls a method of the server for which this class has none, e.g. of the ``AdminService``.

        Deadline, retries and exceptions are those of every call. A retry may execute again what a lost
        reply has told already, so only methods that can bear that belong here.

        Args:
            method: a method of a stub on :attr:`channel`.
            request: its request.
            changes: whether the call may change something, so that a failure may leave that unknown.
            timeout: the deadline with all retries, in seconds.
        """
        # There is no request id; the empty text stands for one, so that an error admits what may have happened.
        return await self._transport.invoke(
            method, request, timeout=self._transport.deadline(timeout), request_id="" if changes else None
        )

    def __repr__(self) -> str:
        return f"Client({self.actor!r} at {self.server})"


@asynccontextmanager
async def connect(
    server: str | None = None,
    *,
    agent: str | None = None,
    takeover: bool = False,
    timeout: float = TIMEOUT_DEFAULT,
    channel: grpc.aio.Channel | None = None,
    retry: RetryPolicy | None = None,
    coalesce: bool = True,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    in_order: bool = False,
    tls: Tls | None = None,
    token: str | Callable[[], str] | None = None,
    token_file: str | None = None,
    allow_insecure: bool = False,
) -> AsyncIterator[Client]:
    """Connects as an agent for the length of an ``async with`` block.

    Begins an incarnation of the agent, keeps its lease alive while the block runs, and ends it.

    Args:
        server: ``host:port`` or ``[ipv6]:port``, or a target of gRPC's own such as ``unix:/run/noosphere.sock`` or
            ``dns:///name:port``; several with commas between them, of which the client uses one, drawn at random,
            until that one fails, and then another. None for the environment's ``NOOSPHERE_SERVER``, else
            127.0.0.1:7443.
        agent: the agent's stable name; None for a fresh one, ``client/<random>``.
        takeover: end a living incarnation of the agent instead of being refused.
        timeout: the default deadline of each call with all its retries, in seconds.
        channel: use this gRPC channel (and leave it open at the end) instead of making one.
        retry: when and how often to try again; None for the defaults.
        coalesce: let concurrent calls share the messages of one stream; False sends each by itself.
        interceptors: see every call as gRPC has them, whichever server it goes to.
        in_order: use the first of several servers, and the next one when that fails, instead of drawing: for an
            agent that has one beside it.
        tls: encrypt connections, with these files; None for those that the environment's ``NOOSPHERE_TLS_CA``,
            ``NOOSPHERE_TLS_CLIENT_CERTIFICATE`` and ``NOOSPHERE_TLS_CLIENT_KEY`` name, if it names any.
        token: says who calls, to servers that ask: an API token or a JSON web token, or a function that returns the
            present one without waiting. None for the environment's ``NOOSPHERE_TOKEN`` or ``NOOSPHERE_TOKEN_FILE``.
        token_file: a file with the token instead, read anew when it changes, as those that Kubernetes projects do.
        allow_insecure: send the token in plain text to another machine; without it that is refused.

    Raises:
        Unauthenticated: the server wants to know who calls, and is not told.
        AgentActive: the agent is connected elsewhere, and ``takeover`` is not set.
        Unavailable: the server cannot be reached within ``timeout``.
        InvalidArgument: an argument is malformed.
    """
    if agent is not None:
        check_agent(agent)
    address, field = SERVER_DEFAULT, "server"
    if server is not None:
        address = server
    elif variable := os.environ.get(SERVER_VARIABLE):
        address, field = variable, SERVER_VARIABLE
    checked_addresses(field, address)
    if interceptors and channel is not None:
        raise InvalidArgument("interceptors: a channel that is given has its own")
    if tls is not None and channel is not None:
        raise InvalidArgument("tls: a channel that is given has its own")
    if (token is not None or token_file is not None) and channel is not None:
        raise InvalidArgument("token: a channel that is given has its own")
    name = agent or random_agent()
    own = channel is None
    if own and (local := surroundings_of(address, name)) is not None:
        channel, retry = local.channel, retry or local.retry
        clock, sleep = local.clock, local.sleep
    else:
        clock, sleep = asyncio.get_running_loop().time, asyncio.sleep
    encrypted = tls_source(tls) if channel is None else None
    if channel is not None:
        used = channel
    else:
        plaintext = () if encrypted is not None or allow_insecure else checked_addresses(field, address)
        presented = token_source(token, token_file, plaintext)
        used = open_channel(address, interceptors, in_order=in_order, tls=encrypted, token=presented)
    transport = Transport(
        used,
        address,
        timeout,
        retry or RetryPolicy(),
        clock,
        sleep,
        coalesce=coalesce,
        explain=partial(explained, tls=encrypted is not None) if own else str,
    )
    try:
        transport.deadline(timeout)
        lease = await open_agent(transport, name, takeover=takeover or agent is None)
        keeper = asyncio.create_task(keep_agent(transport, lease), name=f"keep {transport.actor_name}")
        noticed(keeper)
        try:
            yield Client(transport)
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
            await close_agent(transport)
    finally:
        await transport.close()
        if own:
            await used.close()


def new_request_id() -> str:
    """Returns a fresh id for the ``request_id`` of a mutating call."""
    return str(uuid.uuid4())
