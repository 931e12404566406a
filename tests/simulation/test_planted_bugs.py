"""Bugs planted in the real rules are caught, by the comparison with the model and the worst by the oracle alone.

Nothing here can be switched off in the product: each bug replaces a function of the rules for one test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.histories import Mismatch, run_history
from tests.simulation.oracle import SafetyViolation

from noosphere.consistency import (
    CausalContext,
    ConflictPolicy,
    Cut,
    LostRange,
    MergeType,
    NamespacePolicy,
    Record,
    RequestMemory,
    RequestRef,
    VersionClock,
    claims,
    decide,
    merge,
    order,
    record,
    revision,
)
from noosphere.consistency.limits import CLOCK_ENTRIES_MAX

SEEDS = range(600)

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


def wrap(patch: Patch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces ``owner.name`` by ``around(original, *arguments)``."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))


# -- the five of the first model -------------------------------------------------------------------


def one_context_for_all_clients(patch: Patch) -> None:
    """A client (or a cache in the server) that keeps one context per key instead of one per read."""
    newest: dict[str, CausalContext] = {}
    current = [""]

    def share(key: str, context: CausalContext | None) -> CausalContext | None:
        if context is not None and context.prefix >= newest.get(key, CausalContext()).prefix:
            newest[key] = context
        return newest[key] if context is not None else None

    def judged(judge: Any, held: Any, settled: Any, key: str, version: int, when: Any, at: Any) -> Any:
        current[0] = key
        return judge(held, settled, key, version, when._replace(context=share(key, when.context)), at)

    def acknowledged(acknowledge: Any, *args: Any) -> Any:
        version, context = acknowledge(*args)
        return version, share(current[0], context)

    wrap(patch, decide, "_judge", judged)
    wrap(patch, decide, "acknowledge", acknowledged)


def acknowledgement_counts_as_read(patch: Patch) -> None:
    def acknowledged(acknowledge: Any, at: int, *args: Any) -> Any:
        return acknowledge(at, *args)[0], CausalContext(at)

    wrap(patch, decide, "acknowledge", acknowledged)


def version_with_every_acknowledgement(patch: Patch) -> None:
    def acknowledged(acknowledge: Any, at: int, *args: Any) -> Any:
        version, context = acknowledge(at, *args)
        return at if version is None else version, context

    wrap(patch, decide, "acknowledge", acknowledged)


def no_floor(patch: Patch) -> None:
    def reaped(reap: Any, *args: Any) -> Any:
        decision = reap(*args)
        return decision and decision._replace(raise_floor_context=0)

    wrap(patch, decide, "decide_reap", reaped)


def the_floor_rises_above_the_dots(patch: Patch) -> None:
    """To the record's last change, which the sweep of an expired value moved: readers of the value are locked out."""

    def reaped(reap: Any, held: Record, *args: Any) -> Any:
        decision = reap(held, *args)
        return decision and decision._replace(raise_floor_context=held.stored)

    wrap(patch, decide, "decide_reap", reaped)


def no_epoch(patch: Patch) -> None:
    patch.setattr(revision, "next_revision", lambda head, epoch: head + 1)
    patch.setattr(order, "find_lost", lambda presented, cuts: None)


# -- what a write has seen ---------------------------------------------------------------------------


def settled_otherwise(patch: Patch, change: Callable[[decide.Settled, Record | None], decide.Settled]) -> None:
    wrap(patch, decide, "settle_expiry", lambda settle, held, now_ms: change(settle(held, now_ms), held))


def tombstones_are_not_unseen(patch: Patch) -> None:
    settled_otherwise(patch, lambda settled, held: settled._replace(siblings=settled.live))


def expiry_tombstone_gets_a_new_dot(patch: Patch) -> None:
    def moved(settled: decide.Settled, held: Record | None) -> decide.Settled:
        before = {sibling.dot: sibling.data for sibling in held.siblings} if held is not None else {}
        return settled._replace(
            siblings=tuple(
                s._replace(dot=0) if s.data is None and before[s.dot] is not None else s for s in settled.siblings
            )
        )

    settled_otherwise(patch, moved)


def expired_values_live_until_they_are_swept(patch: Patch) -> None:
    swept: list[bool] = []

    def expiry(decide_expiry: Any, *args: Any) -> Any:
        swept.append(True)
        try:
            return decide_expiry(*args)
        finally:
            swept.pop()

    wrap(patch, decide, "decide_expiry", expiry)
    wrap(patch, decide, "settle_expiry", lambda settle, held, now_ms: settle(held, now_ms if swept else 0))


