"""Bugs planted in the real server are caught by seeds: a simulation that finds nothing proves nothing.

Nothing here can be switched off in the product: each bug replaces a function of the server for one test.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.simulation.test_planted_bugs import wrap
from tests.simulation.test_simulated_worlds import outcome_of

from noosphere.consistency import CausalContext, RequestMemory, claims
from noosphere.server.ports.store import Compacted
from noosphere.server.storage.embedded import EmbeddedStore, store
from noosphere.server.storage.embedded.namespace import Namespace
from noosphere.server.storage.embedded.sqlite import SqliteJournal

Patch = pytest.MonkeyPatch

SEEDS_MAX = 60
"""So many seeds are tried at most; most bugs show in the first few."""


def commits_are_acknowledged_before_they_are_synced(patch: Patch) -> None:
    def made(init: Any, self: Any, folder: Any, durability: str) -> None:
        init(self, folder, "os")

    wrap(patch, SqliteJournal, "__init__", made)


def what_is_not_synced_is_shown(patch: Patch) -> None:
    def read(real: Any, self: Any, *args: Any, **options: Any) -> Any:
        return real(self, *args, **{**options, "accepted": True})

    wrap(patch, EmbeddedStore, "read", read)


def requests_are_forgotten(patch: Patch) -> None:
    patch.setattr(RequestMemory, "find", lambda *_: None)


def fences_are_not_checked(patch: Patch) -> None:
    patch.setattr(Namespace, "fence", lambda *_: 0)


def a_crash_begins_no_epoch(patch: Patch) -> None:
    async def settle(real: Any, coordinator: Any, recovered: Any, recovery: Any) -> int:
        known = max((record.epoch for record in await coordinator.epochs()), default=0)
        return known or int(await real(coordinator, recovered, recovery))

    wrap(patch, store, "settle_epoch", settle)


def recovery_leaves_the_last_batch_out(patch: Patch) -> None:
    def recover(real: Any, self: Any) -> Any:
        found = real(self)
        return found._replace(batches=found.batches[:-1])

    wrap(patch, SqliteJournal, "recover", recover)


def every_context_covers_everything(patch: Patch) -> None:
    patch.setattr(CausalContext, "covers", lambda *_: True)


def claims_are_taken_from_their_holders(patch: Patch) -> None:
    def claimable(real: Any, record: Any, where: Any, now_ms: int) -> bool:
        if record.claim is not None and not record.claim.done:
            record = record._replace(claim=None)
        return bool(real(record, where, now_ms))

    wrap(patch, claims, "claimable", claimable)
    from noosphere.server.memory import tasks

    patch.setattr(tasks, "claimable", claims.claimable)


def watches_leave_commits_out(patch: Patch) -> None:
    async def changes(real: Any, self: Any, *args: Any, **options: Any) -> Any:
        found = await real(self, *args, **options)
        if isinstance(found, Compacted) or len(found.batches) < 2:
            return found
        return found._replace(batches=found.batches[1:])

    wrap(patch, EmbeddedStore, "changes", changes)


BUGS: Sequence[Callable[[Patch], None]] = (
    commits_are_acknowledged_before_they_are_synced,
    what_is_not_synced_is_shown,
    requests_are_forgotten,
    fences_are_not_checked,
    a_crash_begins_no_epoch,
    recovery_leaves_the_last_batch_out,
    every_context_covers_everything,
    claims_are_taken_from_their_holders,
    watches_leave_commits_out,
)


@pytest.mark.campaign
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    try:
        for seed in range(SEEDS_MAX):
            if problems := outcome_of(seed, "embedded").problems:
                print(f"seed {seed}: {problems[0]}")
                return
    finally:
        gc.collect()
    raise AssertionError(f"no seed of {SEEDS_MAX} has caught it")
