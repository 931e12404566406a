"""Groups: who is there, and being there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Any

import grpc

from noosphere.consistency import Reason
from noosphere.v1 import coordination_service_pb2 as pb

from ._coordination import LEASE_DEFAULT, CoordinationLink, checked_lease, checked_name
from ._coordination_data import GroupChange, Member, to_member, write_data
from ._errors import NoosphereError, StaleFence, StaleIncarnation
from ._listing import PAGE_SIZE
from ._mapping import to_error
from ._session_link import pages
from ._status import Failure
from ._stream import PATIENCE, ResumedStream, is_passing
from ._transport import LOG
from ._wire import from_seconds

_LEAVE_TIMEOUT = 2.0


class Membership:
    """This agent's place in a group; made by the block of ``Group.join``.

    Attributes:
        group: the group's name.
        lease: how long it lasts without a renewal, in seconds.
    """

    def __init__(self, link: CoordinationLink, group: str, lease: float, data: Any) -> None:
        self.group = group
        self.lease = lease
        self._link = link
        self._data = write_data(data)
        self._number = 0

    @property
    def number(self) -> int:
        """Tells this life of the member from its earlier and later ones."""
        return self._number

    async def update(self, data: Any, *, timeout: float | None = None) -> None:
        """Tells the others something new.

        Args:
            data: what they should know of this agent, a JSON value of at most 4 KiB; None for nothing.
            timeout: the deadline with all retries, in seconds.
        """
        self._data = write_data(data)
        await self._join(timeout)

    def __repr__(self) -> str:
        return f"Membership({self.group!r}, {self._link.transport.actor_name}, number={self._number})"

    async def _join(self, timeout: float | None) -> None:
        request = pb.JoinGroupRequest(group=self.group, lease=from_seconds(self.lease), data=self._data)
        reply: pb.JoinGroupResponse
        reply, _ = await self._link.transport.write(
            self._link.stub.JoinGroup, request, request_id=None, timeout=timeout, namespace=""
        )
        # Of two joins at the same time the later one counts, for the server too.
        self._number = max(self._number, reply.member.number)

    async def _keep(self, timeout: float) -> None:
        request = pb.KeepMemberRequest(group=self.group, number=self._number)
        try:
            await self._link.transport.write(
                self._link.stub.KeepMember, request, request_id=None, timeout=timeout, namespace=""
            )
        except StaleFence:
            # It has lapsed, because the server could not be reached in time, or has started anew.
            LOG.debug("the membership in %r has lapsed and begins anew", self.group)
            await self._join(timeout)

    async def _leave(self) -> None:
        request = pb.LeaveGroupRequest(group=self.group, number=self._number)
        try:
            await self._link.transport.write(
                self._link.stub.LeaveGroup, request, request_id=None, timeout=_LEAVE_TIMEOUT, namespace=""
            )
        except NoosphereError as error:
            # The lease ends by itself; the block's own outcome matters more.
            LOG.debug("could not leave the group %r: %s", self.group, error)


class MemberScope:
    """The ``async with`` block of a membership; made by ``Group.join``, for one use."""

    def __init__(self, membership: Membership, timeout: float | None) -> None:
        self._membership = membership
        self._timeout = timeout
        self._keeper: asyncio.Task[None] | None = None
        self._entered = False

    async def __aenter__(self) -> Membership:
        """Enters the group.

        Raises:
            NoosphereError: the server could not be asked, or refuses, see the tree.
        """
        if self._entered:
            raise RuntimeError("a membership's block is for one use; call group.join again")
        self._entered = True
        await self._membership._join(self._timeout)
        self._keeper = asyncio.create_task(self._keep(), name=f"keep membership {self._membership.group}")
        return self._membership

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the group."""
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        if not self._keeper.cancelled() and (failure := self._keeper.exception()) is not None:
            raise failure
        await self._membership._leave()

    async def _keep(self) -> None:
        """Renews every third of the lease, for as long as the agent's incarnation has not ended."""
        membership = self._membership
        transport = membership._link.transport
        pause = membership.lease / 3
        wait = pause
        while True:
            await transport.sleep(wait)
            try:
                await membership._keep(pause)
                wait = pause
            except StaleIncarnation:
                LOG.debug("the membership in %r has ended with the incarnation", membership.group)
                return
            except NoosphereError as error:
                LOG.debug("could not keep the membership in %r: %s", membership.group, error)
                wait = pause / 8


