"""Expiry and reaping: what the sweeper, and a scan that meets expired records, commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noosphere.consistency import NEVER_MS, Decision, Record, decide_expiry, decide_reap
from noosphere.consistency.limits import COMMIT_BYTES_MAX, COMMIT_MUTATIONS_MAX

from ..ports.store import Commit, Committed, KeyCheck, Mutation, NamespaceRef, NamespaceView, StoredEntry
from .codec import decode_record, encode_events, encode_record
from .core import Core
from .extension import NO_ADDITIONS, Additions, Change, ExtendedWrite
from .internal import CONFLICTS, QueueEntry, encode_queue_entry, is_internal, queue_key
from .types import ANONYMOUS

_OVERHEAD_BYTES = 4096
"""More than a key, its event and its entry of the conflict queue add to a record in a commit."""


def due_ms(record: Record, retention_ms: int) -> int:
    """Returns when the sweeper should look at a record: at its next expiry, or to reap its tombstone."""
    return record.next_expiry_ms if record.deleted_ms == 0 else record.deleted_ms + retention_ms


def mutations_of(decisions: Iterable[tuple[str, Decision]], now_ms: int, retention_ms: int) -> tuple[Mutation, ...]:
    """Returns decisions as the store carries them out, with what they mean for the conflict queue.

    A record that begins to have several live values gets an entry in the queue, one that has a single value
    again loses it, in the same commit. Whether a sweep came between two conflicts of a key makes no difference.
    """
    made: list[Mutation] = []
    queue: list[Mutation] = []
    decisions = [(key, decision) for key, decision in decisions if not decision.noop]
    for key, decision in decisions:
        record = decision.record
        if record is None:
            made.append(Mutation(key, None, 0, 0, False, b"", decision.raise_floor_context))
            continue
        several = len(record.siblings) > 1 and len(record.live(now_ms)) > 1
        if record.queued is not None and (decision.conflict_anew or not several):
            queue.append(Mutation(queue_key(record.queued), None, 0, 0, False, b""))
            record = record._replace(queued=None)
        if several and record.queued is None:
            # The index is the mutation's place in the commit, which the store puts into the key.
            record = record._replace(queued=(0, len(decisions) + len(queue)))
            data = encode_queue_entry(QueueEntry(key, now_ms))
            queue.append(Mutation(CONFLICTS, data, NEVER_MS, NEVER_MS, False, b"", rev_slot=True))
        made.append(
            Mutation(
                key=key,
                data=encode_record(record),
                live_until_ms=record.live_until_ms,
                due_ms=due_ms(record, retention_ms),
                members=decision.members,
                event=encode_events(decision.events),
            )
        )
    return (*made, *queue)


def key_check(key: str, entry: StoredEntry | None, now_ms: int) -> KeyCheck:
    """Returns the check that a key is still as it was decided on."""
    if entry is None:
        return KeyCheck(key, 0, False)
    return KeyCheck(key, entry.revision, entry.live_until_ms > now_ms)


async def expire_keys(core: Core, ref: NamespaceRef, keys: Sequence[str]) -> bool:
    """Commits the expiry of what has expired among ``keys``; returns whether anything was committed."""
    return await _settle_keys(core, ref, keys, reap=False)


async def sweep_keys(core: Core, ref: NamespaceRef, keys: Sequence[str]) -> bool:
    """Commits expiry and reaping of what is due among ``keys``; returns whether anything was committed."""
    return await _settle_keys(core, ref, keys, reap=True)


async def _settle_keys(core: Core, ref: NamespaceRef, keys: Sequence[str], *, reap: bool) -> bool:
    done = False
    left = keys
    while left:
        # Each key may take an entry of the conflict queue along, and a copy that an extension keeps.
        read = await core.store.read(ref, left[: COMMIT_MUTATIONS_MAX // 3], accepted=True)
        part = left[: _fitting(read.entries)]
        left = left[len(part) :]
        now_ms = read.view.now_ms
        rules = core.rules(ref.name)
        checks: list[KeyCheck] = []
        due: list[tuple[str, Decision]] = []
        partial: list[Change] = []
        for key, entry in zip(part, read.entries, strict=False):
            if entry is None:
                continue
            if is_internal(key):
                # Nobody watches these and nobody holds a context of them: what has ended just goes.
                if entry.live_until_ms <= now_ms:
                    if trailing := _trailing(core, ref, key):
                        done = await _remove_with(core, ref, read.view, entry, trailing) or done
                        continue
                    checks.append(key_check(key, entry, now_ms))
                    due.append((key, Decision(None, live=False)))
                continue
            record = decode_record(entry.data, entry.revision)
            decision = decide_expiry(record, now_ms)
            if decision is None and reap:
                decision = decide_reap(record, now_ms, rules.policy.tombstone_retention_ms)
            if decision is not None:
                checks.append(key_check(key, entry, now_ms))
                due.append((key, decision))
                if decision.live:
                    partial.append(Change(key, entry, record, decision))
        if due:
            mutations = mutations_of(due, now_ms, rules.policy.tombstone_retention_ms)
            additions = await _additions(core, ref, read.view, partial, mutations)
            # Whoever wins the race with this commit has done the same expiry in its own.
            config_version = max(rules.config_version, read.view.config_version)
            commit = Commit(
                read.view.epoch,
                config_version,
                (*checks, *additions.checks),
                (*mutations, *additions.mutations),
            )
            result = await core.store.commit(ref, commit)
            done = done or isinstance(result, Committed)
    return done


def _trailing(core: Core, ref: NamespaceRef, key: str) -> str:
    return core.extension.trailing(key) if core.extension.concerns(ref.name) else ""


async def _remove_with(core: Core, ref: NamespaceRef, view: NamespaceView, entry: StoredEntry, collection: str) -> bool:
    """Removes an internal record that has ended and, in the same commit, what goes with it."""
    found = await core.store.scan(ref, collection, limit=COMMIT_MUTATIONS_MAX - 1, accepted=True)
    assert not found.more, "an extension promises that what goes together fits one commit"
    mutations = tuple(Mutation(each.key, None, 0, 0, False, b"") for each in (entry, *found.entries))
    config_version = max(core.rules(ref.name).config_version, view.config_version)
    checks = (key_check(entry.key, entry, view.now_ms),)
    return isinstance(await core.store.commit(ref, Commit(view.epoch, config_version, checks, mutations)), Committed)


async def _additions(
    core: Core, ref: NamespaceRef, view: NamespaceView, partial: Sequence[Change], mutations: Sequence[Mutation]
) -> Additions:
    """Returns what the namespace's extension adds where some values of a record end and others live on.

    What ends as a whole is no loss to anybody. Nothing is added that the commit has no room for: an expiry is settled
    in any case.
    """
    extension = core.extension
    if not partial or not extension.concerns(ref.name):
        return NO_ADDITIONS
    keys = extension.keys((), ())
    read = await core.store.read(ref, keys, accepted=True)
    entries = dict(zip(keys, read.entries, strict=True))
    write = ExtendedWrite(ANONYMOUS, ref, view, core.rules(ref.name).policy, entries)
    additions = await extension.extend(core.store, write, tuple(partial), len(mutations))
    size = sum(len(m.key.encode()) + len(m.data or b"") + len(m.event) for m in (*mutations, *additions.mutations))
    return additions if size <= COMMIT_BYTES_MAX else NO_ADDITIONS


def _fitting(entries: Sequence[StoredEntry | None]) -> int:
    """Returns how many of the first entries one commit can hold: what is left of siblings, and a copy, may be large."""
    size = count = 0
    for entry in entries:
        size += _OVERHEAD_BYTES + (0 if entry is None else 2 * len(entry.data))
        if count and size > COMMIT_BYTES_MAX:
            break
        count += 1
    return count
