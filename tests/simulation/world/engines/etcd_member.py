"""A member of a simulated etcd: what it answers, over real gRPC or over a simulated network, and how it fails."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from noosphere.server.storage.etcd import wire_pb2 as wire

from .etcd_state import EtcdState, Refused

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE

Context = Any
"""gRPC's own, or what stands for it."""


class EtcdMember(grpc.GenericRpcHandler):
    """See the module.

    Args:
        state: what all members share.
        loop: in whose time it lives.
        chance: decides which answers get lost.

    Attributes:
        led: whether it knows of a leader; without one it executes nothing.
        paused: whether it stands still.
        loses: how probable it is that the answer to a change gets lost once that is made.
        slow_seconds: how long it takes over an answer, at most.
    """

    def __init__(self, state: EtcdState, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self.state = state
        self._loop = loop
        self._chance = chance
        self._turn: asyncio.Future[None] = loop.create_future()
        self.led = True
        self.paused = False
        self.loses = 0.0
        self.slow_seconds = 0.0
        self._unary: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], Any], bool]] = {
            "KV/Range": (wire.RangeRequest.FromString, state.range, False),
            "KV/Txn": (wire.TxnRequest.FromString, state.transact, True),
            "KV/Put": (wire.PutRequest.FromString, self._put, True),
            "KV/Compact": (_compaction, self._compact, True),
            "Lease/LeaseGrant": (wire.LeaseGrantRequest.FromString, self._grant, True),
            "Lease/LeaseRevoke": (wire.LeaseRevokeRequest.FromString, self._revoke, True),
            "Lease/LeaseLeases": (wire.LeaseLeasesRequest.FromString, self._leases, False),
            "Maintenance/Alarm": (wire.AlarmRequest.FromString, self._alarms, False),
            "Maintenance/Status": (bytes, lambda _: wire.RangeResponse(header=state.header()), False),
        }

    def lose_leader(self) -> None:
        """Has it know of no leader from now on; it ends what it answered under one."""
        self.led = False
        self._told()

    def find_leader(self) -> None:
        self.led = True
        self._told()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._told()

    def _told(self) -> None:
        turn, self._turn = self._turn, self._loop.create_future()
        turn.set_result(None)

    def service(self, handler_call_details: Any) -> Any:
        """Returns what answers a call of a method."""
        method = handler_call_details.method.removeprefix("/etcdserverpb.")
        if method == "Watch/Watch":
            return grpc.stream_stream_rpc_method_handler(
                self._watch, wire.WatchRequest.FromString, wire.WatchResponse.SerializeToString
            )
        if method == "Lease/LeaseKeepAlive":
            return grpc.stream_stream_rpc_method_handler(
                self._keep_alive, wire.LeaseKeepAliveRequest.FromString, wire.LeaseKeepAliveResponse.SerializeToString
            )
        if method not in self._unary:
            return None
        read, execute, changes = self._unary[method]

        async def answer(request: Any, context: Context) -> Any:
            await self._ready(context)
            try:
                reply = execute(request)
            except Refused as refused:
                await context.abort(refused.code, str(refused))
            if changes and self.loses and self._chance.random() < self.loses:
                await context.abort(UNAVAILABLE, "etcdserver: request timed out")
            return reply

        return grpc.unary_unary_rpc_method_handler(answer, read, lambda message: message.SerializeToString())

    async def _ready(self, context: Context) -> None:
        if self.slow_seconds:
            await asyncio.sleep(self._chance.random() * self.slow_seconds)
        while self.paused:
            await asyncio.wait((self._turn,))
        if not self.led:
            await context.abort(UNAVAILABLE, "etcdserver: no leader")

    async def _keep_alive(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async with _read(requests):
            async for request in requests:
                await self._ready(context)
                ttl = self.state.renew(request.id)
                yield wire.LeaseKeepAliveResponse(header=self.state.header(), id=request.id, ttl=ttl)

    async def _watch(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        state = self.state
        async with _read(requests):
            create = (await anext(aiter(requests))).create_request
        await self._ready(context)
        after = create.start_revision - 1 if create.start_revision else state.revision
        yield wire.WatchResponse(header=state.header(), created=True)
        while True:
            while self.paused:
                await asyncio.wait((self._turn,))
            if not self.led:
                await context.abort(UNAVAILABLE, "etcdserver: no leader")
            if after + 1 < state.compacted:
                yield wire.WatchResponse(header=state.header(), canceled=True, compact_revision=state.compacted)
                return
            if after < state.revision:
                events, after = state.events(create.key, create.range_end, after), state.revision
                if events:
                    yield wire.WatchResponse(header=state.header(), events=events)
                    continue
            await asyncio.wait((state.changed, self._turn), return_when=asyncio.FIRST_COMPLETED)

    def _put(self, request: wire.PutRequest) -> wire.PutResponse:
        self.state.transact(wire.TxnRequest(success=[wire.RequestOp(request_put=request)]))
        return wire.PutResponse(header=self.state.header())

    def _compact(self, revision: int) -> wire.PutResponse:
        self.state.compact(revision)
        return wire.PutResponse(header=self.state.header())

    def _grant(self, request: wire.LeaseGrantRequest) -> wire.LeaseGrantResponse:
        lease, ttl = self.state.grant(request.ttl)
        return wire.LeaseGrantResponse(header=self.state.header(), id=lease, ttl=ttl)

    def _revoke(self, request: wire.LeaseRevokeRequest) -> wire.LeaseRevokeResponse:
        self.state.revoke(request.id)
        return wire.LeaseRevokeResponse(header=self.state.header())

    def _leases(self, _: wire.LeaseLeasesRequest) -> wire.LeaseLeasesResponse:
        found = [wire.LeaseStatus(id=lease) for lease in self.state.leases()]
        return wire.LeaseLeasesResponse(header=self.state.header(), leases=found)

    def _alarms(self, request: wire.AlarmRequest) -> wire.AlarmResponse:
        if request.action:
            self.state.full = request.action == 1
        found = [wire.AlarmMember(member_id=1, alarm=wire.NOSPACE)] if self.state.full else []
        return wire.AlarmResponse(alarms=found)


@contextlib.asynccontextmanager
async def _read(requests: Any) -> AsyncIterator[None]:
    """Reads no more of requests than the block does. Those of real gRPC need no end."""
    try:
        yield
    finally:
        if (close := getattr(requests, "aclose", None)) is not None:
            await close()


def _compaction(message: bytes) -> int:
    """Reads the one number of a message that is not among ours."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(message[1:]))
