"""The many records: writing them, reading them all, scanning them beside other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

from .commands import WrongAnswer
from .workloads import CALL_TIMEOUT, NAMESPACE, Caller, value_of

if TYPE_CHECKING:
    from noosphere.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

COLLECTION = "rec/"
_PER_TRANSACTION = 64
_PAGE = 1_000
_RETRY_SECONDS = 0.005


def record_key(number: int) -> str:
    """Returns the key of one of the many records."""
    return f"{COLLECTION}{number:08d}"


async def populate(stub: MemoryServiceAsyncStub, callers: Sequence[Caller], records: int) -> None:
    """Creates records 0 to ``records - 1``, shared out among the callers."""
    starts = iter(range(0, records, _PER_TRANSACTION))

    async def work(caller: Caller) -> None:
        for start in starts:
            numbers = range(start, min(start + _PER_TRANSACTION, records))
            reply = await stub.Transact(
                pb.TransactRequest(
                    namespace=NAMESPACE,
                    operations=[
                        pb.Operation(
                            put=pb.PutOperation(
                                key=record_key(number),
                                value=types_pb2.Value(data=value_of(number), encoding=types_pb2.ENCODING_JSON),
                                precondition=types_pb2.Precondition(expected_version=0),
                            )
                        )
                        for number in numbers
                    ],
                    call=types_pb2.CallContext(actor=caller.actor),
                ),
                timeout=CALL_TIMEOUT,
            )
            if len(reply.applied.results) != len(numbers):
                raise WrongAnswer(f"a transaction of {len(numbers)} puts was not applied: {reply}")

    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(work(caller))


async def first_get(stub: MemoryServiceAsyncStub, number: int, seconds_max: float) -> float:
    """Returns the monotonic time of the first answer to a Get of a record.

    Raises:
        WrongAnswer: the record is not as it was written.
    """
    request = pb.GetRequest(namespace=NAMESPACE, key=record_key(number))
    end = time.monotonic() + seconds_max
    while True:
        try:
            reply = await stub.Get(request, timeout=max(end - time.monotonic(), 0.001))
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        answered = time.monotonic()
        if len(reply.record.values) != 1 or reply.record.values[0].value.data != value_of(number):
            raise WrongAnswer(f"{reply.record.key!r} is not as it was written")
        return answered


async def check_records(stub: MemoryServiceAsyncStub, records: int) -> None:
    """Reads every record.

    Raises:
        WrongAnswer: one is missing, wrong or too many.
    """
    expected, token = 0, ""
    while True:
        reply = await stub.List(
            pb.ListRequest(namespace=NAMESPACE, collection=COLLECTION, page_size=_PAGE, page_token=token),
            timeout=CALL_TIMEOUT,
        )
        for record in reply.records:
            if record.key != record_key(expected) or record.values[0].value.data != value_of(expected):
                raise WrongAnswer(f"{record.key!r} is there instead of {record_key(expected)!r}")
            expected += 1
        token = reply.next_page_token
        if not token:
            break
    if expected != records:
        raise WrongAnswer(f"{expected} records are there instead of {records}")


class Scanner:
    """Lists the many records from the first to the last, over and over, one page after the other."""

    def __init__(self, stub: MemoryServiceAsyncStub, records: int) -> None:
        self._stub = stub
        self._records = records
        self._begun = asyncio.Event()
        self._ending = False
        self._seen = 0
        self._passes = 0
        self._started = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins, and waits for the first page."""
        self._task = asyncio.create_task(self._run())
        waiting = asyncio.create_task(self._begun.wait())
        done, _ = await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if self._task in done:
            waiting.cancel()
            await self._task

    async def stop(self) -> dict[str, Any]:
        """Ends after the page under way."""
        self._ending = True
        assert self._task is not None
        await self._task
        seconds = time.perf_counter() - self._started
        return {"records": self._seen, "passes": self._passes, "seconds": seconds}

    async def _run(self) -> None:
        self._started = time.perf_counter()
        while not self._ending:
            await self._scan()

    async def _scan(self) -> None:
        count, token, last = 0, "", ""
        while not self._ending:
            reply = await self._stub.List(
                pb.ListRequest(namespace=NAMESPACE, collection=COLLECTION, page_size=_PAGE, page_token=token),
                timeout=CALL_TIMEOUT,
            )
            if not reply.records or reply.records[0].key <= last:
                raise WrongAnswer(f"a page after {last!r} does not go on from there")
            last = reply.records[-1].key
            count += len(reply.records)
            self._seen += len(reply.records)
            self._begun.set()
            token = reply.next_page_token
            if not token:
                if count != self._records:
                    raise WrongAnswer(f"a scan listed {count} records instead of {self._records}")
                self._passes += 1
                return
