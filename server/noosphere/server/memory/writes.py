"""Writes: put, delete, merge and transactions, by read, decide, commit.

A decision is made on the accepted state and carried out by one commit that checks what was read. If a
check fails, somebody else was faster and the write is decided again on the fresh record, a bounded
number of times; callers of this process who have met so take turns. A refusal is sent only after everything it
depends on is synced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from noosphere.consistency import (
    NEVER_MS,
    UNCONDITIONAL,
    Circumstances,
    Decision,
    KeySeen,
    PartFailure,
    Precondition,
    ReadSet,
    Reason,
    Record,
    Refusal,
    Remembered,
    TransactionInfo,
    check_namespace,
    decide_delete,
    decide_merge,
    decide_put,
    decide_resolve,
    exhausted,
    fingerprint,
    invalid,
    seen_by_reader,
    too_large,
)
from noosphere.consistency.errors import ConflictInfo
from noosphere.consistency.limits import COMMIT_BYTES_MAX, TRANSACTION_BYTES_MAX

from ..ports.store import (
    Commit,
    Committed,
    Failed,
    FailureKind,
    NamespaceRef,
    ReadResult,
    Replayed,
    RequestRecord,
)
from .admission import (
    admit_write,
    after_failure,
    carry_out,
    check_op,
    check_transaction,
    contended,
    fences_of,
    presented,
    refuse,
    require_writer,
    size_limits,
    verbs_of,
)
from .codec import decode_entry
from .core import Core
from .expiry import key_check, mutations_of
from .extension import NO_ADDITIONS, Change, ExtendedWrite, check_plain
from .guards import advance, validate
from .guesses import Guesses
from .jobs import Attempt, Job, always_applies, may_create, replaced
from .outcomes import applied, in_order, memories
from .quotas import Growth
from .remembered import decode_reply, encode_reply
from .turns import Turns
from .types import (
    AppendOp,
    AppliedOp,
    Call,
    Compare,
    DeleteOp,
    MergeOperation,
    Operation,
    PutOp,
    ResolveOp,
    WriteOp,
    WriteReply,
)

ATTEMPTS_MAX = 64
_GLANCES_MAX = 2
"""Attempts of a write with conditions before it waits for a turn of its own: by then it is likely to be refused."""
RECORDS_BYTES_MAX = COMMIT_BYTES_MAX - TRANSACTION_BYTES_MAX
"""Of the values in the records of one transaction, siblings and merged ones included; the rest goes with them."""
_NOTHING_SEEN: Mapping[str, KeySeen] = MappingProxyType({})


def _without_values(reply: WriteReply) -> WriteReply:
    """Returns what a caller may know who may write but not read: not what others have merged."""
    return reply._replace(results=tuple(result._replace(merged=None) for result in reply.results))


class Writes:
    """The write side of shared memory."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turns = Turns()
        self._guesses = Guesses(core.store)

    async def put(self, call: Call, namespace: str, op: PutOp) -> WriteReply:
        """Writes one key.

        Raises:
            Refusal: the first failed check, in the order of ``noosphere.consistency.order``.
        """
        return await self._write(call, namespace, "put", (op,))

    async def delete(self, call: Call, namespace: str, op: DeleteOp) -> WriteReply:
        """Deletes one key; without a live value it is a no-op with revision 0.

        Raises:
            Refusal: as for :meth:`put`.
        """
        return await self._write(call, namespace, "delete", (op,))

    async def resolve(self, call: Call, namespace: str, op: ResolveOp) -> WriteReply:
        """Puts one value, or none, in the place of a key's siblings.

        Raises:
            Refusal: NO_CONFLICT, CONFLICT, else as for :meth:`put`.
        """
        return await self._write(call, namespace, "resolve", (op,))

    async def merge(self, call: Call, namespace: str, op: MergeOperation) -> WriteReply:
        """Applies a merge operation, which never conflicts.

        Raises:
            Refusal: MERGE_TYPE_MISMATCH, VALUE_TOO_LARGE, or a reason that concerns the caller.
        """
        return await self._write(call, namespace, "merge", (op,))

    async def transact(
        self, call: Call, namespace: str, compares: tuple[Compare, ...], ops: tuple[Operation, ...]
    ) -> WriteReply:
        """Applies all operations at one revision if all compares hold, else nothing.

        Raises:
            Refusal: the reason of the first failed part, with all failed parts in its detail.
        """
        check_transaction(compares, ops)
        return await self._write(call, namespace, "transact", ops, compares)

    async def commit(
        self,
        call: Call,
        namespace: str,
        compares: tuple[Compare, ...],
        ops: tuple[Operation, ...],
        awaited: tuple[str, ...] = (),
    ) -> WriteReply:
        """Applies all operations at one revision if what the caller's model saw still holds, else nothing.

        A put or delete without a precondition replaces what the read set saw of its key. ``awaited`` are calls of
        tools that must have finished.

        Raises:
            Refusal: STALE_READ_SET, UNCHECKABLE_GUARD, CALLS_PENDING; else as for :meth:`transact`.
        """
        tokens = call.tokens
        if tokens is None or tokens.read_set is None:
            raise invalid("call.read_set_token", "is required in a commit; reads with record_read_set return one")
        check_transaction(compares, ops)
        seen = tokens.read_set.namespaces.get(namespace)
        return await self._write(call, namespace, "commit", ops, compares, {} if seen is None else seen.keys, awaited)

    async def _write(
        self,
        call: Call,
        namespace: str,
        method: str,
        asked: tuple[Operation, ...],
        compares: tuple[Compare, ...] = (),
        seen: Mapping[str, KeySeen] = _NOTHING_SEEN,
        awaited: tuple[str, ...] = (),
    ) -> WriteReply:
        check_namespace(namespace)
        require_writer(call)
        ops = tuple(op for op in asked if not isinstance(op, AppendOp))
        appends = tuple(op for op in asked if isinstance(op, AppendOp))
        for op in ops:
            check_op(op)
            if (size := len(op.key.encode())) > self._core.key_bytes_max:
                raise too_large("key", size, self._core.key_bytes_max)
        extension = self._core.extension
        extra: tuple[str, ...] = ()
        extended = extension.concerns(namespace)
        if extended:
            extension.check(namespace, (op.key for op in ops), appends, awaited)
            extra = extension.keys(appends, awaited)
        else:
            check_plain(namespace, appends, awaited)
        keys = tuple(dict.fromkeys([*(op.key for op in ops), *(compare.key for compare in compares)]))
        meaning = b"" if call.request is None else fingerprint(method, namespace, compares, asked, awaited)
        as_transaction = method in {"transact", "commit"}
        job = Job(call, namespace, asked, ops, compares, awaited, keys, extra, extended, meaning, as_transaction, seen)
        # Asked before anything is written: whoever uses a session may have to be looked up for it.
        shown = not any(isinstance(op, MergeOperation) for op in ops) or self._core.access.may(call, namespace)
        ref = await self._core.locate(namespace)
        applies = not compares and all(map(always_applies, asked))
        for attempts in range(ATTEMPTS_MAX):
            patient = applies or attempts >= _GLANCES_MAX
            async with self._turns.turn(ref.storage_id, chain(keys, extra), patient):
                guess = self._guesses.of(ref, replaced(job)) if not attempts else None
                result = await self._attempt(ref, job, guess)
            if isinstance(result, WriteReply):
                if extended:
                    put = (op.key for op in ops if isinstance(op, (PutOp, MergeOperation)))
                    extension.accessed(call, namespace, put)
                return result if shown else _without_values(result)
            ref = result
        name = repr(keys[0]) if keys else repr(namespace)
        await contended(self._core, ref, f"{name} changed under each of {ATTEMPTS_MAX} attempts")

    async def _attempt(self, ref: NamespaceRef, job: Job, guess: ReadResult | None = None) -> WriteReply | NamespaceRef:
        """Tries once; returns the reply, or the generation with which to try again.

        With a guess nothing is read. It then either ends in a commit, which checks whatever it rests on, or in another
        attempt: nothing is refused on grounds that may be out of date.
        """
        core, call = self._core, job.call
        rules = core.rules(job.namespace)
        fences = fences_of(call, job.namespace)
        read = guess or await core.store.read(
            ref,
            (*job.keys, *job.extra),
            request=call.request,
            locks=tuple(f.lock for f in fences),
            accepted=True,
            counted=any(map(may_create, job.asked)),
        )
        if read.view.deleted and (newer := await core.relocate(ref)) is not None:
            return newer
        try:
            replay = admit_write(
                core,
                call,
                job.namespace,
                read,
                job.meaning,
                fences,
                chain(presented(job.ops, job.compares), call.presents(job.namespace)),
                size_limits(job.ops, rules.policy),
                verbs_of(job.asked),
            )
            if replay is not None:
                return await self._replay(ref, job, replay)
            written = core.extension.written(job.appends) if job.extended else ()
            validation = await validate(core, call, ref, [*(op.key for op in job.ops), *written])
            records = {k: decode_entry(e) for k, e in zip(job.keys, read.entries, strict=False)}
            attempt = Attempt(read, records, rules.policy, rules.config_version, fences, validation)
            decisions, attempt = await self._settle_what(ref, job, attempt)
            await self._check_room(ref, job, attempt, decisions)
            _check_size(decisions)
        except Refusal as refusal:
            if guess is not None:
                return ref
            await refuse(core, ref, refusal, read.view.head)
        if not attempt.mutations:
            if guess is not None:
                return ref
            await core.store.settle(ref)
            now_ms, head = read.view.now_ms, read.view.head
            seen = [AppliedOp(0, seen_by_reader(records[op.key], now_ms, head)) for op in job.ops]
            results = in_order(job.asked, seen, attempt.additions, 0)
            return WriteReply(0, results, read.view.head, False, _read_set_of(call), validation.stale)
        result = await carry_out(core, ref, self._commit(job, attempt, decisions), read.view.head)
        if isinstance(result, Committed):
            revision = result.revision
            if len(job.keys) == 1 and not job.extended:
                self._guesses.keep(ref, read.view, attempt.mutations, revision)
            self._note_conflicts(job, attempt, decisions)
            done = [applied(decision, revision) for decision in decisions]
            results = in_order(job.asked, done, attempt.additions, revision)
            read_set = _advanced(job, attempt, decisions, written, revision)
            return WriteReply(revision, results, revision, False, read_set, validation.stale)
        if isinstance(result, Replayed):
            return await self._replay(ref, job, result.remembered)
        if guess is not None:
            return ref
        self._note_meeting(ref, result)
        try:
            return await after_failure(core, ref, result, call)
        except Refusal as refusal:
            await refuse(core, ref, refusal, read.view.head)

    def _note_conflicts(self, job: Job, attempt: Attempt, decisions: Sequence[Decision]) -> None:
        for op, decision in zip(job.ops, decisions, strict=True):
            # A merge into a long list leaves its writer without the whole of it, which is no conflict.
            if decision.overwritten or not (decision.sole or isinstance(op, MergeOperation)):
                outcome = "overwritten" if decision.overwritten else "kept"
                self._core.metrics.conflict(job.namespace, attempt.policy.for_key(op.key), outcome)

    def _note_meeting(self, ref: NamespaceRef, failed: Failed) -> None:
        if not self._core.store.remote:
            # A read there sees what is under way, so callers do not undo each other's attempts for ever.
            return
        for failure in failed.failures:
            if failure.kind is FailureKind.KEY:
                self._turns.met(ref.storage_id, failure.name)

    async def _settle_what(self, ref: NamespaceRef, job: Job, attempt: Attempt) -> tuple[list[Decision], Attempt]:
        """Decides what is written; returns what becomes of each key, and all mutations with the attempt."""
        read, policy = attempt.read, attempt.policy
        write: ExtendedWrite | None = None
        if job.extended:
            entries = dict(zip(job.extra, read.entries[len(job.keys) :], strict=True))
            write = ExtendedWrite(job.call, ref, read.view, policy, entries, job.appends, job.awaited)
            self._core.extension.admit(write)
        decisions = self._decide(job, attempt)
        pairs = list(zip(job.ops, decisions, strict=True))
        made = mutations_of(
            ((op.key, decision) for op, decision in pairs), read.view.now_ms, policy.tombstone_retention_ms
        )
        additions = NO_ADDITIONS
        if write is not None:
            stored = dict(zip(job.keys, read.entries, strict=False))
            changes = tuple(
                Change(op.key, stored[op.key], attempt.records[op.key], decision)
                for op, decision in pairs
                if not decision.noop
            )
            additions = await self._core.extension.extend(self._core.store, write, changes, len(made))
        return decisions, attempt._replace(mutations=(*made, *additions.mutations), additions=additions)

    def _decide(self, job: Job, attempt: Attempt) -> list[Decision]:
        failures: list[PartFailure] = []
        decisions: list[Decision] = []
        view = attempt.read.view
        for index, (key, expected) in enumerate(job.compares):
            record = attempt.records[key]
            version = 0 if record is None else record.version(view.now_ms)
            if version != expected:
                message = f"{key!r} has version {version}, not {expected}"
                refusal = Refusal(Reason.VERSION_MISMATCH, message, ConflictInfo(key, version))
                failures.append(PartFailure(index, False, key, refusal))
        for index, op in enumerate(job.asked):
            if isinstance(op, AppendOp):
                continue
            at = self._core.circumstances(job.call, job.namespace, op.key, attempt.policy, view)
            if op.key in job.seen:
                op = _on_what_was_seen(op, job.seen[op.key].version, attempt.records[op.key], view.now_ms, job.call)
            try:
                decisions.append(_decide_op(attempt.records[op.key], op, at))
            except Refusal as refusal:
                if not job.as_transaction:
                    raise
                failures.append(PartFailure(index, True, op.key, refusal))
        if failures:
            first = failures[0]
            part = f"operations[{first.index}]" if first.is_operation else f"compares[{first.index}]"
            message = f"{part}: {first.refusal.message}; nothing was written"
            raise Refusal(first.refusal.reason, message, TransactionInfo(tuple(failures)))
        return decisions

    async def _check_room(self, ref: NamespaceRef, job: Job, attempt: Attempt, decisions: list[Decision]) -> None:
        fresh = sum(
            attempt.records[op.key] is None and not decision.noop
            for op, decision in zip(job.ops, decisions, strict=True)
        )
        fresh += attempt.additions.fresh_count
        if not attempt.read.view.exists and self._core.makers is not None:
            await self._core.makers.check(job.call.principal, job.call.agent_id, ref)
        quotas = self._core.quotas
        if quotas is not None and quotas.concern(job.call.principal, ref):
            held_bytes = {entry.key: len(entry.data) for entry in attempt.read.entries if entry is not None}
            size = sum(len(m.data or b"") - held_bytes.get(m.key, 0) for m in attempt.mutations)
            await quotas.check(job.call.principal, ref, Growth(fresh, size))
        if not fresh:
            return
        held = attempt.read.record_count
        if held is None:
            held = (await self._core.store.stats(ref)).record_count
        if held + fresh > attempt.policy.records_max:
            raise exhausted("namespace", held + fresh, attempt.policy.records_max, "too many records")

    def _commit(self, job: Job, attempt: Attempt, decisions: list[Decision]) -> Commit:
        view = attempt.read.view
        # A value that ends between this decision and the commit would have been decided on differently.
        ends_ms = [r.ends_ms(view.now_ms) for r in attempt.records.values() if r is not None]
        if attempt.validation.not_after_ms is not None:
            ends_ms.append(attempt.validation.not_after_ms)
        not_after_ms = min(ends_ms, default=NEVER_MS)
        request = None
        if job.call.request is not None:
            reply = encode_reply(memories(job.asked, decisions, attempt.additions))
            request = RequestRecord(job.call.request, job.meaning, reply)
        return Commit(
            epoch=view.epoch,
            config_version=attempt.config_version,
            checks=tuple(
                key_check(key, entry, view.now_ms) for key, entry in zip(job.keys, attempt.read.entries, strict=False)
            )
            + attempt.validation.checks
            + attempt.additions.checks,
            mutations=attempt.mutations,
            request=request,
            fences=attempt.fences,
            not_after_ms=None if not_after_ms == NEVER_MS else not_after_ms,
        )

    async def _replay(self, ref: NamespaceRef, job: Job, remembered: Remembered) -> WriteReply:
        await self._core.store.settle(ref)
        head = (await self._core.store.read(ref, ())).view.head
        # The read set is handed back as it was: what the first execution had checked is not remembered, and
        # a set that claims too little only makes its reader look again.
        return WriteReply(remembered.revision, decode_reply(remembered), head, True, _read_set_of(job.call))


