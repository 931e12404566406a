"""CoordinationService: each method decodes, calls the service and encodes."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from noosphere.consistency import REVISION_MAX, decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import coordination_service_pb2 as pb
from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceServicer

from ..coordination import Coordination
from ..ports.locks import Held, Member
from . import decode
from .calls import Context, streaming, unary
from .deliveries import Deliveries
from .times import duration, duration_ms


class CoordinationRpc(CoordinationServiceServicer):
    """The gRPC face of locks, elections and presence.

    Args:
        coordination: the services.
        watch_stall_seconds: how long a watcher may leave a message untaken; infinite for ever.
    """

    def __init__(self, coordination: Coordination, watch_stall_seconds: float = math.inf) -> None:
        self._locks = coordination.locks
        self._groups = coordination.groups
        self._deliveries = Deliveries(watch_stall_seconds)

    @unary
    async def AcquireLock(self, request: pb.AcquireLockRequest, context: Context) -> pb.AcquireLockResponse:
        """See the proto."""
        held = await self._locks.acquire(
            decode.call(request.call),
            request.name,
            lease_ms=duration_ms("lease", request.lease),
            wait_ms=duration_ms("wait", request.wait),
            data=request.data,
        )
        return pb.AcquireLockResponse(lock=None if held is None else _lock(held))

    @unary
    async def RenewLock(self, request: pb.RenewLockRequest, context: Context) -> pb.RenewLockResponse:
        """See the proto."""
        await self._locks.renew(decode.call(request.call), request.name, _number("token", request.token))
        return pb.RenewLockResponse()

    @unary
    async def ReleaseLock(self, request: pb.ReleaseLockRequest, context: Context) -> pb.ReleaseLockResponse:
        """See the proto."""
        released = await self._locks.release(decode.call(request.call), request.name, _number("token", request.token))
        return pb.ReleaseLockResponse(released=released)

    @unary
    async def GetLock(self, request: pb.GetLockRequest, context: Context) -> pb.GetLockResponse:
        """See the proto."""
        held = await self._locks.get(decode.call(request.call), request.name)
        return pb.GetLockResponse(lock=None if held is None else _lock(held))

    @unary
    async def ListLocks(self, request: pb.ListLocksRequest, context: Context) -> pb.ListLocksResponse:
        """See the proto."""
        query = fingerprint("locks", request.prefix)
        page = await self._locks.list(
            decode.call(request.call),
            request.prefix,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
        )
        return pb.ListLocksResponse(
            locks=map(_lock, page.locks),
            next_page_token="" if page.following is None else encode_page(query, page.following),
        )

    @unary
    async def JoinGroup(self, request: pb.JoinGroupRequest, context: Context) -> pb.JoinGroupResponse:
        """See the proto."""
        member = await self._groups.join(
            decode.call(request.call),
            request.group,
            lease_ms=duration_ms("lease", request.lease),
            data=request.data,
        )
        return pb.JoinGroupResponse(member=_member(member))

    @unary
    async def KeepMember(self, request: pb.KeepMemberRequest, context: Context) -> pb.KeepMemberResponse:
        """See the proto."""
        await self._groups.keep(decode.call(request.call), request.group, _number("number", request.number))
        return pb.KeepMemberResponse()

    @unary
    async def LeaveGroup(self, request: pb.LeaveGroupRequest, context: Context) -> pb.LeaveGroupResponse:
        """See the proto."""
        left = await self._groups.leave(decode.call(request.call), request.group, _number("number", request.number))
        return pb.LeaveGroupResponse(left=left)

    @unary
    async def ListMembers(self, request: pb.ListMembersRequest, context: Context) -> pb.ListMembersResponse:
        """See the proto."""
        query = fingerprint("members", request.group)
        page = await self._groups.list(
            decode.call(request.call),
            request.group,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
        )
        return pb.ListMembersResponse(
            members=map(_member, page.members),
            next_page_token="" if page.following is None else encode_page(query, page.following),
        )

    @streaming
    async def WatchMembers(
        self, request: pb.WatchMembersRequest, context: Context
    ) -> AsyncGenerator[pb.WatchMembersResponse, None]:
        """See the proto."""
        watch = self._groups.watch(decode.call(request.call), request.group)
        with self._deliveries.to(context) as delivery:
            async with aclosing(watch) as changes:
                async for change in changes:
                    delivery.begin("", 0)
                    joined = map(_member, change.joined)
                    yield pb.WatchMembersResponse(joined=joined, left=change.left, more=change.more)
                    delivery.taken()


def _number(field: str, number: int) -> int:
    """Returns a number that was issued by a coordinator.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if not 0 < number <= REVISION_MAX:
        raise invalid(field, f"{number} is not a number that this service has returned")
    return number


def _lock(held: Held) -> pb.Lock:
    return pb.Lock(name=held.name, holder=held.owner, token=held.token, lease=duration(held.lease_ms), data=held.data)


def _member(member: Member) -> pb.Member:
    return pb.Member(agent_id=member.name, number=member.number, lease=duration(member.lease_ms), data=member.data)
