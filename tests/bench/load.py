"""The load generator's process: everything that calls a server over gRPC, on command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from noosphere.client._channel import CHANNEL_OPTIONS
from noosphere.v1 import admin_service_pb2, types_pb2
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

from .bulk import Scanner, check_records, first_get, populate
from .commands import WrongAnswer, main, obey
from .guarding import channel_to
from .replies import Replies
from .stats import percentile
from .through_client import ClientCaller, ClientTarget
from .workloads import CALL_TIMEOUT, KEYS_PER_CALLER, NAMESPACE, Caller, Sample, run_together

if TYPE_CHECKING:
    # Exists for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

START_SECONDS_MAX = 60.0

Metadata = tuple[tuple[str, str], ...] | None


def _bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),) if token else None


@dataclass
class Target:
    """A server under load.

    Attributes:
        channel: with the options of our client.
        callers: at the level of the stub.
        client: the same through our client, once it was asked for.
        admin: the credential of an administrator, where the server asks for one.
    """

    channel: grpc.aio.Channel
    address: str
    callers: list[Caller]
    canned: Replies | None
    client: ClientTarget | None = None
    admin: Metadata = None
    scanner: Scanner | None = None

    @property
    def stub(self) -> MemoryServiceAsyncStub:
        """The stub of the channel."""
        return self.callers[0].stub


class Load:
    """The commands. A target is called by the name under which it was attached."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}

    async def attach(
        self,
        target: str,
        address: str,
        callers: int,
        canned: dict[str, str] | None = None,
        first: int = 0,
        token: str = "",
        admin_token: str = "",
        tls: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Connects, opens one agent per caller, and writes every caller's keys once; callers count from ``first``.

        Callers present ``token``, and what only administrators may ask is asked with ``admin_token``; ``tls`` has the
        files of mTLS.
        """
        metadata = _bearer(token)
        channel = channel_to(address, tls, CHANNEL_OPTIONS)
        stub = MemoryServiceStub(channel)
        replies = None if canned is None else Replies.of_json(canned)
        repeated = None if replies is None else (replies.get.record.key, replies.get.record.values[0].value.data)
        made = []
        for number in range(first, first + callers):
            opened = await stub.OpenAgent(
                pb.OpenAgentRequest(agent_id=f"bench/{target}/{number:03d}", takeover=True),
                timeout=START_SECONDS_MAX,
                metadata=metadata,
            )
            made.append(Caller(stub, opened.actor, number, repeated, metadata))
        if canned is None:
            for caller in made:
                await caller.learn()
        await run_together([lambda own, caller=caller: caller.put(KEYS_PER_CALLER, own) for caller in made])  # type: ignore[misc] # bound per step
        self._targets[target] = Target(channel, address, made, replies, admin=_bearer(admin_token))
        return {}

    async def record(self, target: str) -> dict[str, Any]:
        """Returns one reply of each method, for the floor to repeat."""
        attached = self._targets[target]
        caller, stub = attached.callers[0], attached.stub
        metadata = caller.metadata
        opened = await stub.OpenAgent(
            pb.OpenAgentRequest(agent_id="bench/recorded"), timeout=CALL_TIMEOUT, metadata=metadata
        )
        call = types_pb2.CallContext(actor=caller.actor)
        key = types_pb2.Value(data=caller.sent[0], encoding=types_pb2.ENCODING_JSON)
        put = await stub.Put(
            pb.PutRequest(
                namespace=NAMESPACE,
                put=pb.PutOperation(
                    key=caller.keys[0],
                    value=key,
                    precondition=types_pb2.Precondition(expected_version=caller.versions[0]),
                ),
                call=call,
            ),
            timeout=CALL_TIMEOUT,
            metadata=metadata,
        )
        caller.versions[0] = put.applied.version
        get = await stub.Get(
            pb.GetRequest(namespace=NAMESPACE, key=caller.keys[0], call=call), timeout=CALL_TIMEOUT, metadata=metadata
        )
        return {"replies": Replies(get, put, opened).as_json()}

    async def run(self, target: str, work: str, calls: int, callers: int) -> dict[str, Any]:
        """Runs callers concurrently, ``calls`` calls each; ``work`` is get, put, client_get or client_put."""
        attached = self._targets[target]
        chosen: list[Caller] | list[ClientCaller] = attached.callers
        if work.startswith("client_"):
            if attached.client is None:
                attached.client = await ClientTarget.open(attached.address, len(attached.callers), attached.canned)
            chosen = attached.client.callers
        name = work.removeprefix("client_")
        sample = await run_together(
            [lambda own, caller=caller: getattr(caller, name)(calls, own) for caller in chosen[:callers]]  # type: ignore[misc] # bound per step
        )
        if sample.calls != calls * callers:
            raise WrongAnswer(f"{sample.calls} calls were answered instead of {calls * callers}")
        return _figures(sample)

    async def verify(self, target: str) -> dict[str, Any]:
        """Reads back what every caller wrote last."""
        attached = self._targets[target]
        for caller in attached.callers:
            reply = await attached.stub.BatchGet(
                pb.BatchGetRequest(namespace=NAMESPACE, keys=caller.keys),
                timeout=CALL_TIMEOUT,
                metadata=caller.metadata,
            )
            for record, sent in zip(reply.records, caller.sent, strict=True):
                if record.values[0].value.data != sent:
                    raise WrongAnswer(f"{record.key!r} holds another value than was acknowledged last")
        if attached.client is not None:
            await attached.client.verify()
        return {}

    async def stats(self, target: str) -> dict[str, Any]:
        """Returns the server's own counters and what it means by synced."""
        attached = self._targets[target]
        admin = AdminServiceStub(attached.channel)
        found = await admin.GetStats(admin_service_pb2.GetStatsRequest(), timeout=CALL_TIMEOUT, metadata=attached.admin)
        info = await attached.stub.GetServerInfo(
            pb.GetServerInfoRequest(), timeout=CALL_TIMEOUT, metadata=attached.admin
        )
        return {
            "syncs": found.sync_count,
            "commits": found.commit_count,
            "records": found.record_count,
            "journal_bytes": found.journal_bytes,
            "durability": info.durability,
            "engine": info.engine,
        }

    async def populate(self, target: str, records: int) -> dict[str, Any]:
        """Writes the many records, by transactions."""
        attached = self._targets[target]
        start = time.perf_counter()
        await populate(attached.stub, attached.callers, records)
        return {"seconds": time.perf_counter() - start}

    async def first_get(self, address: str, record: int) -> dict[str, Any]:
        """Returns the monotonic time at which a Get of one of the many records is answered."""
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            return {"monotonic_s": await first_get(MemoryServiceStub(channel), record, START_SECONDS_MAX)}

    async def check_records(self, address: str, records: int) -> dict[str, Any]:
        """Reads all of the many records and compares them with what was written."""
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            await check_records(MemoryServiceStub(channel), records)
        return {}

    async def scan_start(self, target: str, records: int) -> dict[str, Any]:
        """Lists the many records again and again from now on; returns after the first page."""
        attached = self._targets[target]
        attached.scanner = Scanner(attached.stub, records)
        await attached.scanner.start()
        return {}

    async def scan_stop(self, target: str) -> dict[str, Any]:
        """Stops listing; returns how much was listed."""
        scanner = self._targets[target].scanner
        assert scanner is not None
        return await scanner.stop()

    async def detach(self, target: str) -> dict[str, Any]:
        """Disconnects."""
        attached = self._targets.pop(target)
        if attached.client is not None:
            await attached.client.close()
        await attached.channel.close()
        return {}


def _figures(sample: Sample) -> dict[str, Any]:
    return {
        "calls": sample.calls,
        "seconds": sample.seconds,
        "generator_cpu_s": sample.generator_cpu_s,
        "p50_ms": percentile(sample.latencies_ns, 0.5) / 1e6,
        "p99_ms": percentile(sample.latencies_ns, 0.99) / 1e6,
    }


async def run() -> None:
    load = Load()
    await obey(
        {
            name: getattr(load, name)
            for name in (
                "attach",
                "record",
                "run",
                "verify",
                "stats",
                "populate",
                "first_get",
                "check_records",
                "scan_start",
                "scan_stop",
                "detach",
            )
        }
    )


if __name__ == "__main__":
    main(run)