def _read_set_of(call: Call) -> ReadSet | None:
    return None if call.tokens is None else call.tokens.read_set


def _on_what_was_seen(op: WriteOp, version: int, record: Record | None, now_ms: int, call: Call) -> WriteOp:
    """Returns a put or delete with the precondition that its read set implies: it replaces ``version``.

    Who is only to be warned replaces whatever is there, and is told of values that it has not seen.
    """
    when = Precondition(expected_version=version)
    if call.tokens is not None and call.tokens.warn and version != (0 if record is None else record.version(now_ms)):
        when = Precondition(blind=True)
    if isinstance(op, PutOp) and op.put.precondition == UNCONDITIONAL:
        return PutOp(op.key, op.put._replace(precondition=when))
    if isinstance(op, DeleteOp) and op.precondition == UNCONDITIONAL:
        return DeleteOp(op.key, when)
    return op


def _advanced(
    job: Job, attempt: Attempt, decisions: list[Decision], appended_keys: tuple[str, ...], revision: int
) -> ReadSet | None:
    read_set = _read_set_of(job.call)
    if read_set is None:
        return None
    now_ms = attempt.read.view.now_ms
    written: dict[str, tuple[int, KeySeen]] = {}
    for op, decision in zip(job.ops, decisions, strict=True):
        before, after = attempt.records[op.key], decision.record
        if decision.noop or after is None:
            continue
        version = 0 if before is None else before.version(now_ms)
        left = revision if after.live(now_ms) else 0
        written[op.key] = (version, KeySeen(left, after.ends_ms(now_ms)))
    if 0 in attempt.additions.appended:
        written.update({key: (0, KeySeen(revision)) for key in appended_keys})
    return advance(read_set, job.namespace, revision, written, attempt.validation)


def _decide_op(record: Record | None, op: WriteOp, at: Circumstances) -> Decision:
    match op:
        case PutOp(key, put):
            return decide_put(record, key, put, at)
        case DeleteOp(key, precondition):
            return decide_delete(record, key, precondition, at)
        case MergeOperation(key, operation):
            return decide_merge(record, key, operation, at)
        case ResolveOp(key, resolution, seen):
            return decide_resolve(record, key, resolution, seen, at)


def _check_size(decisions: list[Decision]) -> None:
    """Checks that what the operations leave behind fits in one commit; what they carry says little about that.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    if len(decisions) == 1:
        return  # one record always fits
    left = [sibling.data for decision in decisions if decision.record for sibling in decision.record.siblings]
    size = sum(len(data) for data in left if data is not None)
    if size > RECORDS_BYTES_MAX:
        raise too_large("operations", size, RECORDS_BYTES_MAX, "bytes in the records that they leave behind")