class GroupWatch:
    """A watch of who is in a group; made by ``Group.watch``, for one use.

    After a lost connection it takes a new look: what has changed meanwhile is told as one change.
    """

    def __init__(self, link: CoordinationLink, group: str, patience: float) -> None:
        self._link = link
        self._group = group
        self._stream: ResumedStream[pb.WatchMembersResponse] = ResumedStream(
            link.transport, self._open, f"the group {group!r}", patience=patience
        )
        self._told: dict[str, Member] | None = None
        # What the present stream has told, and whether it has told everybody.
        self._there: dict[str, Member] = {}
        self._entered = False
        self._closed = False

    async def __aenter__(self) -> GroupWatch:
        """Begins the watch."""
        if self._entered:
            raise RuntimeError("a watch is for one use; call watch again")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the watch."""
        self._closed = True
        await self._stream.close()

    def __aiter__(self) -> GroupWatch:
        """Returns the watch itself."""
        return self

    async def __anext__(self) -> GroupChange:
        """Returns the next change, waiting for it; the first one has everybody.

        A cancelled wait loses nothing: ask again.

        Raises:
            StopAsyncIteration: the block was left.
            Unavailable: the watch could not go on for ``patience`` seconds.
            StaleIncarnation: the agent's incarnation has ended; connect again.
            NoosphereError: the watch cannot continue, see the tree.
        """
        if not self._entered:
            raise RuntimeError("the watch has not begun: enter its block first")
        while not self._closed:
            message = await self._stream.next()
            if isinstance(message, Failure):
                self._there = {}
                if not is_passing(message) and message.reason != Reason.SLOW_CONSUMER:
                    raise to_error(message, request_id=None, outcome="not_applied", namespace="")
                continue
            for member in map(to_member, message.joined):
                self._there[member.agent] = member
            for agent in message.left:
                self._there.pop(agent, None)
            if not message.more and (change := self._change()) is not None:
                return change
        raise StopAsyncIteration

    def _change(self) -> GroupChange | None:
        """Returns what is to be told; None if it is what was told the last time."""
        before, self._told = self._told, dict(sorted(self._there.items()))
        if before == self._told:
            return None
        known = before or {}
        joined = tuple(member for agent, member in self._told.items() if known.get(agent) != member)
        left = tuple(agent for agent in known if agent not in self._told)
        return GroupChange(tuple(self._told.values()), joined, left)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.WatchMembersRequest, pb.WatchMembersResponse]:
        request = pb.WatchMembersRequest(group=self._group)
        request.call.actor.CopyFrom(self._link.transport.actor)
        return self._link.stub.WatchMembers(request)


class Group:
    """A group of agents, each of which is there for as long as it says so."""

    def __init__(self, link: CoordinationLink, name: str) -> None:
        self.name = checked_name(name)
        self._link = link

    def join(
        self, *, data: Any = None, lease: timedelta | float = LEASE_DEFAULT, timeout: float | None = None
    ) -> MemberScope:
        """Is there for the length of an ``async with`` block, and keeps being there by itself.

        If the server cannot be reached for longer than the lease, the others take this agent for gone until it can be
        reached again; the block goes on all the same.

        Args:
            data: what the others should know of this agent, a JSON value of at most 4 KiB.
            lease: how long it is there without a renewal, in seconds or as a span: 1 s to 1 h.
            timeout: the deadline of joining with its retries, in seconds.

        Returns:
            A context manager that gives a :class:`Membership`.
        """
        return MemberScope(Membership(self._link, self.name, checked_lease(lease), data), timeout)

    async def members(self, *, timeout: float | None = None) -> tuple[Member, ...]:
        """Returns who is there, by name.

        Args:
            timeout: the deadline of each page with its retries, in seconds.
        """
        request = pb.ListMembersRequest(group=self.name, page_size=PAGE_SIZE)
        listed = pages(self._link.transport, self._link.stub.ListMembers, request, _members_of, to_member, timeout)
        return tuple([member async for member in listed])

    def watch(self, *, patience: float = PATIENCE) -> GroupWatch:
        """Watches who comes and goes, in an ``async with`` block.

        ::

            async with client.group("crawlers").watch() as changes:
                async for change in changes:
                    spread_work(change.members)

        Args:
            patience: how long to try to go on after a lost connection, in seconds.

        Returns:
            A context manager that gives a :class:`GroupWatch`.
        """
        return GroupWatch(self._link, self.name, patience)

    def __repr__(self) -> str:
        return f"Group({self.name!r})"


def _members_of(reply: pb.ListMembersResponse) -> Any:
    return reply.members
