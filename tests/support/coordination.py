"""Locks and groups as an agent of the behaviour suite calls for them."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from google.protobuf.message import Message
from tests.support.api import Agent, span
from tests.support.sessions import Response
from tests.support.transport import COORDINATION, Stream

from noosphere.v1 import coordination_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

LEASE_MS = 15_000
_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """Returns the name of a lock or group that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:12]}-{next(_numbers)}"


class Coordinated:
    """An agent that calls CoordinationService."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def call(self, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call; a request without a caller gets this agent."""
        if not request.HasField("call"):
            request.call.CopyFrom(self.agent.call())  # type: ignore[attr-defined] # every request has one
        return await self.agent.api.transport.unary(COORDINATION, method, request, kind)

    async def acquire(
        self,
        name: str,
        *,
        lease_ms: int = LEASE_MS,
        wait_ms: int = 0,
        data: bytes = b"",
        call: types.CallContext | None = None,
    ) -> pb.Lock | None:
        """Takes a lock; None if it was not free in time."""
        request = pb.AcquireLockRequest(name=name, lease=span(lease_ms), wait=span(wait_ms), data=data, call=call)
        reply = await self.call("AcquireLock", request, pb.AcquireLockResponse)
        return reply.lock if reply.HasField("lock") else None

    async def took(self, name: str, **options: Any) -> pb.Lock:
        """Takes a lock that is free."""
        lock = await self.acquire(name, **options)
        assert lock is not None
        return lock

    async def renew(self, lock: pb.Lock) -> None:
        """Renews a lock."""
        await self.call("RenewLock", pb.RenewLockRequest(name=lock.name, token=lock.token), pb.RenewLockResponse)

    async def release(self, lock: pb.Lock) -> bool:
        """Gives a lock back."""
        request = pb.ReleaseLockRequest(name=lock.name, token=lock.token)
        return (await self.call("ReleaseLock", request, pb.ReleaseLockResponse)).released

    async def holder(self, name: str) -> pb.Lock | None:
        """Asks for a lock's holder."""
        reply = await self.call("GetLock", pb.GetLockRequest(name=name), pb.GetLockResponse)
        return reply.lock if reply.HasField("lock") else None

    async def locks(self, prefix: str, page_size: int = 0) -> list[pb.Lock]:
        """Lists locks, all pages."""
        found: list[pb.Lock] = []
        token = ""
        while True:
            request = pb.ListLocksRequest(prefix=prefix, page_size=page_size, page_token=token)
            page = await self.call("ListLocks", request, pb.ListLocksResponse)
            assert page_size == 0 or len(page.locks) <= page_size
            found += page.locks
            if not (token := page.next_page_token):
                return found

    async def join(self, group: str, *, lease_ms: int = LEASE_MS, data: bytes = b"") -> pb.Member:
        """Enters a group."""
        request = pb.JoinGroupRequest(group=group, lease=span(lease_ms), data=data)
        return (await self.call("JoinGroup", request, pb.JoinGroupResponse)).member

    async def keep(self, group: str, member: pb.Member) -> None:
        """Keeps a membership alive."""
        await self.call("KeepMember", pb.KeepMemberRequest(group=group, number=member.number), pb.KeepMemberResponse)

    async def leave(self, group: str, member: pb.Member) -> bool:
        """Leaves a group."""
        request = pb.LeaveGroupRequest(group=group, number=member.number)
        return (await self.call("LeaveGroup", request, pb.LeaveGroupResponse)).left

    async def members(self, group: str, page_size: int = 0) -> list[pb.Member]:
        """Lists who is there, all pages."""
        found: list[pb.Member] = []
        token = ""
        while True:
            request = pb.ListMembersRequest(group=group, page_size=page_size, page_token=token)
            page = await self.call("ListMembers", request, pb.ListMembersResponse)
            assert page_size == 0 or len(page.members) <= page_size
            found += page.members
            if not (token := page.next_page_token):
                return found

    def watch(self, group: str) -> Stream[pb.WatchMembersResponse]:
        """Watches a group."""
        request = pb.WatchMembersRequest(group=group, call=self.agent.call())
        return self.agent.api.transport.stream(COORDINATION, "WatchMembers", request, pb.WatchMembersResponse)