def judged_otherwise(patch: Patch, change: Callable[..., Any]) -> None:
    """Changes precondition and circumstances before they are judged."""

    def judged(judge: Any, held: Any, settled: Any, key: str, version: int, when: Any, at: Any) -> Any:
        when, at = change(held, when, at)
        return judge(held, settled, key, version, when, at)

    wrap(patch, decide, "_judge", judged)


def policy_decides_although_a_version_was_given(patch: Patch) -> None:
    judged_otherwise(patch, lambda held, when, at: (when._replace(expected_version=None) if when.context else when, at))


def shared_namespaces_are_treated_as_private(patch: Patch) -> None:
    judged_otherwise(patch, lambda held, when, at: (when, at._replace(private=True)))


def last_writer_wins_everywhere(patch: Patch) -> None:
    last = ConflictPolicy.LAST_WRITER_WINS
    judged_otherwise(patch, lambda held, when, at: (when, at._replace(policy=last)))


def verdict_without(patch: Patch, **changes: Any) -> None:
    wrap(patch, decide, "_judge", lambda judge, *args: judge(*args)._replace(**changes))


def nothing_is_reported_as_overwritten(patch: Patch) -> None:
    verdict_without(patch, overwritten=())


def blind_writes_report_nothing(patch: Patch) -> None:
    def judged(judge: Any, *args: Any) -> Any:
        verdict = judge(*args)
        return verdict._replace(overwritten=()) if args[4].blind else verdict

    wrap(patch, decide, "_judge", judged)


def concurrent_deletes_are_not_reported(patch: Patch) -> None:
    verdict_without(patch, undone_delete=False)


def seventeen_siblings(patch: Patch) -> None:
    patch.setattr(decide, "SIBLINGS_MAX", 17)


def fifteen_siblings(patch: Patch) -> None:
    patch.setattr(decide, "SIBLINGS_MAX", 15)


def version_zero_passes_over_a_live_value(patch: Patch) -> None:
    def checked(check: Any, key: str, version: int, when: Any, settled: Any) -> None:
        if when.expected_version != 0:
            check(key, version, when, settled)

    wrap(patch, decide, "_check_version", checked)


def tombstones_have_versions(patch: Patch) -> None:
    def checked(check: Any, key: str, version: int, when: Any, settled: Any) -> None:
        newest = max((sibling.dot for sibling in settled.siblings), default=0)
        check(key, version or newest, when, settled)

    wrap(patch, decide, "_check_version", checked)


def nothing_to_delete_is_noticed_after_the_context(patch: Patch) -> None:
    def deleted(delete: Any, held: Any, key: str, when: Any, at: Any) -> Any:
        settled = decide.settle_expiry(held, at.now_ms)
        version = held.version(at.now_ms) if held is not None else 0
        decide._check_version(key, version, when, settled)
        decide._judge(held, settled, key, version, when, at)
        return delete(held, key, when, at)

    wrap(patch, decide, "decide_delete", deleted)


def reaping_comes_too_early(patch: Patch) -> None:
    wrap(patch, decide, "decide_reap", lambda reap, held, now_ms, retention_ms: reap(held, now_ms, retention_ms - 1))


# -- resolutions -----------------------------------------------------------------------------------


def resolve_drops_what_was_not_seen(patch: Patch) -> None:
    def resolved(resolve: Any, held: Any, key: str, resolution: Any, seen: Any, at: Any) -> Any:
        return resolve(held, key, resolution, CausalContext(revision.REVISION_MAX), at)

    wrap(patch, decide, "decide_resolve", resolved)


def what_is_kept_lives_for_ever(patch: Patch) -> None:
    def resolved(resolve: Any, *args: Any) -> Any:
        decision = resolve(*args)
        for_ever = tuple(s._replace(expires_at_ms=revision.NEVER_MS) for s in decision.record.siblings)
        return decision._replace(record=decision.record._replace(siblings=for_ever))

    wrap(patch, decide, "decide_resolve", resolved)


# -- loss ------------------------------------------------------------------------------------------


def the_first_lost_revision_is_not_lost(patch: Patch) -> None:
    def found(find: Any, presented: int, cuts: Iterable[Cut]) -> LostRange | None:
        lost: LostRange | None = find(presented, cuts)
        return None if lost is not None and presented == lost.after + 1 else lost

    wrap(patch, order, "find_lost", found)


def the_last_surviving_revision_is_lost(patch: Patch) -> None:
    wrap(patch, order, "find_lost", lambda find, presented, cuts: find(presented + (presented > 0), cuts))


