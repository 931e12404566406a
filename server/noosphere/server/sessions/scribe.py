"""The one loop in which every session call reads, decides and commits.

A call says which keys it depends on and how it decides; the scribe reads them as accepted, runs the checks in
the order of ``noosphere.consistency.order``, lets the call decide, commits with all that was read as checks, and
decides again if somebody else was faster. What a caller receives is synced, a refusal too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from noosphere.consistency import (
    NEVER_MS,
    NOTHING_READ,
    CollectionSeen,
    KeySeen,
    ReadSet,
    Reason,
    Refusal,
    Remembered,
    StaleEntry,
    StampMode,
    exhausted,
    fingerprint,
)

from ..memory.admission import admit_write, after_failure, carry_out, contended, fences_of, refuse, require_writer
from ..memory.codec import decode_entry
from ..memory.core import Core, check_tokens, located
from ..memory.expiry import key_check
from ..memory.guards import UNGUARDED, Validation, advance, validate
from ..memory.types import Call
from ..ports.grants import Verb
from ..ports.store import (
    Check,
    CollectionCheck,
    Commit,
    Committed,
    NamespaceRef,
    ReadResult,
    Replayed,
    RequestRecord,
    ScanResult,
    StoredEntry,
)
from .codec import decode_info
from .draft import Draft, Look
from .hooks import ItemHook
from .items import check_item_room, live_items
from .keys import INFO, ITEMS_COUNTED, KeyRange, check_session_id, namespace_of
from .types import SessionStatus

ATTEMPTS_MAX = 64

BACKGROUND = Call()
"""Who writes what no agent asks for: nobody, as with an expiry."""

T = TypeVar("T")
Decide = Callable[[Look, Draft], T]


class Need(Enum):
    """What state a session must be in for a call."""

    OPEN = "open"
    """In use; otherwise SESSION_NOT_FOUND or SESSION_CLOSED."""
    ANY = "any"
    """There, in use or closed; otherwise SESSION_NOT_FOUND."""
    NONE = "none"
    """The call decides itself; the namespace is opened anew if it was deleted."""


class Scan(NamedTuple):
    """A range of a collection that a decision depends on.

    Attributes:
        collection: where; empty for the whole namespace.
        limit: most entries, tombstones too.
        reverse: the greatest keys first.
        keys: exclusive bounds.
        guard: the stamp that must not move until the commit; None if it does not matter.
    """

    collection: str
    limit: int
    reverse: bool = False
    keys: KeyRange = KeyRange(None, None)
    guard: StampMode | None = None


class Intent(NamedTuple):
    """What a call is about to do, beside the decision itself.

    Attributes:
        method: a name for the request's fingerprint.
        meaning: what the request means, for its fingerprint: no tokens, no deadlines.
        keys: what it depends on; checked in the commit. ``_session/info`` always is.
        glances: what it looks at; may have changed by the time of the commit.
        scans: ranges it looks at.
        presents: revisions that the request names.
        need: what state the session must be in.
        items: whether it depends on all items. They are those of the head at which the keys were read, and each is
            checked in the commit; what is new by then is not. Scans may be of a later head, unless they are guarded.
        background: whether it is the server's own, which no incarnation asks for.
        verbs: what the caller must be permitted to do; none for what makes the session, whose users decide themselves.
    """

    method: str
    meaning: tuple[object, ...] = ()
    keys: tuple[str, ...] = ()
    glances: tuple[str, ...] = ()
    scans: tuple[Scan, ...] = ()
    presents: tuple[int, ...] = ()
    need: Need = Need.OPEN
    items: bool = False
    background: bool = False
    verbs: tuple[Verb, ...] = (Verb.WRITE,)


class Written(NamedTuple, Generic[T]):
    """What a call did.

    Attributes:
        value: what the decision returned; None if an earlier execution is reported.
        revision: the commit's; 0 if nothing had to change.
        head: the namespace's newest visible revision.
        now_ms: store time of the decision.
        replayed: whether an earlier, remembered execution is reported.
        reply: what the decision had remembered.
        read_set: the caller's read set, advanced over what was written.
        stale: what was stale and was overruled.
    """

    value: T | None
    revision: int
    head: int
    now_ms: int
    replayed: bool
    reply: bytes
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class _Job(NamedTuple, Generic[T]):
    call: Call
    session_id: str
    intent: Intent
    decide: Decide[T]
    meaning: bytes
    keys: tuple[str, ...]
    checked: int
    """How many of ``keys`` are checked; they come first."""


class Scribe:
    """Reads and writes the records of sessions."""

    def __init__(self, core: Core, hooks: Sequence[ItemHook] = ()) -> None:
        self.core = core
        self.hooks = hooks
        self._told: dict[str, Callable[[str], None]] = {}
        self._hook_keys = tuple(dict.fromkeys(key for hook in hooks for key in hook.keys))

    def tell_of(self, collection: str, tell: Callable[[str], None]) -> None:
        """Has a callable told of each session in which a commit has written to a collection; it must not wait or fail.

        Writes of shared memory are not told of: they reach items only.
        """
        self._told[collection] = tell

    async def write(self, call: Call, session_id: str, intent: Intent, decide: Decide[T]) -> Written[T]:
        """Decides and commits.

        Args:
            call: who calls, with request id, fences and tokens.
            session_id: which session.
            intent: what the decision depends on.
            decide: fills the draft and returns the call's own result, or raises Refusal. It may run several times,
                each time on a fresh draft, so it must do nothing else.

        Raises:
            Refusal: the first failed check, in the order of ``noosphere.consistency.order``; SESSION_NOT_FOUND,
                SESSION_CLOSED, CONTENTION, or what ``decide`` raises.
        """
        namespace = check_session_id(session_id)
        if not intent.background:
            require_writer(call)
        checked = tuple(dict.fromkeys((INFO, *intent.keys)))
        keys = tuple(dict.fromkeys((*checked, *intent.glances, *self._hook_keys, ITEMS_COUNTED)))
        meaning = b"" if call.request is None else fingerprint(intent.method, namespace, *intent.meaning)
        job = _Job(call, session_id, intent, decide, meaning, keys, len(checked))
        ref = await self.core.locate(namespace)
        for _ in range(ATTEMPTS_MAX):
            result = await self._attempt(ref, job)
            if isinstance(result, Written):
                return result
            ref = result
        await contended(self.core, ref, f"session {session_id!r} changed under each of {ATTEMPTS_MAX} attempts")

    async def read(
        self,
        call: Call,
        session_id: str,
        keys: Sequence[str] = (),
        scans: Sequence[Scan] = (),
        *,
        missing_ok: bool = False,
    ) -> Look:
        """Reads keys and ranges of a session, synced; each range is at its own head.

        Raises:
            Refusal: SESSION_NOT_FOUND unless ``missing_ok``, or a reason that concerns the caller.
        """
        namespace = check_session_id(session_id)
        self.core.admit_reader(call, namespace)
        ref = await self.living(session_id)
        wanted = tuple(dict.fromkeys((INFO, *keys)))
        read = await self.core.store.read(ref, wanted)
        if read.view.deleted:
            raise located(not_found(session_id), namespace, read.view.head)
        check_tokens(call, namespace, read.view)
        found = tuple([await self.scan(ref, scan) for scan in scans])
        look = _look(session_id, read, wanted, found)
        if look.info is None and not missing_ok:
            raise located(not_found(session_id), namespace, read.view.head)
        return look

    async def peek(self, session_id: str, keys: Sequence[str] = ()) -> Look:
        """Reads what was accepted, without asking who reads: to prepare a write, never to answer a caller."""
        wanted = tuple(dict.fromkeys((INFO, *keys)))
        read = await self.core.store.read(await self.living(session_id), wanted, accepted=True)
        return _look(session_id, read, wanted, ())

    async def living(self, session_id: str) -> NamespaceRef:
        """Returns the living generation of a session's namespace; the last one if it was deleted."""
        ref = await self.core.locate(check_session_id(session_id))
        if (await self.core.store.read(ref, ())).view.deleted:
            return await self.core.relocate(ref) or ref
        return ref

    async def scan(self, ref: NamespaceRef, scan: Scan, *, accepted: bool = False) -> ScanResult:
        """Reads one range."""
        return await self.core.store.scan(
            ref,
            scan.collection,
            after=scan.keys.after,
            before=scan.keys.before,
            limit=scan.limit,
            reverse=scan.reverse,
            accepted=accepted,
        )

    async def _attempt(self, ref: NamespaceRef, job: _Job[T]) -> Written[T] | NamespaceRef:
        """Tries once; returns the result, or the generation with which to try again."""
        core, call, intent = self.core, job.call, job.intent
        rules = core.rules(ref.name)
        fences = fences_of(call, ref.name)
        locks = tuple(fence.lock for fence in fences)
        read = await core.store.read(ref, job.keys, request=call.request, locks=locks, accepted=True, counted=True)
        head = read.view.head
        if read.view.deleted:
            if (newer := await core.relocate(ref)) is not None:
                return newer
            # An ephemeral session that has ended stays ended: a generation after it would be noted on disk.
            if intent.need is Need.NONE and not ref.volatile and core.renew(call):
                return await core.directory.reopen(ref, head)
        try:
            replay = self._admit(ref, job, read)
            if replay is not None:
                return await self._replay(ref, job, replay)
            found = tuple([await self.scan(ref, scan, accepted=True) for scan in intent.scans])
            items = await live_items(core.store, ref, read.view) if intent.items else ()
            stamps = (_stamp(scan, page) for scan, page in zip(intent.scans, found, strict=True))
            if items is None or (intent.items and max(stamps, default=0) > head):
                # What is guarded must not have moved between the head of the decision and the guard.
                return ref
            look = _look(job.session_id, read, job.keys, found, items)
            draft = Draft(call, look, rules.policy, self.hooks)
            value, validation = await self._decide(ref, job, look, draft)
            if draft.empty:
                await core.store.settle(ref)
                return Written(value, 0, head, look.now_ms, False, b"", _read_set_of(call), validation.stale)
            _check_room(read, draft, rules.policy.records_max)
            if core.makers is not None and not read.view.exists and not job.intent.background:
                await core.makers.check(call.principal, call.agent_id, ref)
            if core.quotas is not None and not job.intent.background and core.quotas.concern(call.principal, ref):
                await core.quotas.check(call.principal, ref, draft.growth())
            await check_item_room(core.store, ref, look, draft)
        except Refusal as refusal:
            await refuse(core, ref, refusal, head)
        commit = self._commit(ref, job, read, look, draft, validation, rules.config_version)
        result = await carry_out(core, ref, commit, head)
        if isinstance(result, Committed):
            read_set = _read_set_of(call)
            if read_set is not None:
                left = draft.left_behind(result.revision)
                read_set = advance(read_set, ref.name, result.revision, left, validation)
            revision = result.revision
            for collection, tell in self._told.items():
                if any(key.startswith(collection) for key in draft.written):
                    tell(job.session_id)
            return Written(value, revision, revision, look.now_ms, False, draft.reply, read_set, validation.stale)
        if isinstance(result, Replayed):
            return await self._replay(ref, job, result.remembered)
        try:
            return await after_failure(core, ref, result, call)
        except Refusal as refusal:
            await refuse(core, ref, refusal, head)

    def _admit(self, ref: NamespaceRef, job: _Job[T], read: ReadResult) -> Remembered | None:
        if job.intent.background:
            if read.view.deleted:
                raise not_found(job.session_id)
            return None
        try:
            fences = fences_of(job.call, ref.name)
            presented = chain(job.intent.presents, job.call.presents(ref.name))
            verbs = job.intent.verbs
            return admit_write(self.core, job.call, ref.name, read, job.meaning, fences, presented, (), verbs)
        except Refusal as refusal:
            if refusal.reason is Reason.NAMESPACE_DELETED:
                raise not_found(job.session_id) from None
            raise

    async def _decide(self, ref: NamespaceRef, job: _Job[T], look: Look, draft: Draft) -> tuple[T, Validation]:
        refusal: Refusal | None = None
        value: T | None = None
        try:
            _check_state(look, job.intent.need)
            value = job.decide(look, draft)
        except Refusal as error:
            refusal = error
        # The read set comes before the decision in the order of checks, but what it has to check depends on what is
        # written.
        validation = await validate(self.core, job.call, ref, draft.written) if job.call.tokens else UNGUARDED
        if refusal is not None:
            raise refusal
        return value, validation  # type: ignore[return-value] # decided, as nothing was raised

    def _commit(
        self,
        ref: NamespaceRef,
        job: _Job[T],
        read: ReadResult,
        look: Look,
        draft: Draft,
        validation: Validation,
        config_version: int,
    ) -> Commit:
        now_ms = look.now_ms
        ends_ms = [draft.not_after_ms]
        checks: list[Check] = []
        depended = dict(zip(job.keys[: job.checked], read.entries, strict=False))
        depended.update((item.key, item) for item in look.items)
        for key, entry in depended.items():
            checks.append(key_check(key, entry, now_ms))
            if entry is not None and entry.live_until_ms > now_ms:
                # A value that ends between this decision and the commit would have been decided on differently.
                ends_ms.append(entry.live_until_ms)
        for scan, found in zip(job.intent.scans, look.scans, strict=True):
            if scan.guard is not None:
                checks.append(CollectionCheck(scan.collection, scan.guard, _stamp(scan, found)))
        if draft.changes_items:
            checks += [key_check(key, look.entries[key], now_ms) for key in self._hook_keys]
        if validation.not_after_ms is not None:
            ends_ms.append(validation.not_after_ms)
        call = job.call
        return Commit(
            epoch=look.view.epoch,
            config_version=config_version,
            checks=(*checks, *draft.checks, *validation.checks),
            mutations=draft.mutations(),
            request=None if call.request is None else RequestRecord(call.request, job.meaning, draft.reply),
            fences=fences_of(call, ref.name),
            not_after_ms=None if min(ends_ms) == NEVER_MS else min(ends_ms),
        )

    async def _replay(self, ref: NamespaceRef, job: _Job[T], remembered: Remembered) -> Written[T]:
        await self.core.store.settle(ref)
        view = (await self.core.store.read(ref, ())).view
        # As with any write: what the first execution had checked is not remembered, so the set stays as it was.
        read_set = _read_set_of(job.call)
        return Written(None, remembered.revision, view.head, view.now_ms, True, remembered.reply, read_set, ())


