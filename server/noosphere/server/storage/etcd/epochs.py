"""Epochs on etcd: each above all before it, whoever begins it."""

from __future__ import annotations

import msgspec

from noosphere.consistency import Reason, Refusal

from ...ports.coordinator import EpochRecord
from ...ports.runtime import Clock
from ..leasing import outrun
from . import wire_pb2 as wire
from .client import EtcdClient
from .keys import Layout, end_of, none_after, put

TRIES_MAX = 16
"""How often another process may be faster."""


class _Stored(msgspec.Struct):
    started_ms: int
    cause: str
    recovered: str


class Epochs:
    """Reads and begins epochs. Nothing is kept here: whoever asks is about to depend on the answer."""

    def __init__(self, client: EtcdClient, layout: Layout, clock: Clock) -> None:
        self._client = client
        self._layout = layout
        self._clock = clock

    async def all(self) -> tuple[EpochRecord, ...]:
        """Returns every epoch, oldest first.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        _, kvs = await self._client.read_all(self._layout.epochs)
        return tuple(self._record(kv) for kv in kvs)

    async def begin(self, cause: str, recovered: str, at_least: int, expected: int | None) -> int:
        """Begins an epoch above every earlier one and not below ``at_least``; returns it.

        Raises:
            Refusal: CONTENTION, also if the newest is not ``expected``; ENGINE_UNAVAILABLE.
        """
        prefix = self._layout.epochs
        end = end_of(prefix)
        last = wire.RangeRequest(key=prefix, range_end=end, limit=1, sort_order=wire.RangeRequest.DESCEND)
        for _ in range(TRIES_MAX):
            found = await self._client.range(last)
            newest = self._layout.epoch_of(found.kvs[0].key) if found.kvs else 0
            if expected is not None and newest != expected:
                raise outrun(newest, expected)
            epoch = max(at_least, newest + 1)
            stored = msgspec.json.encode(_Stored(self._clock.wall_ms(), cause, recovered))
            written = await self._client.write(
                [none_after(prefix, end, found.header.revision)], [put(self._layout.epoch(epoch), stored)]
            )
            if written.succeeded:
                return epoch
        raise Refusal(Reason.CONTENTION, "epochs are being begun by others; try again")

    def _record(self, kv: wire.KeyValue) -> EpochRecord:
        stored = msgspec.json.decode(kv.value, type=_Stored)
        return EpochRecord(self._layout.epoch_of(kv.key), stored.started_ms, stored.cause, stored.recovered)
