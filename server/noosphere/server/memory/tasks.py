"""Task boards: claiming, renewing, releasing and completing records.

Claims are ordinary commits on the record (see ``noosphere.consistency.claims``), so two claimers of one
task cannot both succeed on any backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from noosphere.consistency import (
    NEVER_MS,
    Decision,
    Encoding,
    KeySeen,
    Record,
    Refusal,
    Remembered,
    Scalar,
    check_collection,
    check_key,
    check_namespace,
    claimable,
    decide_claim,
    decide_complete,
    decide_release,
    decide_renew,
    fingerprint,
    invalid,
    too_large,
)
from noosphere.consistency.limits import CLAIM_WAIT_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, REMEMBERED_REPLY_BYTES_MAX

from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.store import Check, Commit, Committed, NamespaceRef, ReadResult, Replayed, RequestRecord, StoredEntry
from .admission import admit_write, after_failure, carry_out, contended, fences_of, refuse, require_writer
from .codec import decode_entry, decode_record
from .core import Core, draining
from .expiry import key_check, mutations_of
from .extension import Change, ExtendedWrite
from .guards import Validation, advance, validate
from .internal import before_first
from .signals import Following, HeadSignals
from .types import ANONYMOUS, Call, ClaimReply, RecordView

ATTEMPTS_MAX = 64
LOOK_AGAIN_MS = 5_000
"""A waiting claimer looks at least so often, which also keeps its agent's lease alive."""

_SCAN_STEP = 128


class _Found(NamedTuple):
    """The first free task of a board, or when to look again."""

    entry: StoredEntry | None
    record: Record | None
    next_lapse_ms: int | None
    read: ReadResult


