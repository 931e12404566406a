"""What one more turn of an owner leads to: each pattern is learned once, whatever else happens."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.ports.store import StoredEntry
from noosphere.server.sessions.outbox import decode_candidate
from noosphere.server.transitions.habits import (
    EVIDENCE_MAX,
    OWED_MAX,
    PATTERNS_MAX,
    SESSIONS_NAMED_MAX,
    Habits,
    decode_habits,
    encode_habits,
)
from noosphere.server.transitions.patterns import Pattern, Run
from noosphere.server.transitions.tool_steps import ToolStep

NOW_MS = 1_000


class _Tools(dict[int, ToolStep]):
    """Any number of tools, by numbers."""

    def __missing__(self, number: int) -> ToolStep:
        return ToolStep(f"tool-{number}", ("x",))


TOOLS = _Tools()


def run(session: str, *steps: int, turn: int = 1, times: int = 1) -> Run:
    return Run(session, turn, steps, tuple(f"c{n}" for n in range(len(steps))), (times,) * len(steps))


def after(habits: Habits, *runs: Run) -> Habits:
    for one in runs:
        habits = habits.after(one, TOOLS, NOW_MS)
    return habits


def test_the_third_session_owes_one_candidate_that_says_what_recurs() -> None:
    habits = after(Habits(), run("s1", 1, 2), run("s2", 1, 2, times=3), run("s3", 1, 2, turn=5))
    (owed,) = habits.owed
    assert (owed.session, owed.turn, owed.decided_ms, owed.pattern) == ("s3", 5, NOW_MS, (1, 2))
    candidate = decode_candidate(owed.candidate)
    assert candidate.item == owed.item == f"procedures/{owed.id}"
    assert candidate.memory_type == "procedural"
    value = msgspec.json.decode(candidate.value.json)
    assert [step["tool"] for step in value["steps"]] == ["tool-1", "tool-2"]
    assert [step["repeated"] for step in value["steps"]] == [True, True], "in one of the sessions"
    assert value["sessions"] == 3
    assert candidate.evidence == ("tool:s3/c0", "tool:s3/c1", "tool:s2/c0", "tool:s2/c1", "tool:s1/c0", "tool:s1/c1")
    assert habits.known == {(1, 2)}


def test_the_same_calls_have_the_same_name_whoever_makes_them() -> None:
    one = after(Habits(), *(run(f"a{n}", 1, 2) for n in range(3))).owed[0]
    other = after(Habits(), *(run(f"b{n}", 7, 1, 2) if n else run("b0", 1, 2) for n in range(3))).owed[0]
    assert one.id == other.id
    assert after(Habits(), *(run(f"a{n}", 2, 1) for n in range(3))).owed[0].id != one.id


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 3), st.lists(st.integers(1, 3), min_size=2, max_size=5)),
        max_size=60,
    )
)
def test_no_pattern_is_learned_twice_and_doing_it_again_changes_nothing(
    turns: list[tuple[int, int, list[int]]],
) -> None:
    habits = Habits()
    told: list[Pattern] = []
    for session, turn, steps in turns:
        newest = run(f"s{session}", *steps, turn=turn)
        habits = habits.after(newest, TOOLS, NOW_MS)
        assert len(habits.owed) <= OWED_MAX
        told += [owed.pattern for owed in habits.owed]
        for owed in habits.owed:
            assert (owed.session, owed.turn) == (newest.session, turn), "where it came to recur"
        habits = habits.delivered(frozenset(owed.id for owed in habits.owed))
        entry = StoredEntry("habits", 1, encode_habits(habits), 1)
        assert decode_habits(entry) == habits
    assert len(told) == len(set(told))
    assert set(told) == habits.known


def test_no_more_is_owed_than_the_limit_and_the_rest_is_learned_by_the_next_turn() -> None:
    # Seven pairs that have a tool in common with no other.
    pairs = [(2 * n + 1, 2 * n + 2) for n in range(OWED_MAX + 3)]
    habits = Habits()
    for n in range(2):
        habits = after(habits, *(run(f"s{n}-{p}", *pair) for p, pair in enumerate(pairs)))
    whole = run("s2", *(step for pair in pairs for step in pair))
    habits = after(habits, whole)
    assert len(habits.owed) == OWED_MAX
    assert after(habits, whole) == habits, "there is no room"
    habits = habits.delivered(frozenset(owed.id for owed in habits.owed))
    habits = after(habits, whole)
    assert habits.known == frozenset(pairs)


def test_what_is_released_can_be_learned_again_and_what_is_delivered_cannot() -> None:
    habits = after(Habits(), *(run(f"s{n}", 1, 2) for n in range(3)))
    ids = frozenset(owed.id for owed in habits.owed)
    assert after(habits.delivered(ids), run("s3", 1, 2)).owed == ()
    (owed,) = after(habits.released(ids), run("s3", 1, 2)).owed
    assert (frozenset({owed.id}), owed.session) == (ids, "s3")


def test_an_owner_with_very_many_patterns_learns_no_more() -> None:
    known = frozenset((n, n + 1) for n in range(10, 10 + PATTERNS_MAX))
    habits = after(Habits(known=known), *(run(f"s{n}", 1, 2) for n in range(3)))
    assert habits.owed == ()
    assert habits.known == known


def test_the_evidence_is_bounded_and_names_the_newest_sessions() -> None:
    # Until the ninth session there was no room.
    known = frozenset((n, n + 1) for n in range(100, 100 + PATTERNS_MAX))
    habits = after(Habits(known=known), *(run(f"s{n}", *range(1, 13)) for n in range(SESSIONS_NAMED_MAX + 4)))
    (owed,) = after(msgspec.structs.replace(habits, known=frozenset()), run("last", *range(1, 13))).owed
    evidence = decode_candidate(owed.candidate).evidence
    assert len(evidence) == EVIDENCE_MAX
    assert evidence[0] == "tool:last/c0"
    assert len({reference.partition("/")[0] for reference in evidence}) == SESSIONS_NAMED_MAX
