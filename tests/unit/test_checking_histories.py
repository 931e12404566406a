"""Both checkers accept what a correct server does and reject what a broken one does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.checking_simulation import FAILOVER_FAULTS, FAULTS, simulate
from tests.support.effort import examples

from noosphere.server.checking import Kind, Outcome, Verdict, check_calls
from noosphere.server.checking.branches import branches_of
from noosphere.server.checking.history import Call

# For each fault: what each checker must call it in at least one of the histories below.
EXPECTED: dict[str, dict[str, set[Kind]]] = {
    "lost update": {"revisions": {Kind.LOST_UPDATE}, "registers": {Kind.LOST_UPDATE}},
    "stale read": {
        "revisions": {Kind.STALE_READ, Kind.MISSING_RECORD, Kind.RESURRECTED_DELETE},
        "registers": {Kind.NOT_LINEARIZABLE},
        "tallies": {Kind.LOST_UPDATE},
    },
    "stale head": {"revisions": {Kind.HEAD_ORDER}, "registers": {Kind.NOT_LINEARIZABLE}},
    "torn transaction": {"revisions": {Kind.TORN_TRANSACTION}, "registers": {Kind.TORN_TRANSACTION}},
    "resurrected delete": {"revisions": {Kind.RESURRECTED_DELETE}, "registers": {Kind.LOST_UPDATE}},
    "two holders": {"revisions": {Kind.TWO_HOLDERS}, "tallies": {Kind.TWO_HOLDERS}},
    "double completion": {"revisions": {Kind.DOUBLE_COMPLETION}, "tallies": {Kind.DOUBLE_COMPLETION}},
    "executed twice": {
        "revisions": {Kind.GHOST_COMMIT, Kind.WRONG_CONTENT},
        "tallies": {Kind.WRONG_CONTENT},
    },
    "forgotten merge": {
        "revisions": {Kind.STALE_READ, Kind.WRONG_CONTENT},
        "registers": {Kind.NOT_LINEARIZABLE},
        "tallies": {Kind.LOST_UPDATE},
    },
    "ignored expected version": {"revisions": {Kind.LOST_UPDATE}, "registers": {Kind.LOST_UPDATE}},
}


def found(verdict: Verdict) -> dict[str, set[Kind]]:
    kinds: dict[str, set[Kind]] = {}
    for violation in verdict.violations:
        kinds.setdefault(violation.checker, set()).add(violation.kind)
    return kinds


@settings(max_examples=examples(150))
@given(
    seed=st.integers(0, 1 << 32),
    clients=st.integers(1, 8),
    unanswered=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_whatever_a_correct_server_does_is_valid(seed: int, clients: int, unanswered: float) -> None:
    verdict = check_calls(simulate(seed, clients=clients, unanswered=unanswered))
    assert verdict.ok, verdict.explain()


def test_the_generated_histories_contain_what_matters() -> None:
    """Guards the test above: acceptance of dull histories would show nothing."""
    outcomes: Counter[str] = Counter()
    takeovers = 0
    for seed in range(40):
        history = simulate(seed)
        verdict = check_calls(history)
        takeovers += verdict.figures.takeovers
        for call in history.calls:
            reason = call.reply.reason if call.reply is not None else ""
            outcomes[f"{call.op} {call.outcome} {reason}".strip()] += 1
    for wanted in (
        "get ok",
        "list ok",
        "put ok",
        "put refused CONFLICT",
        "put refused VERSION_MISMATCH",
        "put unknown",
        "delete ok",
        "delete unknown",
        "merge ok",
        "merge unknown",
        "transact ok",
        "transact refused CONFLICT",
        "transact unknown",
        "claim ok",
        "claim unknown",
        "renew ok",
        "release ok",
        "complete ok",
        "complete refused CLAIM_LOST",
    ):
        assert outcomes[wanted] > 0, (wanted, outcomes)
    assert takeovers > 0


@settings(max_examples=examples(150))
@given(
    seed=st.integers(0, 1 << 32),
    clients=st.integers(1, 8),
    failovers=st.integers(1, 4),
    unanswered=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_each_branch_of_a_server_that_fails_over_is_valid(
    seed: int, clients: int, failovers: int, unanswered: float
) -> None:
    verdict = check_calls(simulate(seed, clients=clients, failovers=failovers, unanswered=unanswered))
    assert verdict.ok, verdict.explain()


def test_what_a_failover_lost_is_a_violation_unless_the_header_tells_of_it() -> None:
    rejected = lost = 0
    for seed in range(40):
        history = simulate(seed, failovers=2)
        lost += any("has lost" in note for note in check_calls(history).notes)
        rejected += not check_calls(replace(history, header=replace(history.header, cuts={}))).ok
    assert lost > 30
    assert rejected > 30


@pytest.mark.parametrize("fault", FAILOVER_FAULTS)
def test_a_server_that_fails_over_wrongly_is_caught_by_both_checkers(fault: str) -> None:
    caught: Counter[str] = Counter()
    for seed in range(200):
        caught.update(found(check_calls(simulate(seed, failovers=2, faults=(fault,), unanswered=0.02))).keys())
    assert caught["revisions"] >= 10, caught
    assert caught["registers"] >= 10, caught


@pytest.mark.parametrize("fault", FAULTS)
def test_failovers_do_not_hide_what_else_is_wrong(fault: str) -> None:
    rejected = 0
    for seed in range(60):
        rejected += not check_calls(simulate(seed, failovers=2, faults=(fault,), unanswered=0.02)).ok
    assert rejected >= 10


def test_every_fault_of_the_simulated_server_has_an_expectation() -> None:
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_server_is_caught_by_every_checker_that_can_see_it(fault: str) -> None:
    seen: dict[str, set[Kind]] = {}
    rejected = 0
    for seed in range(60):
        verdict = check_calls(simulate(seed, faults=(fault,), unanswered=0.02))
        rejected += not verdict.ok
        for checker, kinds in found(verdict).items():
            seen.setdefault(checker, set()).update(kinds)
    assert rejected >= 15
    for checker, kinds in EXPECTED[fault].items():
        assert kinds <= seen.get(checker, set()), (checker, kinds, seen)


def test_figures_are_counted_from_the_calls() -> None:
    history = simulate(7, clients=6)
    figures = check_calls(history).figures
    refused = [call for call in history.calls if call.reply and call.reply.reason in ("CONFLICT", "VERSION_MISMATCH")]
    assert figures.calls == len(history.calls)
    assert figures.processes == 7
    assert figures.conflict_count == len(refused) > 0
    assert figures.resolved + figures.abandoned <= figures.conflict_count
    assert figures.unknown == sum(call.outcome is Outcome.UNKNOWN for call in history.calls)
    assert figures.lost_updates == 0
    assert figures.duplicate_completions == 0


def test_a_repetition_answered_from_a_lost_state_is_still_the_commit_that_survived() -> None:
    """A reply was lost; the call was executed before the cut, and answered past it when it was asked again."""
    cut, later = (1 << 40) + 1, (2 << 40) + 1

    def call(number: int, **fields: Any) -> Call:
        start = number * 100
        reply = {"process": "a", "call": number, "return_ns": start + 50, "outcome": "ok", **fields.pop("reply")}
        return msgspec.convert(
            {"process": "a", "call": number, "namespace": "shared/s", "start_ns": start, "reply": reply, **fields}, Call
        )

    first, second = [
        {"key": key, "kind": "put", "value": f"v{key}", "expected": 0, "base": list[str]()} for key in ("k", "l")
    ]
    calls = (
        call(
            1,
            op="put",
            writes=[first],
            reply={"head": cut + 1, "revision": cut, "replayed": True, "results": [{"version": cut}]},
        ),
        call(
            2,
            op="put",
            writes=[second],
            reply={"head": cut + 2, "revision": cut + 2, "results": [{"version": cut + 2}]},
        ),
        call(
            3,
            op="get",
            keys=["k"],
            reply={"head": later, "seen": [{"key": "k", "version": cut, "values": ["vk"]}]},
        ),
    )
    trunk, ended = branches_of(calls, [(2, cut)])
    assert [one.call for one in trunk.calls] == [1, 3]
    assert [one.call for one in ended.calls] == [1, 2]
    assert ended.lost == 1
    committed = trunk.calls[0].reply
    assert committed is not None
    assert committed.head == committed.revision == cut, "of the state that was lost it tells nothing"
