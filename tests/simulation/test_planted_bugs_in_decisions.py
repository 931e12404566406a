"""Bugs planted in the server's handling of read sets, resolutions and the conflict queue are caught.

Nothing here can be switched off in the product: each bug replaces a function of the server for one test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.simulation.thinking import run_thinking

from noosphere.consistency import (
    NEVER_MS,
    UNCONDITIONAL,
    CausalContext,
    Decision,
    Guard,
    KeySeen,
    NamespaceSeen,
    ReadSet,
    StampMode,
    decide_resolve,
)
from noosphere.consistency.revision import REVISION_MAX
from noosphere.server.memory import expiry, guards, staleness, tasks, writes
from noosphere.server.memory.guards import Validation
from noosphere.server.memory.internal import CONFLICTS
from noosphere.server.memory.types import Call, DeleteOp, PutOp

SEEDS = range(160)

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


def wrap(patch: Patch, name: str, around: Callable[..., Any], *owners: Any) -> None:
    """Replaces a function, in every module that has it, by ``around(original, *arguments)``."""
    original = getattr(owners[0], name)
    for owner in owners:
        patch.setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))


def validated_otherwise(patch: Patch, change: Callable[[Validation], Validation]) -> None:
    async def validated(validate: Any, *args: Any) -> Validation:
        return change(await validate(*args))

    wrap(patch, "validate", validated, writes, tasks)


# -- what is guarded ---------------------------------------------------------------------------------


def a_guard_on_members_ignores_creation(patch: Patch) -> None:
    def is_as_seen(original: Any, seen: NamespaceSeen, collection: str, mode: StampMode, stamp: int) -> bool:
        return mode is StampMode.MEMBERS or bool(original(seen, collection, mode, stamp))

    wrap(patch, "is_as_seen", is_as_seen, NamespaceSeen)


def a_guard_on_values_ignores_what_was_replaced(patch: Patch) -> None:
    def is_as_seen(original: Any, seen: NamespaceSeen, collection: str, mode: StampMode, stamp: int) -> bool:
        return mode is StampMode.CHANGED or bool(original(seen, collection, mode, stamp))

    wrap(patch, "is_as_seen", is_as_seen, NamespaceSeen)


def a_guard_on_a_key_does_not_cover_its_list(patch: Patch) -> None:
    def covers(original: Any, guard: Guard, namespace: str, name: str) -> bool:
        return bool(original(guard, namespace, name)) and (not guard.prefix or name.startswith(guard.prefix))

    wrap(patch, "covers", covers, Guard)


def a_guard_covers_every_namespace(patch: Patch) -> None:
    wrap(patch, "covers", lambda covers, guard, *args: covers(guard._replace(namespace=""), *args), Guard)


def what_lies_elsewhere_need_not_be_allowed(patch: Patch) -> None:
    async def validated(validate: Any, core: Any, call: Call, *args: Any) -> Validation:
        tokens = call.tokens._replace(allow_checked=True) if call.tokens is not None else None
        found: Validation = await validate(core, call._replace(tokens=tokens), *args)
        return found

    wrap(patch, "validate", validated, writes, tasks)


def what_lies_elsewhere_is_open_to_everybody(patch: Patch) -> None:
    class Lenient:
        def __init__(self, core: Any) -> None:
            self._core = core

        def __getattr__(self, name: str) -> Any:
            return getattr(self._core, name) if name != "admit_reader" else lambda *args: None

    async def validated(validate: Any, core: Any, *args: Any) -> Validation:
        found: Validation = await validate(Lenient(core), *args)
        return found

    wrap(patch, "validate", validated, writes, tasks)


# -- loss --------------------------------------------------------------------------------------------


def what_was_seen_and_lost_is_accepted(patch: Patch) -> None:
    """Revisions above the cut in a read set: nothing tells them from those that were never lost."""

    def presents(_: Any, call: Call, namespace: str) -> Iterator[int]:
        return iter(())

    wrap(patch, "presents", presents, Call)
    patch.setattr(staleness, "check_presented", lambda revisions, state: None)


def what_was_seen_and_lost_elsewhere_is_accepted(patch: Patch) -> None:
    patch.setattr(staleness, "check_presented", lambda revisions, state: None)


def absence_is_not_lost(patch: Patch) -> None:
    """The oldest head is no version, but what was absent then was so under a history that is gone."""
    patch.setattr(NamespaceSeen, "revisions", lambda part: (seen.version for seen in part.keys.values()))


# -- time --------------------------------------------------------------------------------------------


def not_after_is_ignored(patch: Patch) -> None:
    validated_otherwise(patch, lambda validation: validation._replace(not_after_ms=None))


def nothing_ends_while_somebody_thinks(patch: Patch) -> None:
    def without_ends(seen: NamespaceSeen) -> NamespaceSeen:
        keys = {key: KeySeen(was.version) for key, was in seen.keys.items()}
        return seen._replace(
            keys=keys,
            collections={name: was._replace(expires_at_ms=NEVER_MS) for name, was in seen.collections.items()},
        )

    def differ(differences: Any, present: staleness.Present, seen: NamespaceSeen) -> Any:
        return differences(present._replace(ended=frozenset()), without_ends(seen))

    wrap(patch, "differences", differ, guards, staleness)


def what_ended_unswept_is_still_listed(patch: Patch) -> None:
    async def ended(*args: Any) -> frozenset[str]:
        return frozenset()

    patch.setattr(staleness, "_ended", ended)


def ones_own_values_never_end(patch: Patch) -> None:
    patch.setattr(guards, "_own_ends", lambda written, validation: {})


def a_refresh_leaves_expiry_to_the_sweeper(patch: Patch) -> None:
    async def nothing(*args: Any) -> bool:
        return False

    patch.setattr(staleness, "_expire_ended", nothing)


# -- who comes in between ----------------------------------------------------------------------------


def the_commit_checks_nothing_again(patch: Patch) -> None:
    validated_otherwise(patch, lambda validation: validation._replace(checks=()))


def advancing_checks_only_what_is_guarded(patch: Patch) -> None:
    def checks(original: Any, present: Any, seen: Any, stale: Any, valid: Any, written: Any) -> Any:
        return original(present, seen, stale, frozenset(), written)

    wrap(patch, "_checks", checks, guards)


# -- what is seen ------------------------------------------------------------------------------------


def advance_hides_a_peers_change(patch: Patch) -> None:
    """Whatever the reader writes counts as seen, though others have changed it since."""

    def advance(original: Any, seen: ReadSet, namespace: str, revision: int, written: Any, validation: Any) -> ReadSet:
        own = seen.namespaces.get(namespace, NamespaceSeen(0))
        written = {
            key: (own.keys[key].version if key in own.keys else before, after)
            for key, (before, after) in written.items()
        }
        everything = validation._replace(valid=frozenset(own.collections))
        advanced: ReadSet = original(seen, namespace, revision, written, everything)
        return advanced

    wrap(patch, "advance", advance, writes, tasks)


def nobody_advances(patch: Patch) -> None:
    wrap(patch, "advance", lambda advance, seen, *args: seen, writes, tasks)


def the_later_reading_counts(patch: Patch) -> None:
    def with_keys(original: Any, seen: ReadSet, namespace: str, head: int, keys: Any) -> ReadSet:
        part = seen.namespaces.get(namespace, NamespaceSeen(head))
        kept = {key: was for key, was in part.keys.items() if key not in keys}
        forgetful = ReadSet({**seen.namespaces, namespace: part._replace(keys=kept)})
        return original(forgetful, namespace, head, keys)  # type: ignore[no-any-return] # the original's

    wrap(patch, "with_keys", with_keys, ReadSet)


def a_refresh_returns_what_it_was_given(patch: Patch) -> None:
    async def renewed(core: Any, present: Any, seen: Any, whole: NamespaceSeen) -> NamespaceSeen:
        return whole

    patch.setattr(staleness, "_renewed", renewed)


def a_warning_says_nothing(patch: Patch) -> None:
    validated_otherwise(patch, lambda validation: validation._replace(stale=()))


def nobody_is_named(patch: Patch) -> None:
    async def explained(core: Any, present: Any, seen: Any, stale: Any) -> Any:
        return stale

    for module in (guards, staleness):
        patch.setattr(module, "explained", explained)


def whoever_came_before_a_crash_is_not_named(patch: Patch) -> None:
    patch.setattr(staleness, "revisions_back", lambda head, count, cuts: max(0, head - count))


def a_decision_overwrites_what_it_has_not_seen(patch: Patch) -> None:
    """A put or delete without a condition replaces whatever is there instead of what the read set saw."""

    def op(original: Any, op: Any, version: int, record: Any, now_ms: int, call: Call) -> Any:
        return original(op, 0 if record is None else record.version(now_ms), record, now_ms, call)

    wrap(patch, "_on_what_was_seen", op, writes)


def a_condition_that_is_given_does_not_count(patch: Patch) -> None:
    def unconditional(original: Any, op: Any, *args: Any) -> Any:
        if isinstance(op, PutOp):
            op = PutOp(op.key, op.put._replace(precondition=UNCONDITIONAL))
        elif isinstance(op, DeleteOp):
            op = DeleteOp(op.key, UNCONDITIONAL)
        return original(op, *args)

    wrap(patch, "_on_what_was_seen", unconditional, writes)


# -- conflicts ---------------------------------------------------------------------------------------


def resolve_drops_an_unseen_sibling(patch: Patch) -> None:
    def resolved(original: Any, record: Any, key: str, resolution: Any, seen: Any, at: Any) -> Decision:
        found: Decision = original(record, key, resolution, CausalContext(REVISION_MAX), at)
        return found

    wrap(patch, "decide_resolve", resolved, writes)


def a_single_value_is_resolved_as_well(patch: Patch) -> None:
    def resolved(record: Any, key: str, resolution: Any, seen: Any, at: Any) -> Decision:
        if record is not None and len(record.live(at.now_ms)) == 1:
            twice = (*record.siblings, record.siblings[-1])
            return decide_resolve(record._replace(siblings=twice), key, resolution, seen, at)
        return decide_resolve(record, key, resolution, seen, at)

    patch.setattr(writes, "decide_resolve", resolved)


def what_is_kept_lives_for_ever(patch: Patch) -> None:
    def resolved(original: Any, record: Any, key: str, resolution: Any, seen: Any, at: Any) -> Decision:
        found: Decision = original(record, key, resolution, seen, at)
        assert found.record is not None
        for_ever = tuple(sibling._replace(expires_at_ms=NEVER_MS) for sibling in found.record.siblings)
        return found._replace(record=found.record._replace(siblings=for_ever))

    wrap(patch, "decide_resolve", resolved, writes)


def queued_otherwise(patch: Patch, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
    wrap(patch, "mutations_of", lambda made, *args: change(made(*args)), expiry, writes, tasks)


def a_queue_entry_is_left_after_the_resolution(patch: Patch) -> None:
    queued_otherwise(
        patch, lambda made: tuple(m for m in made if m.data is not None or not m.key.startswith(CONFLICTS))
    )


def the_queue_forgets_the_second_conflict_of_a_commit(patch: Patch) -> None:
    def first_only(made: tuple[Any, ...]) -> tuple[Any, ...]:
        begun = [m for m in made if m.key == CONFLICTS]
        return tuple(m for m in made if m not in begun[1:])

    queued_otherwise(patch, first_only)


def a_conflict_waits_since_the_last_one(patch: Patch) -> None:
    """It began anew; that the sweeper has not come between the two must not matter."""

    def put(original: Any, *args: Any) -> Decision:
        found: Decision = original(*args)
        return found._replace(conflict_anew=False)

    wrap(patch, "decide_put", put, writes)


BUGS: list[Bug] = [
    a_guard_on_members_ignores_creation,
    a_guard_on_values_ignores_what_was_replaced,
    a_guard_on_a_key_does_not_cover_its_list,
    a_guard_covers_every_namespace,
    what_lies_elsewhere_need_not_be_allowed,
    what_lies_elsewhere_is_open_to_everybody,
    what_was_seen_and_lost_is_accepted,
    what_was_seen_and_lost_elsewhere_is_accepted,
    absence_is_not_lost,
    not_after_is_ignored,
    nothing_ends_while_somebody_thinks,
    what_ended_unswept_is_still_listed,
    ones_own_values_never_end,
    a_refresh_leaves_expiry_to_the_sweeper,
    the_commit_checks_nothing_again,
    advancing_checks_only_what_is_guarded,
    advance_hides_a_peers_change,
    nobody_advances,
    the_later_reading_counts,
    a_refresh_returns_what_it_was_given,
    a_warning_says_nothing,
    nobody_is_named,
    whoever_came_before_a_crash_is_not_named,
    a_decision_overwrites_what_it_has_not_seen,
    a_condition_that_is_given_does_not_count,
    resolve_drops_an_unseen_sibling,
    a_single_value_is_resolved_as_well,
    what_is_kept_lives_for_ever,
    a_queue_entry_is_left_after_the_resolution,
    the_queue_forgets_the_second_conflict_of_a_commit,
    a_conflict_waits_since_the_last_one,
]


def first_seed() -> int | None:
    """Returns the first seed whose history catches the bug: what differs is found by a comparison, never by a crash."""
    for seed in SEEDS:
        try:
            run_thinking(seed)
        except AssertionError:
            return seed
    return None


@pytest.mark.campaign
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_histories_catch(bug: Bug, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    assert first_seed() is not None