def not_found(session_id: str) -> Refusal:
    """Returns the refusal of a call on a session that was never opened, or was purged."""
    return Refusal(Reason.SESSION_NOT_FOUND, f"session {session_id!r} does not exist; OpenSession opens one")


def closed(session_id: str) -> Refusal:
    """Returns the refusal of a write to a closed session."""
    return Refusal(Reason.SESSION_CLOSED, f"session {session_id!r} is closed; it can be read, forked and purged")


def recorded(
    call: Call, look: Look, keys: Iterable[str] = (), lists: Iterable[tuple[str, StampMode, int]] = ()
) -> ReadSet | None:
    """Returns the caller's read set, extended by what was read if the call asks for that.

    Args:
        call: who reads.
        look: what was read.
        keys: visible keys of it.
        lists: collections with mode and stamp.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    tokens = call.tokens
    if tokens is None or not tokens.record:
        return _read_set_of(call)
    namespace, head = namespace_of(look.session_id), look.view.head
    seen: dict[str, KeySeen] = {}
    for key in keys:
        record = look.record(key)
        seen[key] = KeySeen(0) if record is None else KeySeen(record.version(look.now_ms), record.ends_ms(look.now_ms))
    read_set = (tokens.read_set or NOTHING_READ).with_keys(namespace, head, seen)
    for collection, mode, stamp in lists:
        read_set = read_set.with_collection(namespace, head, collection, mode, CollectionSeen(stamp))
    return read_set


def _look(
    session_id: str,
    read: ReadResult,
    keys: Sequence[str],
    scans: tuple[ScanResult, ...],
    items: tuple[StoredEntry, ...] = (),
) -> Look:
    entries = dict(zip(keys, read.entries, strict=True))
    entries.update((item.key, item) for item in items)
    record = decode_entry(entries[INFO])
    info = None if record is None or not record.version(read.view.now_ms) else decode_info(record)
    return Look(session_id, read.view, info, entries, scans, items)


def _stamp(scan: Scan, found: ScanResult) -> int:
    """Returns what a scan's guard compares; 0 without a guard."""
    if scan.guard is None:
        return 0
    return found.stamps.members if scan.guard is StampMode.MEMBERS else found.stamps.changed


def _check_state(look: Look, need: Need) -> None:
    if need is Need.NONE:
        return
    if look.info is None:
        raise not_found(look.session_id)
    if need is Need.OPEN and look.info.status is SessionStatus.CLOSED:
        raise closed(look.session_id)


def _read_set_of(call: Call) -> ReadSet | None:
    return None if call.tokens is None else call.tokens.read_set


def _check_room(read: ReadResult, draft: Draft, records_max: int) -> None:
    fresh, held = draft.fresh_count, read.record_count or 0
    if fresh and held + fresh > records_max:
        raise exhausted("namespace", held + fresh, records_max, "too many records")
