"""The real rules behind the model's interface: the least store in which they can be run.

It holds records in a dictionary, assigns revisions and carries decisions out. Everything that decides is
the product's, reached through its modules so that a test can plant a bug there.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation import calls
from tests.simulation.calls import Call, Caller, Condition, Reply, Seen, Shown, Task, View

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    Circumstances,
    ConflictInfo,
    ConflictPolicy,
    Cut,
    Decision,
    DeleteAll,
    Encoding,
    KeepDot,
    LostInfo,
    MergeType,
    NamespacePolicy,
    NamespaceState,
    Precondition,
    Record,
    Refusal,
    Remembered,
    RequestMemory,
    RequestRef,
    Resolution,
    claims,
    decide,
    fingerprint,
    merge,
    order,
    record,
    revision,
)
from noosphere.consistency import Put as RealPut


class Snapshot(NamedTuple):
    """What survives as a whole or is lost as a whole."""

    head: int
    floor: int
    records: dict[str, Record]
    requests: list[tuple[RequestRef, Remembered]]
    fences: dict[str, int]


class Rules:
    """One namespace under the real rules; see :class:`tests.simulation.model.Model` for its interface."""

    def __init__(
        self, *, epoch: int, private: bool, policies: dict[str, str], item_bytes_max: int, retention_ms: int
    ) -> None:
        self.epoch = epoch
        self.now_ms = 1_000_000
        self.private = private
        self.policies = policies
        self.item_bytes_max = item_bytes_max
        self.retention_ms = retention_ms
        self.head = 0
        self.floor = 0
        self.cuts = [Cut(epoch, 0)]
        self.records: dict[str, Record] = {}
        self.fences: dict[str, int] = {}
        self.memory = RequestMemory()
        self._replies: list[Reply] = []

    @property
    def state(self) -> Snapshot:
        return Snapshot(self.head, self.floor, dict(self.records), self.memory.items(), dict(self.fences))

    def rollback(self, snapshot: Snapshot) -> None:
        self.head, self.floor = snapshot.head, snapshot.floor
        self.records, self.fences = dict(snapshot.records), dict(snapshot.fences)
        self.memory = RequestMemory()
        for ref, call in snapshot.requests:
            self.memory.remember(ref, call)
        self.epoch += 1
        self.cuts.append(Cut(self.epoch, self.head))

    def forget_client(self, actor: str) -> None:
        self.memory.forget_client(actor)

    def sweep(self, key: str) -> Reply | None:
        found = self.records.get(key)
        decision = decide.decide_expiry(found, self.now_ms) if found is not None else None
        return self._carry_out(key, decision) if decision is not None else None

    def reap(self, key: str) -> Reply | None:
        found = self.records.get(key)
        decision = decide.decide_reap(found, self.now_ms, self.retention_ms) if found is not None else None
        return self._carry_out(key, decision) if decision is not None else None

    def read(self, key: str) -> View:
        found = self.records.get(key)
        seen = of_context(record.seen_by_reader(found, self.now_ms, self.head))
        if found is None:
            return View(0, seen)
        live = found.live(self.now_ms)
        if not live:
            return View(found.version(self.now_ms), seen, changes=found.change_count)
        values = []
        for sibling in live:
            assert sibling.data is not None
            data = sibling.data
            if found.merge_type is not MergeType.NONE:
                data = merge.render(found.merge_type, data)
            ends_ms = None if sibling.expires_at_ms == NEVER_MS else sibling.expires_at_ms
            values.append(Shown(sibling.dot, sibling.actor, sibling.time_ms, data, ends_ms))
        return View(
            found.version(self.now_ms),
            seen,
            tuple(values),
            found.merge_type.name if found.merge_type is not MergeType.NONE else "",
            found.attributes,
            of_claim(found.claim),
            found.created_ms,
            found.change_count,
        )

    def do(self, caller: Caller, call: Call) -> Reply:
        ref = None
        if caller.request is not None:
            sequence, answered_through, uuid = caller.request
            ref = RequestRef(uuid=uuid) if uuid else RequestRef(caller.actor, sequence, answered_through)
        meaning = fingerprint(call)
        try:
            replay = self._admit(caller, call, ref, meaning)
            if replay is not None:
                return self._replies[int(replay.reply)]._replace(outcome="replayed")
            key, decision = self._decide(caller, call)
            if decision is None:
                return Reply("none")
            if decision.noop:
                version, context = decision.ack(self.head)
                return Reply("unchanged", version=version, seen=of_context(context), key=key)
            if ref is not None:
                self.memory.check_room(ref, self.now_ms)
        except Refusal as refusal:
            return of_refusal(refusal)
        reply = self._carry_out(key, decision)
        if ref is not None:
            self.memory.remember(ref, Remembered(reply.revision, meaning, b"%d" % len(self._replies), self.now_ms))
            self._replies.append(reply)
        for lock, token in caller.fences:
            self.fences[lock] = max(token, self.fences.get(lock, 0))
        return reply

    def _admit(self, caller: Caller, call: Call, ref: RequestRef | None, meaning: bytes) -> Remembered | None:
        state = NamespaceState("shared/model", False, self.head, tuple(self.cuts))
        stale = next((lock for lock, token in caller.fences if token < self.fences.get(lock, 0)), None)
        limits = []
        match call:
            case calls.Put(data=bytes(data)) | calls.Resolve(data=bytes(data)) | calls.Complete(result=bytes(data)):
                limits.append(lambda: decide.check_item_size(RealPut(data), self.item_bytes_max))
        return order.admit(
            state,
            permitted=caller.permitted,
            remembered=self.memory.find(ref, self.now_ms) if ref is not None else None,
            fingerprint=meaning,
            presented=calls.presented(call),
            incarnation_current=caller.current,
            stale_fence=stale,
            limits=limits,
        )

    def _decide(self, caller: Caller, call: Call) -> tuple[str, Decision | None]:
        actor, now_ms = caller.actor, self.now_ms
        if isinstance(call, calls.Claim):
            for key in sorted(self.records):
                found = self.records[key]
                if key.startswith(call.prefix) and claims.claimable(found, call.where, now_ms):
                    return key, claims.decide_claim(found, actor, now_ms, call.lease_ms)
            return "", None
        key, held = call.key, self.records.get(call.key)
        match call:
            case calls.Renew():
                return key, claims.decide_renew(held, key, call.fence, actor, now_ms, call.lease_ms)
            case calls.Release():
                return key, claims.decide_release(held, key, call.fence, actor, now_ms)
            case calls.Complete():
                result = call.result
                return key, claims.decide_complete(held, key, call.fence, actor, now_ms, result, Encoding.JSON)
        at = Circumstances(now_ms, actor, self._policy(key), self.private, self.floor, self.item_bytes_max)
        match call:
            case calls.Put():
                return key, decide.decide_put(held, key, real_put(call), at)
            case calls.Delete():
                return key, decide.decide_delete(held, key, precondition(call.when), at)
            case calls.Resolve():
                return key, decide.decide_resolve(held, key, resolution(call), CausalContext(*call.seen), at)
            case _:
                return key, decide.decide_merge(held, key, operation(call), at)

    def _policy(self, key: str) -> ConflictPolicy:
        default = ConflictPolicy[self.policies[""]]
        prefixes = tuple((c, ConflictPolicy[p]) for c, p in self.policies.items() if c)
        return NamespacePolicy(default, prefixes).for_key(key)

    def _carry_out(self, key: str, decision: Decision) -> Reply:
        self.head = revision.next_revision(self.head, self.epoch)
        self.floor = max(self.floor, decision.raise_floor_context)
        events = tuple((event.kind.name, event.actor) for event in decision.events)
        if decision.record is None:
            del self.records[key]
        else:
            self.records[key] = decision.record.at(self.head)
        if not events or events[-1][0] == "EXPIRE":
            return Reply("applied", revision=self.head, events=events, members=decision.members, key=key)
        version, context = decision.ack(self.head)
        assert decision.events[-1].overwritten == decision.overwritten
        return Reply(
            "applied",
            revision=self.head,
            version=version,
            seen=of_context(context),
            overwritten=tuple(dot.dot for dot in decision.overwritten),
            concurrent_delete=decision.concurrent_delete,
            merged=decision.merged,
            trimmed=decision.trimmed,
            events=events,
            members=decision.members,
            key=key,
        )


def of_context(context: CausalContext) -> Seen:
    return Seen(context.prefix, context.extras)


def of_claim(claim: record.Claim | None) -> Task | None:
    if claim is None:
        return None
    assert claim.done == bool(claim.completed_by)
    return Task(claim.holder, claim.expires_at_ms, claim.fence, claim.attempts, claim.completed_by, claim.result)


def of_refusal(refusal: Refusal) -> Reply:
    detail = refusal.detail
    unseen = tuple(dot.dot for dot in detail.unseen) if isinstance(detail, ConflictInfo) else ()
    lost = (detail.after, detail.through) if isinstance(detail, LostInfo) else None
    return Reply("refused", refusal.reason.value, unseen=unseen, lost=lost)


def precondition(when: Condition) -> Precondition:
    return Precondition(when.version, real_context(when.seen), when.blind)


def real_context(seen: Seen | None) -> CausalContext | None:
    return CausalContext(*seen) if seen is not None else None


def real_put(call: calls.Put) -> RealPut:
    return RealPut(call.data, Encoding.JSON, call.attributes, call.ttl_ms, call.until_ms, precondition(call.when))


def resolution(call: calls.Resolve) -> Resolution:
    if call.keep:
        return KeepDot(call.keep)
    return DeleteAll() if call.data is None else RealPut(call.data)


def operation(call: calls.Merge) -> merge.MergeOp:
    match call:
        case calls.Add():
            return merge.CounterAdd(call.delta)
        case calls.Update():
            return merge.SetUpdate(call.add, call.remove, real_context(call.seen))
        case calls.Extreme():
            return merge.Extreme(call.value, call.largest)
        case calls.Fields():
            return merge.MapUpdate(dict(call.fields), call.remove)
        case calls.Append():
            return merge.LogAppend(call.entries, call.keep)
