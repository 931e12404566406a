"""Expiry and reaping: what the sweeper, and a scan that meets expired records, commit."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.consistency import Decision, Record, decide_expiry, decide_reap
from noosphere.consistency.limits import COMMIT_MUTATIONS_MAX

from ..ports.store import Commit, Committed, KeyCheck, Mutation, NamespaceRef, StoredEntry
from .codec import decode_record, encode_events, encode_record
from .core import Core


def due_ms(record: Record, retention_ms: int) -> int:
    """Returns when the sweeper should look at a record: at its next expiry, or to reap its tombstone."""
    return record.next_expiry_ms if record.deleted_ms == 0 else record.deleted_ms + retention_ms


def mutation(key: str, decision: Decision, retention_ms: int) -> Mutation:
    """Returns a decision as the store carries it out."""
    record = decision.record
    if record is None:
        return Mutation(key, None, 0, 0, False, b"", decision.raise_floor_context)
    return Mutation(
        key=key,
        data=encode_record(record),
        live_until_ms=record.live_until_ms,
        due_ms=due_ms(record, retention_ms),
        members=decision.members,
        event=encode_events(decision.events),
    )


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
    for start in range(0, len(keys), COMMIT_MUTATIONS_MAX):
        part = keys[start : start + COMMIT_MUTATIONS_MAX]
        read = await core.store.read(ref, part, accepted=True)
        now_ms = read.view.now_ms
        rules = core.rules(ref.name)
        checks: list[KeyCheck] = []
        mutations: list[Mutation] = []
        for key, entry in zip(part, read.entries, strict=True):
            if entry is None:
                continue
            record = decode_record(entry.data, entry.revision)
            decision = decide_expiry(record, now_ms)
            if decision is None and reap:
                decision = decide_reap(record, now_ms, rules.policy.tombstone_retention_ms)
            if decision is not None:
                checks.append(key_check(key, entry, now_ms))
                mutations.append(mutation(key, decision, rules.policy.tombstone_retention_ms))
        if mutations:
            # Whoever wins the race with this commit has done the same expiry in its own.
            config_version = max(rules.config_version, read.view.config_version)
            result = await core.store.commit(
                ref, Commit(read.view.epoch, config_version, tuple(checks), tuple(mutations))
            )
            done = done or isinstance(result, Committed)
    return done
