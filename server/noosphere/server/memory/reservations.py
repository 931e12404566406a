"""Reservations: an agent says that it thinks about a key, so that others need not think in vain.

Advisory: a reservation stops nobody who does not ask for one. It works like a claim, on a record of its
own beside the key, so that it neither moves the key's version nor needs the key to exist.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from noosphere.consistency import (
    Claim,
    ConflictInfo,
    Encoding,
    Reason,
    Record,
    Refusal,
    Sibling,
    VersionClock,
    check_key,
    check_namespace,
    exhausted,
    fingerprint,
    invalid,
    split_actor,
)
from noosphere.consistency.limits import CLAIM_WAIT_MS_MAX

from ..ports.runtime import Clock
from ..ports.store import Commit, Committed, Mutation, NamespaceRef, ReadResult, Replayed, RequestRecord
from .admission import admit_write, after_failure, carry_out, contended, fences_of, refuse, require_writer
from .codec import decode_entry, encode_record
from .core import Core, draining
from .expiry import key_check
from .extension import ExtendedWrite
from .internal import RESERVATIONS
from .lookouts import Lookouts, Place
from .signals import Following, HeadSignals
from .tasks import LOOK_AGAIN_MS, check_lease
from .types import Call

ATTEMPTS_MAX = 64
RESERVATIONS_MAX = 10_000
"""A namespace holds at most so many more of the services' own records than records of its users."""


class Reservation(NamedTuple):
    """Who thinks about a key; ``fence`` is 0 unless it is the caller."""

    fence: int
    holder: str
    expires_at_ms: int
    head: int


