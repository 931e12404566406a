"""What a simulated etcd holds: keys by revision, leases, and what has changed, as its members agree on it.

It is one state machine: consensus is taken for granted, as the real one takes care of it. What is simulated of its
failing is what callers see of that (:mod:`.etcd_member`): no leader, no answer, an answer that got lost.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import Iterable, Sequence

import grpc

from noosphere.server.storage.etcd import wire_pb2 as wire

TTL_SECONDS_MIN = 2
"""What etcd makes of less, with its default election timeout."""

EXPIRY_SECONDS = 0.5
"""How often it looks for leases whose time is over."""


class Refused(Exception):
    """How a call has failed; nothing was changed."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"etcdserver: {details}")
        self.code = code


class _Lease:
    """Keys that go together, unless somebody renews it."""

    __slots__ = ("ends", "keys", "ttl")

    def __init__(self, ttl: int, ends: float) -> None:
        self.ttl = ttl
        self.ends = ends
        self.keys: set[bytes] = set()


class EtcdState:
    """See the module.

    Args:
        loop: in whose time leases lapse.
        chance: makes ids of leases.

    Attributes:
        revision: of the newest change.
        compacted: what was before it is forgotten.
        full: whether the database has reached its quota, so that it grows no more.
        changed: done, and replaced, with each change.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._kvs: dict[bytes, wire.KeyValue] = {}
        self._versions: dict[bytes, int] = {}
        self._order: list[bytes] = []
        self._log: list[wire.Event] = []
        self._times: dict[int, float] = {}
        self._leases: dict[int, _Lease] = {}
        self._looking: asyncio.TimerHandle | None = None
        self.revision = 1
        self.compacted = 0
        self.full = False
        self.changed: asyncio.Future[None] = loop.create_future()

    # Reading

    def header(self) -> wire.ResponseHeader:
        return wire.ResponseHeader(revision=self.revision)

    def range(self, request: wire.RangeRequest) -> wire.RangeResponse:
        """Reads keys.

        Raises:
            Refused: at a revision that is forgotten, or is to come.
        """
        if request.revision and request.revision > self.revision:
            raise Refused(grpc.StatusCode.OUT_OF_RANGE, "mvcc: required revision is a future revision")
        if request.revision and request.revision < self.compacted:
            raise Refused(grpc.StatusCode.OUT_OF_RANGE, "mvcc: required revision has been compacted")
        if request.revision in (0, self.revision):
            found = [self._kvs[key] for key in self._between(request.key, request.range_end)]
        else:
            past = self._past(request.revision)
            found = [past[key] for key in sorted(past) if _is_in(key, request.key, request.range_end)]
        count = len(found)
        if request.count_only:
            return wire.RangeResponse(header=self.header(), count=count)
        if request.max_create_revision:
            found = [kv for kv in found if kv.create_revision <= request.max_create_revision]
        descending = request.sort_order == wire.RangeRequest.DESCEND
        match request.sort_target:
            case wire.RangeRequest.KEY:
                found = found[::-1] if descending else found
            case wire.RangeRequest.CREATE:
                found.sort(key=lambda kv: kv.create_revision, reverse=descending)
            case wire.RangeRequest.MOD:
                found.sort(key=lambda kv: kv.mod_revision, reverse=descending)
            case _:
                raise Refused(grpc.StatusCode.UNIMPLEMENTED, "the simulated etcd does not sort by that")
        shown = found[: request.limit] if request.limit else found
        return wire.RangeResponse(header=self.header(), kvs=shown, more=len(shown) < len(found), count=count)

    def _between(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self._kvs else []
        first = bisect.bisect_left(self._order, key)
        return self._order[first:] if end == b"\0" else self._order[first : bisect.bisect_left(self._order, end)]

    def _past(self, revision: int) -> dict[bytes, wire.KeyValue]:
        found: dict[bytes, wire.KeyValue] = {}
        for event in self._log:
            if event.kv.mod_revision > revision:
                break
            if event.type == wire.Event.PUT:
                found[event.kv.key] = event.kv
            else:
                found.pop(event.kv.key, None)
        return found

    def events(self, key: bytes, end: bytes, after: int) -> list[wire.Event]:
        """Returns what has changed of a range after a revision, which is not before what is forgotten."""
        first = bisect.bisect_right(self._log, after, key=lambda event: event.kv.mod_revision)
        return [event for event in self._log[first:] if _is_in(event.kv.key, key, end)]

    def at(self, revision: int) -> float:
        """Returns when there was a change, in the event loop's time."""
        return self._times[revision]

    def leases(self) -> list[int]:
        return list(self._leases)

    # Changing

    def transact(self, request: wire.TxnRequest) -> wire.TxnResponse:
        """Carries out one step.

        Raises:
            Refused: as a whole.
        """
        succeeded = all(map(self._holds, request.compare))
        operations = request.success if succeeded else request.failure
        self._check([*request.success, *request.failure], operations)
        changes = _Changes(self)
        responses = [changes.carry_out(operation) for operation in operations]
        changes.end()
        for response in responses:
            # All of them are answered at the revision of the step.
            getattr(response, response.WhichOneof("response") or "").header.revision = self.revision
        return wire.TxnResponse(header=self.header(), succeeded=succeeded, responses=responses)

    def _check(self, written: Iterable[wire.RequestOp], operations: Iterable[wire.RequestOp]) -> None:
        """Checks a step before anything of it is done.

        Raises:
            Refused: it cannot be done.
        """
        for operation in written:
            if operation.WhichOneof("request") == "request_put" and not operation.request_put.key:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "key is not provided")
        puts = [operation.request_put for operation in operations if operation.WhichOneof("request") == "request_put"]
        if len({put.key for put in puts}) < len(puts):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "duplicate key given in txn request")
        for put in puts:
            if self.full:
                raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "mvcc: database space exceeded")
            if put.lease and put.lease not in self._leases:
                raise Refused(grpc.StatusCode.NOT_FOUND, "requested lease not found")

    def _holds(self, compare: wire.Compare) -> bool:
        kvs = [self._kvs[key] for key in self._between(compare.key, compare.range_end)]
        if not kvs and compare.target == wire.Compare.VALUE:
            return False
        return all(self._holds_of(compare, kv) for kv in kvs or (wire.KeyValue(key=compare.key),))

    def _holds_of(self, compare: wire.Compare, kv: wire.KeyValue) -> bool:
        actual: bytes | int
        wanted: bytes | int
        match compare.target:
            case wire.Compare.VERSION:
                actual, wanted = self._versions.get(kv.key, 0), compare.version
            case wire.Compare.CREATE:
                actual, wanted = kv.create_revision, compare.create_revision
            case wire.Compare.MOD:
                actual, wanted = kv.mod_revision, compare.mod_revision
            case wire.Compare.VALUE:
                actual, wanted = kv.value, compare.value
            case _:
                actual, wanted = kv.lease, compare.lease
        match compare.result:
            case wire.Compare.EQUAL:
                return actual == wanted
            case wire.Compare.GREATER:
                return actual > wanted  # type: ignore[operator] # Both are of the same type.
            case wire.Compare.LESS:
                return actual < wanted  # type: ignore[operator] # As above.
            case _:
                return actual != wanted

    def store(self, kv: wire.KeyValue) -> None:
        """Takes a key over into what is stored, for a step."""
        before = self._kvs.get(kv.key)
        if before is None:
            bisect.insort(self._order, kv.key)
        elif before.lease and before.lease in self._leases:
            self._leases[before.lease].keys.discard(kv.key)
        if kv.lease:
            self._leases[kv.lease].keys.add(kv.key)
        self._versions[kv.key] = self._versions.get(kv.key, 0) + 1
        self._kvs[kv.key] = kv

    def discard(self, key: bytes) -> None:
        """Takes a key out of what is stored, for a step."""
        kv = self._kvs.pop(key)
        del self._versions[key]
        del self._order[bisect.bisect_left(self._order, key)]
        if kv.lease in self._leases:
            self._leases[kv.lease].keys.discard(key)

    def find(self, key: bytes, end: bytes = b"") -> Sequence[bytes]:
        return self._between(key, end)

    def get(self, key: bytes) -> wire.KeyValue | None:
        return self._kvs.get(key)

    def commit(self, events: Sequence[wire.Event]) -> None:
        """Ends a step that has changed something."""
        self.revision += 1
        self._times[self.revision] = self._loop.time()
        self._log += events
        changed, self.changed = self.changed, self._loop.create_future()
        changed.set_result(None)

    def compact(self, revision: int) -> None:
        """Forgets what was before a revision.

        Raises:
            Refused: it is forgotten already, or is to come.
        """
        if revision <= self.compacted:
            raise Refused(grpc.StatusCode.OUT_OF_RANGE, "mvcc: required revision has been compacted")
        if revision > self.revision:
            raise Refused(grpc.StatusCode.OUT_OF_RANGE, "mvcc: required revision is a future revision")
        self.compacted = revision

    # Leases

    def grant(self, ttl: int) -> tuple[int, int]:
        """Begins a lease; returns its id and how many seconds it lasts."""
        ttl = max(ttl, TTL_SECONDS_MIN)
        lease = self._chance.getrandbits(62) + 1
        self._leases[lease] = _Lease(ttl, self._loop.time() + ttl)
        self._look_on()
        return lease, ttl

    def renew(self, lease: int) -> int:
        """Renews a lease; returns how many seconds it lasts, 0 if it is not there."""
        found = self._leases.get(lease)
        if found is None:
            return 0
        found.ends = self._loop.time() + found.ttl
        return found.ttl

    def revoke(self, lease: int) -> None:
        """Ends a lease, and with it its keys.

        Raises:
            Refused: it is not there.
        """
        found = self._leases.pop(lease, None)
        if found is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, "requested lease not found")
        changes = _Changes(self)
        for key in sorted(found.keys):
            changes.delete(key)
        changes.end()

    def elect(self) -> None:
        """Has another member lead: whoever does begins with every lease anew."""
        for lease in self._leases.values():
            lease.ends = self._loop.time() + lease.ttl

    def _look_on(self) -> None:
        if self._looking is None and self._leases:
            self._looking = self._loop.call_later(EXPIRY_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        now = self._loop.time()
        for lease in [lease for lease, found in self._leases.items() if found.ends <= now]:
            self.revoke(lease)
        self._look_on()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()


class _Changes:
    """One step: everything that it changes is of one revision, and it sees what it has changed itself."""

    def __init__(self, state: EtcdState) -> None:
        self._state = state
        self._revision = state.revision + 1
        self._events: list[wire.Event] = []

    def carry_out(self, operation: wire.RequestOp) -> wire.ResponseOp:
        match operation.WhichOneof("request"):
            case "request_range":
                return wire.ResponseOp(response_range=self._state.range(operation.request_range))
            case "request_put":
                self.put(operation.request_put)
                return wire.ResponseOp(response_put=wire.PutResponse(header=self._state.header()))
            case _:
                request = operation.request_delete_range
                found = list(self._state.find(request.key, request.range_end))
                for key in found:
                    self.delete(key)
                deleted = wire.DeleteRangeResponse(header=self._state.header(), deleted=len(found))
                return wire.ResponseOp(response_delete_range=deleted)

    def put(self, request: wire.PutRequest) -> None:
        before = self._state.get(request.key)
        created = before.create_revision if before is not None else self._revision
        kv = wire.KeyValue(
            key=request.key,
            value=request.value,
            lease=request.lease,
            create_revision=created,
            mod_revision=self._revision,
        )
        self._state.store(kv)
        self._events.append(wire.Event(type=wire.Event.PUT, kv=kv))

    def delete(self, key: bytes) -> None:
        self._state.discard(key)
        gone = wire.KeyValue(key=key, mod_revision=self._revision)
        self._events.append(wire.Event(type=wire.Event.DELETE, kv=gone))

    def end(self) -> None:
        if self._events:
            self._state.commit(self._events)


def _is_in(key: bytes, first: bytes, end: bytes) -> bool:
    if not end:
        return key == first
    return key >= first and (end == b"\0" or key < end)