def of_several_lost_revisions_any_is_told(patch: Patch) -> None:
    def checked(check: Any, revisions: Iterable[int], state: Any) -> None:
        for presented in revisions:
            check((presented,), state)

    wrap(patch, order, "check_presented", checked)


def only_the_newest_cut_counts(patch: Patch) -> None:
    wrap(patch, order, "find_lost", lambda find, presented, cuts: find(presented, tuple(cuts)[-1:]))


# -- requests --------------------------------------------------------------------------------------


def answered_calls_are_forgotten_one_too_far(patch: Patch) -> None:
    def remember(original: Any, memory: RequestMemory, ref: RequestRef, call: Any) -> None:
        original(memory, ref._replace(answered_through=min(ref.answered_through + 1, ref.sequence - 1)), call)

    wrap(patch, RequestMemory, "remember", remember)


def late_copies_are_executed(patch: Patch) -> None:
    patch.setattr(RequestMemory, "check_room", lambda memory, ref, now_ms: None)


def any_request_under_a_known_id_is_a_retry(patch: Patch) -> None:
    patch.setattr(order, "check_replay", lambda found, wanted: None)


# -- clocks ----------------------------------------------------------------------------------------


def folding_forgets_what_it_folds(patch: Patch) -> None:
    wrap(patch, VersionClock, "written_by", lambda write, clock, actor: write(clock, actor)._replace(base=clock.base))


def folding_drops_the_newest(patch: Patch) -> None:
    def written(clock: VersionClock, actor: str) -> VersionClock:
        rest = tuple(entry for entry in clock.entries if entry[0] != actor)[: CLOCK_ENTRIES_MAX - 1]
        return VersionClock((*rest, (actor, 0)), clock.base)

    patch.setattr(VersionClock, "written_by", written)


def a_new_life_forgets_the_reaped_one(patch: Patch) -> None:
    wrap(patch, decide, "VersionClock", lambda clock, base=0: clock())


# -- merges ----------------------------------------------------------------------------------------


def merging_counts_as_reading(patch: Patch) -> None:
    wrap(patch, decide, "decide_merge", lambda merged, *args: merged(*args)._replace(sole=True, live=True))


def removal_ignores_its_context(patch: Patch) -> None:
    wrap(patch, merge, "_set", lambda update, op, state: update(replace(op, context=None), state))


def one_and_true_are_the_same_element(patch: Patch) -> None:
    wrap(patch, merge, "_canonical", lambda canonical, value: canonical(int(value) if value in (0, 1) else value))


def a_trimmed_log_forgets_how_much(patch: Patch) -> None:
    wrap(patch, merge, "_log", lambda append, *args: append(*args)._replace(trimmed=0))


def a_log_loses_one_entry_at_its_limit(patch: Patch) -> None:
    wrap(patch, merge, "_log", lambda append, op, state, bytes_max: append(op, state, bytes_max - 1))


def a_plain_put_takes_a_typed_record_without_a_version(patch: Patch) -> None:
    def put(original: Any, held: Record | None, *args: Any) -> Any:
        return original(held._replace(merge_type=MergeType.NONE) if held is not None else None, *args)

    wrap(patch, decide, "decide_put", put)


# -- claims ----------------------------------------------------------------------------------------


def work_is_accepted_after_the_lease(patch: Patch) -> None:
    def held(original: Any, found: Any, key: str, fence: int, actor: str, now_ms: int) -> Any:
        return original(found, key, fence, actor, now_ms - 5)

    wrap(patch, claims, "_held", held)


def any_fence_of_the_holder_will_do(patch: Patch) -> None:
    def held(original: Any, found: Record | None, key: str, fence: int, actor: str, now_ms: int) -> Any:
        claim = found.claim if found is not None else None
        return original(found, key, claim.fence if claim is not None else fence, actor, now_ms)

    wrap(patch, claims, "_held", held)


def done_tasks_are_handed_out_again(patch: Patch) -> None:
    def free(claimable: Any, found: Record, where: Any, now_ms: int) -> bool:
        done = found.claim is not None and found.claim.done
        return bool(claimable(found._replace(claim=None) if done else found, where, now_ms))

    wrap(patch, claims, "claimable", free)


def renewing_moves_the_fence(patch: Patch) -> None:
    def renewed(renew: Any, *args: Any) -> Any:
        decision = renew(*args)
        return decision._replace(record=decision.record._replace(claim=decision.record.claim._replace(fence=0)))

    wrap(patch, claims, "decide_renew", renewed)


