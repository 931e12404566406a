"""The load: callers that wait for each reply, check it, and go on.

The same loop calls our server and the floor. It does the same work for both, so what the generator
itself costs is in both samples of a pair. Against our server a wrong value, a head that goes back or a
revision that does not rise ends the run; the floor can only repeat itself and is checked for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

from .commands import WrongAnswer
from .plan import VALUE_BYTES

if TYPE_CHECKING:
    from noosphere.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

NAMESPACE = "shared/bench"
KEYS_PER_CALLER = 16
CALL_TIMEOUT = 30.0
"""Deadline of a call in seconds, as our client sets one; generous, because a slow machine is no error."""


def value_of(number: int) -> bytes:
    """Returns a JSON object of :data:`~tests.bench.plan.VALUE_BYTES` bytes; numbers below 10^12 give different ones."""
    head = b'{"n":"%012d","text":"' % number
    return head + b"x" * (VALUE_BYTES - len(head) - 2) + b'"}'


def key_of(caller: int, slot: int) -> str:
    """Returns the name of one of a caller's own keys."""
    return f"hot/{caller:03d}/{slot:03d}"


@dataclass
class Caller:
    """One caller at the level of the generated stub, with keys of its own.

    Attributes:
        stub: where to call.
        actor: who calls.
        number: which of the callers it is.
        canned: the key and value that the floor repeats; None against our server.
        metadata: what goes with each call, such as a credential.
        versions: of each key, as last acknowledged.
        sent: of each key, the last value written.
        head: the newest head seen; no later reply may show a lower one.
        at_least: the lowest revision that the next Put may get.
    """

    stub: MemoryServiceAsyncStub
    actor: types_pb2.Actor
    number: int
    canned: tuple[str, bytes] | None = None
    metadata: tuple[tuple[str, str], ...] | None = None
    versions: list[int] = field(default_factory=lambda: [0] * KEYS_PER_CALLER)
    sent: list[bytes] = field(default_factory=lambda: [b""] * KEYS_PER_CALLER)
    head: int = 0
    at_least: int = 1
    sequence: int = 0

    def __post_init__(self) -> None:
        self.keys = [key_of(self.number, slot) for slot in range(KEYS_PER_CALLER)]
        self._want_keys = self.keys if self.canned is None else [self.canned[0]] * KEYS_PER_CALLER
        self._want = self.sent if self.canned is None else [self.canned[1]] * KEYS_PER_CALLER
        self._step = 1 if self.canned is None else 0

    async def learn(self) -> None:
        """Reads the versions that its keys have, in a folder where an earlier caller wrote them."""
        reply = await self.stub.BatchGet(
            pb.BatchGetRequest(namespace=NAMESPACE, keys=self.keys), timeout=CALL_TIMEOUT, metadata=self.metadata
        )
        self.versions[:] = [record.version for record in reply.records]

    async def get(self, calls: int, latencies_ns: list[int]) -> None:
        """Reads its keys in turn."""
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            start = time.perf_counter_ns()
            reply = await self.stub.Get(
                pb.GetRequest(namespace=NAMESPACE, key=self.keys[slot], call=types_pb2.CallContext(actor=self.actor)),
                timeout=CALL_TIMEOUT,
                metadata=self.metadata,
            )
            latencies_ns.append(time.perf_counter_ns() - start)
            record = reply.record
            if record.key != self._want_keys[slot] or record.values[0].value.data != self._want[slot]:
                raise WrongAnswer(f"Get of {self.keys[slot]!r} returned another value than was written")
            if reply.head < self.head:
                raise WrongAnswer(f"the head went back from {self.head} to {reply.head}")
            self.head = reply.head

    async def put(self, calls: int, latencies_ns: list[int]) -> None:
        """Replaces its keys in turn, each on condition of the version it knows, under a request id as our client's."""
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            self.sequence += 1
            value = value_of(self.number * 10_000_000 + self.sequence)
            start = time.perf_counter_ns()
            reply = await self.stub.Put(
                pb.PutRequest(
                    namespace=NAMESPACE,
                    put=pb.PutOperation(
                        key=self.keys[slot],
                        value=types_pb2.Value(data=value, encoding=types_pb2.ENCODING_JSON),
                        precondition=types_pb2.Precondition(expected_version=self.versions[slot]),
                    ),
                    return_current=True,
                    call=types_pb2.CallContext(
                        actor=self.actor,
                        request_id=types_pb2.RequestId(
                            sequence=types_pb2.ClientSequence(
                                sequence=self.sequence, answered_through=self.sequence - 1
                            )
                        ),
                    ),
                ),
                timeout=CALL_TIMEOUT,
                metadata=self.metadata,
            )
            latencies_ns.append(time.perf_counter_ns() - start)
            applied = reply.applied
            if applied.revision < self.at_least or applied.version != applied.revision:
                raise WrongAnswer(f"Put of {self.keys[slot]!r} was not applied above {self.at_least}: {reply}")
            if reply.head < self.head or reply.head < applied.revision:
                raise WrongAnswer(f"the head {reply.head} is below {self.head} or below the write's own revision")
            self.head = reply.head
            self.at_least = applied.revision + self._step
            self.versions[slot] = applied.version
            self.sent[slot] = value


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of all callers took.

    Attributes:
        calls: how many calls were made, all of them successful and correct.
        seconds: from before the first to after the last.
        generator_cpu_s: CPU time of the generator's process.
        latencies_ns: of each call.
    """

    calls: int
    seconds: float
    generator_cpu_s: float
    latencies_ns: Sequence[int]


async def run_together(callers: Sequence[Callable[[list[int]], Awaitable[None]]]) -> Sample:
    """Runs callers concurrently; each appends its calls' latencies to the list it is given."""
    latencies: list[list[int]] = [[] for _ in callers]
    cpu, start = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for caller, own in zip(callers, latencies, strict=True):
            group.create_task(_await(caller(own)))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    merged = [latency for own in latencies for latency in own]
    return Sample(len(merged), seconds, cpu, merged)


async def _await(made: Awaitable[None]) -> None:
    await made
