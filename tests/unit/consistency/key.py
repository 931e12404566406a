"""One key of a namespace, changed by the rules alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from noosphere.consistency import (
    CausalContext,
    Circumstances,
    ConflictPolicy,
    Decision,
    Encoding,
    Precondition,
    Put,
    Record,
    Scalar,
    decide_delete,
    decide_expiry,
    decide_merge,
    decide_put,
    decide_reap,
    make_revision,
    seen_by_reader,
)
from noosphere.consistency.merge import MergeOp


class Ack(NamedTuple):
    """What the writer is told, and the decision behind it."""

    version: int | None
    context: CausalContext
    revision: int
    decision: Decision


@dataclass
class Key:
    """One key of a namespace, changed by the rules alone."""

    policy: ConflictPolicy = ConflictPolicy.REJECT
    private: bool = False
    record: Record | None = None
    head: int = make_revision(9_000, 0)
    floor: int = 0
    now_ms: int = 1_000
    item_bytes_max: int = 1_024

    def at(self, actor: str = "a#1") -> Circumstances:
        return Circumstances(self.now_ms, actor, self.policy, self.private, self.floor, self.item_bytes_max)

    def apply(self, decision: Decision | None) -> Ack:
        assert decision is not None
        if not decision.noop:
            self.head += 1
            self.record = decision.record.at(self.head) if decision.record is not None else None
            self.floor = max(self.floor, decision.raise_floor_context)
        return Ack(*decision.ack(self.head), self.head, decision)

    def put(
        self,
        data: bytes,
        when: Precondition | None = None,
        actor: str = "a#1",
        ttl_ms: int | None = None,
        attributes: tuple[tuple[str, Scalar], ...] = (),
    ) -> Ack:
        put = Put(data, Encoding.JSON, attributes, ttl_ms, precondition=when or Precondition())
        return self.apply(decide_put(self.record, "k", put, self.at(actor)))

    def delete(self, when: Precondition | None = None, actor: str = "a#1") -> Ack:
        return self.apply(decide_delete(self.record, "k", when or Precondition(), self.at(actor)))

    def merge(self, op: MergeOp, actor: str = "a#1") -> Ack:
        return self.apply(decide_merge(self.record, "k", op, self.at(actor)))

    def sweep(self) -> Ack:
        assert self.record is not None
        return self.apply(decide_expiry(self.record, self.now_ms))

    def reap(self) -> Ack:
        assert self.record is not None
        self.now_ms += 3_600_000
        return self.apply(decide_reap(self.record, self.now_ms, 3_600_000))

    @property
    def values(self) -> list[bytes | None]:
        return [] if self.record is None else [s.data for s in self.record.live(self.now_ms)]

    @property
    def version(self) -> int:
        return self.record.version(self.now_ms) if self.record is not None else 0

    @property
    def read(self) -> CausalContext:
        return seen_by_reader(self.record, self.now_ms, self.head)

    @property
    def stored(self) -> Record:
        assert self.record is not None
        return self.record