def a_put_ends_a_claim(patch: Patch) -> None:
    wrap(patch, decide, "_rewritten", lambda rewrite, *args: rewrite(*args)._replace(claim=None))


def a_claim_outlives_the_task(patch: Patch) -> None:
    def rewritten(rewrite: Any, held: Record | None, *args: Any) -> Record:
        new: Record = rewrite(held, *args)
        return new._replace(claim=held.claim if held is not None else None)

    wrap(patch, decide, "_rewritten", rewritten)


def true_is_one(patch: Patch) -> None:
    def matching(found: Record, where: tuple[tuple[str, Any], ...]) -> bool:
        held = dict(found.attributes)
        return all(held.get(name) == wanted for name, wanted in where)

    patch.setattr(claims, "matches", matching)


# -- policies, reads ---------------------------------------------------------------------------------


def the_shortest_prefix_decides(patch: Patch) -> None:
    def for_key(policy: NamespacePolicy, key: str) -> ConflictPolicy:
        matching = [(len(prefix), found) for prefix, found in policy.prefix_policies if key.startswith(prefix)]
        return min(matching)[1] if matching else policy.conflict_policy

    patch.setattr(NamespacePolicy, "for_key", for_key)


def a_read_of_nothing_covers_nothing(patch: Patch) -> None:
    wrap(patch, record, "seen_by_reader", lambda seen, held, now_ms, head: seen(held, now_ms, 0))


LOSSES: list[Bug] = [
    one_context_for_all_clients,
    acknowledgement_counts_as_read,
    version_with_every_acknowledgement,
    no_floor,
    no_epoch,
    tombstones_are_not_unseen,
    nothing_is_reported_as_overwritten,
    blind_writes_report_nothing,
    concurrent_deletes_are_not_reported,
    version_zero_passes_over_a_live_value,
    resolve_drops_what_was_not_seen,
    the_first_lost_revision_is_not_lost,
    only_the_newest_cut_counts,
    merging_counts_as_reading,
    work_is_accepted_after_the_lease,
    done_tasks_are_handed_out_again,
]
DEVIATIONS: list[Bug] = [
    what_is_kept_lives_for_ever,
    expiry_tombstone_gets_a_new_dot,
    expired_values_live_until_they_are_swept,
    policy_decides_although_a_version_was_given,
    shared_namespaces_are_treated_as_private,
    last_writer_wins_everywhere,
    seventeen_siblings,
    fifteen_siblings,
    tombstones_have_versions,
    nothing_to_delete_is_noticed_after_the_context,
    reaping_comes_too_early,
    the_floor_rises_above_the_dots,
    the_last_surviving_revision_is_lost,
    of_several_lost_revisions_any_is_told,
    answered_calls_are_forgotten_one_too_far,
    late_copies_are_executed,
    any_request_under_a_known_id_is_a_retry,
    folding_forgets_what_it_folds,
    folding_drops_the_newest,
    a_new_life_forgets_the_reaped_one,
    removal_ignores_its_context,
    one_and_true_are_the_same_element,
    a_trimmed_log_forgets_how_much,
    a_log_loses_one_entry_at_its_limit,
    a_plain_put_takes_a_typed_record_without_a_version,
    any_fence_of_the_holder_will_do,
    renewing_moves_the_fence,
    a_put_ends_a_claim,
    a_claim_outlives_the_task,
    true_is_one,
    the_shortest_prefix_decides,
    a_read_of_nothing_covers_nothing,
]


def first_seed(*, compare: bool) -> int | None:
    """Returns the first seed whose history catches the bug."""
    for seed in SEEDS:
        try:
            run_history(seed, compare=compare)
        except SafetyViolation:
            return seed
        except Mismatch:
            if compare:
                return seed
            raise
    return None


@pytest.mark.parametrize(
    "bug",
    [*LOSSES, *(pytest.param(bug, marks=pytest.mark.campaign) for bug in DEVIATIONS)],
    ids=lambda bug: bug.__name__,
)
def test_the_comparison_catches(bug: Bug, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    assert first_seed(compare=True) is not None


@pytest.mark.campaign
@pytest.mark.parametrize("bug", LOSSES, ids=lambda bug: bug.__name__)
def test_the_oracle_alone_catches(bug: Bug, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    assert first_seed(compare=False) is not None


def test_without_a_bug_the_same_seeds_pass() -> None:
    for seed in range(60):
        run_history(seed, compare=seed % 2 == 0)