class Reservations:
    """Makes and cancels reservations."""

    def __init__(self, core: Core, signals: HeadSignals, clock: Clock) -> None:
        self._core = core
        self._signals = signals
        self._lookouts = Lookouts(clock)

    async def reserve(self, call: Call, namespace: str, key: str, *, lease_ms: int, wait_ms: int) -> Reservation:
        """Reserves a key, or extends the caller's own reservation; waits for another's to end.

        Raises:
            Refusal: INVALID_FIELD, CONTENTION, or a reason that concerns the caller.
        """
        check_namespace(namespace)
        check_key(key)
        require_writer(call)
        if self._core.extension.concerns(namespace):
            self._core.extension.check(namespace, (key,), (), ())
        check_lease(lease_ms)
        if not 0 <= wait_ms <= CLAIM_WAIT_MS_MAX:
            raise invalid("wait", f"{wait_ms} ms is not between 0 and {CLAIM_WAIT_MS_MAX} ms")
        core, store = self._core, self._core.store
        meaning = b"" if call.request is None else fingerprint("reserve", namespace, key, lease_ms)
        deadline_ms = store.now_ms() + wait_ms
        ref = await core.locate(namespace)
        with self._lookouts.place((namespace, key)) as place:
            return await self._reserve(call, ref, key, meaning, lease_ms, deadline_ms, place)

    async def _reserve(
        self, call: Call, ref: NamespaceRef, key: str, meaning: bytes, lease_ms: int, deadline_ms: int, place: Place
    ) -> Reservation:
        core, store, namespace = self._core, self._core.store, ref.name
        lost_races = 0
        async with Following(store) as following:
            while lost_races < ATTEMPTS_MAX:
                # Registered before looking, so that a reservation that ends in between is not slept through.
                moved = self._signals.next_move(ref.storage_id)
                read = await self._read(call, ref, key)
                if read.view.deleted and (newer := await core.relocate(ref)) is not None:
                    ref = newer
                    continue
                head, now_ms = read.view.head, read.view.now_ms
                held = _claim_of(read)
                try:
                    replayed = admit_write(
                        core, call, namespace, read, meaning, fences_of(call, namespace), call.presents(namespace), ()
                    )
                    if replayed is None:
                        self._admit(call, ref, read)
                except Refusal as refusal:
                    await refuse(core, ref, refusal, head)
                if replayed is not None:
                    await store.settle(ref)
                    return _shown(held, call, head, now_ms)
                if held is not None and held.active(now_ms) and not _is_callers(held, call):
                    left_ms = deadline_ms - now_ms
                    if left_ms <= 0:
                        await store.settle(ref)
                        return _shown(held, call, head, now_ms)
                    if self._signals.draining:
                        await refuse(core, ref, draining(), head)
                    if await following.to(ref):
                        # Moves before it was followed may not be told, so it looks once more.
                        continue
                    left_ms = min(left_ms, max(1, held.expires_at_ms - now_ms), LOOK_AGAIN_MS)
                    await place.wait(moved, left_ms / 1000)
                    continue
                if read.entries[0] is None:
                    await self._check_room(ref, head)
                mine = held is not None and held.active(now_ms) and held.holder == call.actor
                claim = Claim(call.actor, now_ms + lease_ms, held.fence if mine and held is not None else 0, 1)
                revision = await self._commit(call, ref, key, read, _record(claim, now_ms), meaning)
                if isinstance(revision, int):
                    return Reservation(claim.fence or revision, call.actor, claim.expires_at_ms, revision)
                ref = revision
                lost_races += 1
        await contended(core, ref, f"{key!r} was reserved by others {ATTEMPTS_MAX} times over")

    async def cancel(self, call: Call, namespace: str, key: str, fence: int) -> int:
        """Gives a reservation up; returns the head.

        Raises:
            Refusal: CLAIM_LOST, or a reason that concerns the caller.
        """
        check_namespace(namespace)
        check_key(key)
        require_writer(call)
        core = self._core
        meaning = b"" if call.request is None else fingerprint("cancel", namespace, key, fence)
        ref = await core.locate(namespace)
        for _ in range(ATTEMPTS_MAX):
            read = await self._read(call, ref, key)
            if read.view.deleted and (newer := await core.relocate(ref)) is not None:
                ref = newer
                continue
            held = _claim_of(read)
            try:
                fences = fences_of(call, namespace)
                shown = chain((fence,), call.presents(namespace))
                replayed = admit_write(core, call, namespace, read, meaning, fences, shown, ())
                if replayed is None and (
                    held is None
                    or held.holder != call.actor
                    or held.fence != fence
                    or not held.active(read.view.now_ms)
                ):
                    raise Refusal(Reason.CLAIM_LOST, f"{key!r} is not reserved by you", ConflictInfo(key, 0))
            except Refusal as refusal:
                await refuse(core, ref, refusal, read.view.head)
            if replayed is not None:
                await core.store.settle(ref)
                return read.view.head
            revision = await self._commit(call, ref, key, read, None, meaning)
            if isinstance(revision, int):
                return revision
            ref = revision
        await contended(core, ref, f"{key!r} was reserved anew {ATTEMPTS_MAX} times over")

    async def _check_room(self, ref: NamespaceRef, head: int) -> None:
        stats = await self._core.store.stats(ref)
        if stats.own_count >= stats.record_count + RESERVATIONS_MAX:
            full = exhausted("namespace", stats.own_count + 1, RESERVATIONS_MAX, "too many reservations")
            await refuse(self._core, ref, full, head)

    async def _read(self, call: Call, ref: NamespaceRef, key: str) -> ReadResult:
        locks = tuple(fence.lock for fence in fences_of(call, ref.name))
        keys = (RESERVATIONS + key, *self._extra(ref.name))
        return await self._core.store.read(ref, keys, request=call.request, locks=locks, accepted=True)

    def _extra(self, namespace: str) -> tuple[str, ...]:
        extension = self._core.extension
        return extension.keys((), ()) if extension.concerns(namespace) else ()

    def _admit(self, call: Call, ref: NamespaceRef, read: ReadResult) -> None:
        extra = self._extra(ref.name)
        if extra:
            entries = dict(zip(extra, read.entries[1:], strict=True))
            policy = self._core.rules(ref.name).policy
            self._core.extension.admit(ExtendedWrite(call, ref, read.view, policy, entries))

    async def _commit(
        self, call: Call, ref: NamespaceRef, key: str, read: ReadResult, record: Record | None, meaning: bytes
    ) -> int | NamespaceRef:
        """Commits; returns the revision, or the generation with which to try again."""
        name = RESERVATIONS + key
        view = read.view
        ends_ms = 0 if record is None else record.live_until_ms
        data = None if record is None else encode_record(record)
        result = await carry_out(
            self._core,
            ref,
            Commit(
                epoch=view.epoch,
                config_version=self._core.rules(ref.name).config_version,
                checks=(key_check(name, read.entries[0], view.now_ms),),
                # Without an event: nobody's list, watch or read set is moved by what others think about.
                mutations=(Mutation(name, data, ends_ms, ends_ms, False, b""),),
                request=None if call.request is None else RequestRecord(call.request, meaning, b""),
                fences=fences_of(call, ref.name),
            ),
            view.head,
        )
        if isinstance(result, Committed):
            return result.revision
        if isinstance(result, Replayed):
            return result.remembered.revision
        try:
            return await after_failure(self._core, ref, result, call)
        except Refusal as refusal:
            await refuse(self._core, ref, refusal, view.head)


def _is_callers(held: Claim, call: Call) -> bool:
    """Tells whether the caller holds a reservation: itself, or an earlier incarnation, which then has ended."""
    return call.incarnation is not None and split_actor(held.holder)[0] == call.incarnation.agent_id


def _claim_of(read: ReadResult) -> Claim | None:
    record = decode_entry(read.entries[0])
    return None if record is None else record.claim


def _record(claim: Claim, now_ms: int) -> Record:
    sibling = Sibling(0, claim.holder, now_ms, b"null", Encoding.JSON, claim.expires_at_ms)
    clock = VersionClock().written_by(claim.holder)
    return Record(0, (sibling,), clock, now_ms, 1, claim=claim)


def _shown(held: Claim | None, call: Call, head: int, now_ms: int) -> Reservation:
    if held is None or not held.active(now_ms):
        return Reservation(0, "", 0, head)
    return Reservation(held.fence if held.holder == call.actor else 0, held.holder, held.expires_at_ms, head)