class Tasks:
    """Claims on the records of task boards."""

    def __init__(self, core: Core, signals: HeadSignals, clock: Clock) -> None:
        self._core = core
        self._signals = signals
        self._clock = clock

    async def claim_next(
        self,
        call: Call,
        namespace: str,
        collection: str,
        *,
        where: tuple[tuple[str, Scalar], ...],
        lease_ms: int,
        wait_ms: int,
    ) -> ClaimReply:
        """Claims the first free task in key order that matches ``where``; waits for one up to ``wait_ms``.

        Raises:
            Refusal: INVALID_FIELD, REQUEST_ID_REUSED, CONTENTION, or a reason that concerns the caller.
        """
        check_namespace(namespace)
        check_collection(collection)
        require_writer(call)
        if self._core.extension.concerns(namespace):
            self._core.extension.check(namespace, (collection,), (), ())
        check_lease(lease_ms)
        if not 0 <= wait_ms <= CLAIM_WAIT_MS_MAX:
            raise invalid("wait", f"{wait_ms} ms is not between 0 and {CLAIM_WAIT_MS_MAX} ms")
        meaning = b"" if call.request is None else fingerprint("claim", namespace, collection, where, lease_ms)
        store = self._core.store
        deadline_ms = store.now_ms() + wait_ms
        ref = await self._core.locate(namespace)
        lost_races = 0
        async with Following(store) as following:
            while True:
                # Registered before looking, so that a task that is added in between is not slept through.
                moved = self._signals.next_move(ref.storage_id)
                found = await self._find(call, ref, namespace, collection, where, meaning)
                if isinstance(found, ClaimReply):
                    return found
                if isinstance(found, NamespaceRef):
                    ref = found
                    continue
                if found.entry is None or found.record is None:
                    left_ms = deadline_ms - store.now_ms()
                    if self._signals.draining and left_ms > 0:
                        await refuse(self._core, ref, draining(), found.read.view.head)
                    if left_ms <= 0:
                        await store.settle(ref)
                        return ClaimReply(None, found.read.view.head, False)
                    if await following.to(ref):
                        # Moves before it was followed may not be told, so it looks once more.
                        continue
                    if found.next_lapse_ms is not None:
                        left_ms = min(left_ms, max(1, found.next_lapse_ms - store.now_ms()))
                    await self._clock.wait(moved, min(left_ms, LOOK_AGAIN_MS) / 1000)
                    continue
                key, now_ms = found.entry.key, found.read.view.now_ms
                try:
                    validation = await validate(self._core, call, ref, (key,))
                except Refusal as refusal:
                    await refuse(self._core, ref, refusal, found.read.view.head)
                decision = decide_claim(found.record, call.actor, now_ms, lease_ms)
                reply = await self._carry_out(
                    call, ref, namespace, key, found.entry, found.record, decision, found.read, meaning, validation
                )
                if isinstance(reply, ClaimReply):
                    return reply
                if isinstance(reply, Remembered):
                    return await self._replay_claim(ref, collection, reply)
                ref = reply
                lost_races += 1
                if lost_races >= ATTEMPTS_MAX:
                    message = f"another claimer was faster {ATTEMPTS_MAX} times in {collection!r}"
                    await contended(self._core, ref, message)

    async def renew(self, call: Call, namespace: str, key: str, fence: int, lease_ms: int) -> ClaimReply:
        """Extends a claim from now on.

        Raises:
            Refusal: CLAIM_LOST, INVALID_FIELD, or a reason that concerns the caller.
        """
        check_lease(lease_ms)

        def decide(record: Record | None, now_ms: int) -> Decision:
            return decide_renew(record, key, fence, call.actor, now_ms, lease_ms)

        return await self._update(call, namespace, key, fence, decide, ("renew", lease_ms))

    async def release(self, call: Call, namespace: str, key: str, fence: int) -> ClaimReply:
        """Gives a claim up.

        Raises:
            Refusal: CLAIM_LOST, INVALID_FIELD, or a reason that concerns the caller.
        """

        def decide(record: Record | None, now_ms: int) -> Decision:
            return decide_release(record, key, fence, call.actor, now_ms)

        return await self._update(call, namespace, key, fence, decide, ("release",))

    async def free(self, holder: str, namespace: str, key: str, fence: int) -> bool:
        """Gives up a claim whose holder has ended, for the operator; returns whether it was still held.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, CONTENTION.
        """
        core, ref = self._core, await self._core.locate(namespace)
        for _ in range(ATTEMPTS_MAX):
            read = await core.store.read(ref, (key, *self._extra(namespace)), accepted=True)
            entry = read.entries[0]
            record = decode_entry(entry)
            if entry is None or record is None:
                return False
            try:
                decision = decide_release(record, key, fence, holder, read.view.now_ms)
            except Refusal:
                # It has lapsed, or somebody has it by now.
                return False
            nothing = Validation((), None, (), frozenset())
            reply = await self._carry_out(ANONYMOUS, ref, namespace, key, entry, record, decision, read, b"", nothing)
            if isinstance(reply, ClaimReply):
                return True
            if isinstance(reply, NamespaceRef):
                ref = reply
        await contended(core, ref, f"{key!r} changed under each of {ATTEMPTS_MAX} attempts")

    async def complete(
        self, call: Call, namespace: str, key: str, fence: int, result: bytes | None, encoding: Encoding
    ) -> ClaimReply:
        """Marks a task as done and stores its result, once.

        Raises:
            Refusal: CLAIM_LOST, VALUE_TOO_LARGE, INVALID_FIELD, or a reason that concerns the caller.
        """

        def decide(record: Record | None, now_ms: int) -> Decision:
            return decide_complete(record, key, fence, call.actor, now_ms, result, encoding)

        size = 0 if result is None else len(result)
        return await self._update(call, namespace, key, fence, decide, ("complete", result, encoding), size)

    async def _find(
        self,
        call: Call,
        ref: NamespaceRef,
        namespace: str,
        collection: str,
        where: tuple[tuple[str, Scalar], ...],
        meaning: bytes,
    ) -> _Found | ClaimReply | NamespaceRef:
        core = self._core
        fences = fences_of(call, namespace)
        extra = self._extra(namespace)
        read = await core.store.read(
            ref, extra, request=call.request, locks=tuple(f.lock for f in fences), accepted=True
        )
        if read.view.deleted and (newer := await core.relocate(ref)) is not None:
            return newer
        try:
            shown = call.presents(namespace)
            verbs = (Verb.READ, Verb.WRITE)
            replay = admit_write(core, call, namespace, read, meaning, fences, shown, (), verbs)
            if replay is None:
                self._extended(call, ref, read, 0)
        except Refusal as refusal:
            await refuse(core, ref, refusal, read.view.head)
        if replay is not None:
            return await self._replay_claim(ref, collection, replay)
        cursor = before_first(collection)
        next_lapse_ms: int | None = None
        while True:
            page = await core.store.scan(ref, collection, after=cursor, limit=_SCAN_STEP, accepted=True)
            now_ms = page.view.now_ms
            for entry in page.entries:
                cursor = entry.key
                if entry.live_until_ms <= now_ms or (extra and core.extension.reserved(entry.key)):
                    continue
                record = decode_record(entry.data, entry.revision)
                if claimable(record, where, now_ms):
                    return _Found(entry, record, None, read._replace(view=page.view))
                if record.claim is not None and record.claim.active(now_ms):
                    lapse = record.claim.expires_at_ms
                    next_lapse_ms = lapse if next_lapse_ms is None else min(next_lapse_ms, lapse)
            if not page.more:
                return _Found(None, None, next_lapse_ms, read._replace(view=page.view))
            # A long board must not hold up the other callers of this process.
            await asyncio.sleep(0)

    async def _update(
        self,
        call: Call,
        namespace: str,
        key: str,
        fence: int,
        decide: Callable[[Record | None, int], Decision],
        meaning_parts: tuple[object, ...],
        size: int = 0,
    ) -> ClaimReply:
        check_namespace(namespace)
        check_key(key)
        require_writer(call)
        core = self._core
        if core.extension.concerns(namespace):
            core.extension.check(namespace, (key,), (), ())
        extra = self._extra(namespace)
        meaning = b"" if call.request is None else fingerprint(namespace, key, fence, *meaning_parts)
        ref = await core.locate(namespace)
        for _ in range(ATTEMPTS_MAX):
            fences = fences_of(call, namespace)
            limit = core.rules(namespace).policy.item_bytes_max
            read = await core.store.read(
                ref, (key, *extra), request=call.request, locks=tuple(f.lock for f in fences), accepted=True
            )
            if read.view.deleted and (newer := await core.relocate(ref)) is not None:
                ref = newer
                continue
            try:
                replay = admit_write(
                    core,
                    call,
                    namespace,
                    read,
                    meaning,
                    fences,
                    chain((fence,), call.presents(namespace)),
                    (lambda: too_large("result", size, limit) if size > limit else None,),  # noqa: B023 # called at once
                )
                if replay is not None:
                    return await self._replay(ref, key)
                self._extended(call, ref, read, 1)
                validation = await validate(core, call, ref, (key,))
                record = decode_entry(read.entries[0])
                decision = decide(record, read.view.now_ms)
            except Refusal as refusal:
                await refuse(core, ref, refusal, read.view.head)
            entry = read.entries[0]
            assert entry is not None  # a claim was decided on a record
            assert record is not None
            reply = await self._carry_out(call, ref, namespace, key, entry, record, decision, read, meaning, validation)
            if isinstance(reply, ClaimReply):
                return reply
            if isinstance(reply, Remembered):
                return await self._replay(ref, key)
            ref = reply
        await contended(core, ref, f"{key!r} changed under each of {ATTEMPTS_MAX} attempts")

    async def _carry_out(
        self,
        call: Call,
        ref: NamespaceRef,
        namespace: str,
        key: str,
        entry: StoredEntry,
        record: Record,
        decision: Decision,
        read: ReadResult,
        meaning: bytes,
        validation: Validation,
    ) -> ClaimReply | Remembered | NamespaceRef:
        core = self._core
        rules = core.rules(namespace)
        now_ms = read.view.now_ms
        assert decision.record is not None, "a claim never removes its record"
        mutations = mutations_of(((key, decision),), now_ms, rules.policy.tombstone_retention_ms)
        extended = self._extended(call, ref, read, len(read.entries) - len(self._extra(namespace)))
        added_checks: tuple[Check, ...] = ()
        if extended is not None:
            change = Change(key, entry, record, decision)
            try:
                additions = await core.extension.extend(core.store, extended, (change,), len(mutations))
            except Refusal as refusal:
                await refuse(core, ref, refusal, read.view.head)
            added_checks = additions.checks
            mutations = (*mutations, *additions.mutations)
        ends_ms = [record.ends_ms(now_ms)]
        if record.claim is not None and record.claim.active(now_ms):
            # Whoever renews, releases or completes does so within the lease, or not at all.
            ends_ms.append(record.claim.expires_at_ms)
        if validation.not_after_ms is not None:
            ends_ms.append(validation.not_after_ms)
        result = await carry_out(
            core,
            ref,
            Commit(
                epoch=read.view.epoch,
                config_version=rules.config_version,
                checks=(key_check(key, entry, now_ms), *validation.checks, *added_checks),
                mutations=mutations,
                request=None if call.request is None else RequestRecord(call.request, meaning, _remember(key)),
                fences=fences_of(call, namespace),
                not_after_ms=None if min(ends_ms) == NEVER_MS else min(ends_ms),
            ),
            read.view.head,
        )
        if isinstance(result, Committed):
            revision = result.revision
            view = RecordView(key, decision.record.at(revision), result.now_ms, revision)
            read_set = None if call.tokens is None else call.tokens.read_set
            if read_set is not None:
                # A claim moves the version of its record, and no membership.
                written = {key: (record.version(now_ms), KeySeen(revision, record.ends_ms(now_ms)))}
                read_set = advance(read_set, namespace, revision, written, validation)
            return ClaimReply(view, revision, False, read_set, validation.stale)
        if isinstance(result, Replayed):
            return result.remembered
        try:
            return await after_failure(core, ref, result, call)
        except Refusal as refusal:
            await refuse(core, ref, refusal, read.view.head)

    def _extra(self, namespace: str) -> tuple[str, ...]:
        """Returns the keys that the namespace's extension decides on."""
        extension = self._core.extension
        return extension.keys((), ()) if extension.concerns(namespace) else ()

    def _extended(self, call: Call, ref: NamespaceRef, read: ReadResult, own: int) -> ExtendedWrite | None:
        """Returns what the namespace's extension gets to see, None if it has none; ``own`` keys were read first.

        Raises:
            Refusal: what keeps the namespace from being written.
        """
        extra = self._extra(ref.name)
        if not extra:
            return None
        entries = dict(zip(extra, read.entries[own:], strict=True))
        write = ExtendedWrite(call, ref, read.view, self._core.rules(ref.name).policy, entries)
        self._core.extension.admit(write)
        return write

    async def _replay(self, ref: NamespaceRef, key: str) -> ClaimReply:
        """Answers a retry with the record as it is now; its claim says whether the caller still holds it."""
        await self._core.store.settle(ref)
        read = await self._core.store.read(ref, (key,))
        view = RecordView(key, decode_entry(read.entries[0]), read.view.now_ms, read.view.head)
        return ClaimReply(view, read.view.head, True)

    async def _replay_claim(self, ref: NamespaceRef, collection: str, remembered: Remembered) -> ClaimReply:
        """Answers the retry of a claim; without a record if its task can no longer be told, and so is not held."""
        if remembered.reply:
            return await self._replay(ref, remembered.reply.decode())
        # The key was too long to be remembered, but its claim's fence is the revision that is.
        await self._core.store.settle(ref)
        cursor = before_first(collection)
        while True:
            page = await self._core.store.scan(ref, collection, after=cursor, limit=_SCAN_STEP)
            for entry in page.entries:
                cursor = entry.key
                record = decode_record(entry.data, entry.revision)
                if record.claim is not None and record.claim.fence == remembered.revision:
                    view = RecordView(entry.key, record, page.view.now_ms, page.view.head)
                    return ClaimReply(view, page.view.head, True)
            if not page.more:
                return ClaimReply(None, page.view.head, True)
            await asyncio.sleep(0)


def _remember(key: str) -> bytes:
    """Returns what is remembered of a claim: its key, or nothing if that is too long."""
    data = key.encode()
    return data if len(data) <= REMEMBERED_REPLY_BYTES_MAX else b""


def check_lease(lease_ms: int) -> None:
    """Checks the length of a lease.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise invalid("lease", f"{lease_ms} ms is not between {LEASE_MS_MIN} and {LEASE_MS_MAX} ms")
