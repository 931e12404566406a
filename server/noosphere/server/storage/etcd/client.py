"""Calls of etcd: each with a deadline, none repeated that may have changed something.

A member that does not answer is left for the next one of the list; a call whose reply is missing is refused as one of
unknown outcome. Whoever asked for it asks again under the same id, or looks at what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio

from noosphere.consistency import Reason, Refusal

from . import wire_pb2 as wire
from .access import Access, Channels, Metadata, UnfitFiles
from .keys import end_of

CALL_SECONDS_MAX = 2.0
CALLS_MAX = 256
"""Most calls on their way at a time; others wait for room, within their own deadline."""

PAGE_KEYS_MAX = 1_000
ROUND_LEASES_MAX = 1_000
"""Leases that are renewed over one stream."""

READ_TRIES_MAX = 3
"""A read asks so many members at most, each once."""

# A member that has lost its leader ends the call instead of leaving it waiting.
_METADATA = (("hasleader", "true"),)

_OLD_REVISION = "revision of auth store is old"
_HANDSHAKE = ("handshake", "Verification", "not in peer certificate", "Socket closed")
_NOT_PERMITTED = "permission denied"
_NO_ENTRY = ("user name is empty", "authentication failed", "authentication is not enabled")
_NOT_LET_IN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

ACCESS = Access()

log = logging.getLogger("noosphere.storage.etcd")


class Message(Protocol):
    """What the generated messages have in common."""

    def SerializeToString(self) -> bytes:
        """Returns the message in wire format."""
        ...


R = TypeVar("R")


class Written(NamedTuple):
    """What became of a transaction.

    Attributes:
        succeeded: whether its conditions held.
        revision: of the store, after it.
        responses: those of the operations that were carried out.
    """

    succeeded: bool
    revision: int
    responses: Sequence[wire.ResponseOp]


class EtcdClient:
    """Connections to the members of one etcd cluster, one of which is used at a time.

    Args:
        endpoints: ``host:port`` of each member, in the order in which they are tried.
        access: how they are reached.

    Raises:
        UnfitFiles: a file for TLS cannot be read.
    """

    def __init__(self, endpoints: Sequence[str], access: Access = ACCESS) -> None:
        self._access = access
        self._channels = Channels(tuple(endpoints), access)
        self._signing_in = asyncio.Lock()
        # What calls carry; None if a token is needed first.
        self._metadata: Metadata | None = None if access.username else _METADATA
        # Of several members the next one may be there at once; a single one may be back before the deadline.
        self._patient = len(self._channels) == 1
        self._present = 0
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._closed = False

    async def read(self, key: bytes) -> wire.KeyValue | None:
        """Returns a key as it is now (linearizable), or None.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        response = await self.range(wire.RangeRequest(key=key))
        return response.kvs[0] if response.kvs else None

    async def read_all(self, prefix: bytes) -> tuple[int, list[wire.KeyValue]]:
        """Returns every key with a prefix, as all of them were at one revision, and that revision.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        found: list[wire.KeyValue] = []
        start, end, revision = prefix, end_of(prefix), 0
        while True:
            request = wire.RangeRequest(key=start, range_end=end, revision=revision, limit=PAGE_KEYS_MAX)
            response = await self.range(request)
            revision = revision or response.header.revision
            found += response.kvs
            if not response.more:
                return revision, found
            start = found[-1].key + b"\0"

    async def count(self, prefix: bytes) -> int:
        """Returns how many keys begin with a prefix.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        request = wire.RangeRequest(key=prefix, range_end=end_of(prefix), count_only=True)
        return (await self.range(request)).count

    async def range(self, request: wire.RangeRequest) -> wire.RangeResponse:
        """Reads keys; asks the next member if one does not answer.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        for _ in range(min(READ_TRIES_MAX, len(self._channels)) - 1):
            try:
                return await self._call("KV/Range", request, wire.RangeResponse.FromString)
            except Refusal:
                self.check()
        return await self._call("KV/Range", request, wire.RangeResponse.FromString)

    async def write(
        self,
        conditions: Iterable[wire.Compare],
        then: Iterable[wire.RequestOp],
        otherwise: Iterable[wire.RequestOp] = (),
    ) -> Written:
        """Carries out ``then`` in one step if every condition holds, else ``otherwise``.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, with an unknown outcome; LIMIT_EXCEEDED if etcd is full.
        """
        request = wire.TxnRequest(compare=conditions, success=then, failure=otherwise)
        response = await self._call("KV/Txn", request, wire.TxnResponse.FromString)
        return Written(response.succeeded, response.header.revision, response.responses)

    async def alarms(self) -> list[tuple[int, str]]:
        """Returns which members have raised which alarms: such a cluster refuses writes.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        response = await self._call("Maintenance/Alarm", wire.AlarmRequest(), wire.AlarmResponse.FromString)
        return [(alarm.member_id, wire.AlarmType.Name(alarm.alarm)) for alarm in response.alarms]

    async def grant(self, seconds: int) -> int:
        """Begins a lease; returns its id. If the caller is cancelled meanwhile, the lease is given back first.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        request = wire.LeaseGrantRequest(ttl=seconds)
        granting = asyncio.ensure_future(self._call("Lease/LeaseGrant", request, wire.LeaseGrantResponse.FromString))
        try:
            return (await asyncio.shield(granting)).id
        except asyncio.CancelledError:
            with contextlib.suppress(Refusal):
                await self.drop((await granting).id)
            raise

    async def drop(self, lease: int) -> None:
        """Ends a lease, if it can be done; otherwise it lapses, as nobody renews it."""
        try:
            request = wire.LeaseRevokeRequest(id=lease)
            await self._call("Lease/LeaseRevoke", request, wire.LeaseRevokeResponse.FromString, missing_ok=True)
        except Refusal as refusal:
            log.debug("lease %x is left to lapse: %s", lease, refusal)

    async def renew(self, leases: Sequence[int]) -> set[int]:
        """Renews leases; returns those that are still there.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        alive: set[int] = set()
        for first in range(0, len(leases), ROUND_LEASES_MAX):
            async with self._room:
                alive |= await self._renew(leases[first : first + ROUND_LEASES_MAX])
        return alive

    async def _renew(self, leases: Sequence[int]) -> set[int]:
        self.check()
        metadata = await self._sign_in()
        member = self._present
        call = self._channels[member].stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=wire.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=wire.LeaseKeepAliveResponse.FromString,
        )(
            (wire.LeaseKeepAliveRequest(id=lease) for lease in leases),
            timeout=CALL_SECONDS_MAX,
            metadata=metadata,
            wait_for_ready=self._patient,
        )
        try:
            return {response.id async for response in call if response.ttl > 0}
        except grpc.aio.AioRpcError as error:
            self._refused(metadata, error)
            raise self._refusal("Lease/LeaseKeepAlive", member, error) from None
        finally:
            # Whoever is cancelled leaves it under way, and a task of gRPC's that sends what is left.
            call.cancel()

    async def watch(self, prefix: bytes, after: int) -> AsyncGenerator[wire.WatchResponse, None]:
        """Yields what changes under a prefix after a revision, until etcd ends it.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        self.check()
        metadata = await self._sign_in()
        member = self._present
        call = self._channels[member].stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=wire.WatchRequest.SerializeToString,
            response_deserializer=wire.WatchResponse.FromString,
        )(metadata=metadata)
        create = wire.WatchCreateRequest(key=prefix, range_end=end_of(prefix), start_revision=after + 1)
        try:
            await call.write(wire.WatchRequest(create_request=create))
            async for response in call:
                if response.canceled and _NOT_PERMITTED in response.cancel_reason:
                    # It says so of a token that is too old as well.
                    self._drop(metadata)
                    log.error("etcd has ended a watch: %s", response.cancel_reason)
                    raise not_let_in()
                yield response
        except grpc.aio.AioRpcError as error:
            self._refused(metadata, error)
            raise self._refusal("Watch/Watch", member, error) from None
        finally:
            call.cancel()

    def check(self) -> None:
        """Checks that calls may still be made.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the coordinator is closed")

    async def handshake_problem(self) -> str:
        """Returns what is wrong with connections, if they are made and do not get beyond TLS; else nothing."""
        call: Any = self._channels[self._present].unary_unary("/etcdserverpb.Maintenance/Status")
        try:
            await call(b"", timeout=CALL_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if any(words in details for words in _HANDSHAKE):
                return details.rpartition("last error: ")[2]
        return ""

    async def close(self) -> None:
        """Ends every call and disconnects."""
        self._closed = True
        await self._channels.close()

    async def _sign_in(self) -> Metadata:
        """Returns what calls carry, with a token where there are users.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._metadata is not None:
            return self._metadata
        # Whoever comes meanwhile waits for the same token, each within its own deadline.
        async with self._signing_in:
            if self._metadata is None:
                request, read = self._access.request(), wire.AuthenticateResponse.FromString
                async with asyncio.timeout(CALL_SECONDS_MAX):
                    reply = await self._attempt("Auth/Authenticate", request, read, _METADATA)
                self._metadata = (*_METADATA, ("token", reply.token))
            return self._metadata

    def _refused(self, metadata: Metadata, error: grpc.aio.AioRpcError) -> bool:
        """Returns whether a call was refused for its token alone, which is dropped then."""
        old = error.code() is grpc.StatusCode.INVALID_ARGUMENT and _OLD_REVISION in (error.details() or "")
        if len(metadata) == len(_METADATA) or not (old or error.code() is grpc.StatusCode.UNAUTHENTICATED):
            return False
        self._drop(metadata)
        return True

    def _drop(self, metadata: Metadata) -> None:
        # Others may have a newer one already.
        if self._access.username and self._metadata is metadata:
            self._metadata = None

    async def _call(self, method: str, request: Message, read: Callable[[bytes], R], *, missing_ok: bool = False) -> R:
        self.check()
        member = self._present
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                # Nothing was done under a token that was refused, so the call is made once more under another one.
                with contextlib.suppress(_TokenRefused):
                    metadata = self._metadata or await self._sign_in()
                    async with self._room:
                        return await self._attempt(method, request, read, metadata, missing_ok=missing_ok)
                metadata = await self._sign_in()
                async with self._room:
                    return await self._attempt(method, request, read, metadata, missing_ok=missing_ok)
        except _TokenRefused:
            raise not_let_in() from None
        except (TimeoutError, grpc.aio.UsageError):
            # A channel that is closed meanwhile is told as a wrong use of it.
            self.check()
            self._leave(member)
            raise unavailable() from None

    async def _attempt(
        self,
        method: str,
        request: Message,
        read: Callable[[bytes], R],
        metadata: Metadata,
        *,
        missing_ok: bool = False,
    ) -> R:
        member = self._present
        call: Any = self._channels[member].unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=read,
        )
        try:
            reply: R = await call(request, timeout=CALL_SECONDS_MAX, metadata=metadata, wait_for_ready=self._patient)
        except grpc.aio.AioRpcError as error:
            if missing_ok and error.code() is grpc.StatusCode.NOT_FOUND:
                return read(b"")
            if self._refused(metadata, error):
                raise _TokenRefused from None
            raise self._refusal(method, member, error) from None
        return reply

    def _refusal(self, method: str, member: int, error: grpc.aio.AioRpcError) -> Refusal:
        if self._closed:
            return Refusal(Reason.ENGINE_UNAVAILABLE, "the coordinator is closed")
        match error.code():
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
                log.debug("etcd does not answer %s: %s", method, error.details())
                self._leave(member)
                return unavailable()
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                log.error("etcd has no room: %s", error.details())
                return Refusal(Reason.LIMIT_EXCEEDED, "the coordinator is full; nothing was written")
            case code if code in _NOT_LET_IN or any(words in (error.details() or "") for words in _NO_ENTRY):
                log.error("etcd has refused %s: %s", method, error.details())
                return not_let_in()
            case _:
                log.error("etcd has refused %s: %s", method, error.details())
                return Refusal(Reason.ENGINE_UNAVAILABLE, "etcd has refused a call; the server's log has the reason")

    def _leave(self, member: int) -> None:
        try:
            if self._channels.renew():
                log.info("etcd is spoken to with certificates that were replaced")
        except UnfitFiles as error:
            log.warning("certificates from before are used: %s", error)
        # Once per member that did not answer, however many calls waited for it.
        if member == self._present:
            self._present = (member + 1) % len(self._channels)


class _TokenRefused(Exception):
    """A call was refused for its token, and has done nothing."""


def not_let_in() -> Refusal:
    """Returns the refusal of a call that this server's user may not make."""
    return Refusal(
        Reason.ENGINE_UNAVAILABLE, "etcd does not let this server in; etcd_username and etcd_password have to be right"
    )


def unavailable() -> Refusal:
    """Returns the refusal of a call without an answer. What has failed, and where, is for the server's log."""
    return Refusal(Reason.ENGINE_UNAVAILABLE, "etcd does not answer, the outcome of this call is unknown")
