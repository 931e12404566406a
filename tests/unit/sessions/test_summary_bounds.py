"""When summaries are due and how far they go: nothing split, nothing late, over random transcripts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from noosphere.server.sessions.summary_bounds import URGENT, Pace, Reach, on_request, steady, to_cover, whole
from noosphere.server.sessions.types import Message, Part, Role, SessionSettings, ToolUse


def said(turn: int, role: Role = Role.USER, author: str = "kim") -> Message:
    return Message("", role, (Part("text"),), author=author, turn=turn)


def asked(turn: int, *calls: str, author: str = "bot") -> Message:
    return Message(
        "", Role.ASSISTANT, tool_calls=tuple(ToolUse(c, "tool", "{}") for c in calls), author=author, turn=turn
    )


def got(turn: int, call: str, author: str = "bot") -> Message:
    return Message("", Role.TOOL, (Part("result"),), tool_call_id=call, author=author, turn=turn)


def turns(*numbers: int) -> list[Message]:
    """A question and an answer for each turn."""
    return [m for n in numbers for m in (said(n), said(n, Role.ASSISTANT, "bot"))]


STEADY = steady(SessionSettings())


def test_nothing_is_due_while_a_further_turn_would_still_fit_the_window() -> None:
    assert to_cover(turns(1, 2, 3, 4), STEADY) == 0
    # Five turns and a sixth to come: the first two are covered, so that none is due for the next turn.
    assert to_cover(turns(1, 2, 3, 4, 5), STEADY) == 4


def test_what_is_left_makes_the_next_summary_not_due_at_once() -> None:
    messages = turns(*range(1, 6))
    left = messages[to_cover(messages, STEADY) :]
    assert to_cover([*left, *turns(6)], STEADY) == 0


@pytest.mark.parametrize("window_turns", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("window_steps", [2, 3, 30, 1000])
def test_every_setting_covers_what_the_next_turn_will_push_out(window_turns: int, window_steps: int) -> None:
    pace = steady(SessionSettings(window_turns=window_turns, window_steps=window_steps))
    assert pace.left.turns <= pace.due.turns < window_turns
    assert 0 <= pace.left.units <= pace.due.units <= window_steps
    messages: list[Message] = []
    covered = 0
    for turn in range(1, 40):
        window = _window(messages + turns(turn), window_turns, window_steps)
        # Whatever leaves the window with this turn's first steps was covered before.
        assert len(messages) + 2 - len(window) <= max(covered, 0)
        messages += turns(turn)
        covered += to_cover(messages[covered:], pace)


def test_a_call_is_covered_with_its_results_only() -> None:
    messages = [said(1), asked(1, "a", "b"), got(1, "b"), got(1, "a"), *turns(2)]
    for units in range(5):
        cut = to_cover(messages, Pace(Reach(9, 0), Reach(9, units)))
        assert cut in (0, 1, 4, 5, 6)


def test_a_call_that_waits_is_not_covered_until_many_others_have_come() -> None:
    waiting = [said(1), asked(1, "slow"), *[said(2, Role.ASSISTANT, "eve")] * 4]
    pace = Pace(Reach(9, 4), Reach(9, 1))
    assert to_cover(waiting, pace) == 1
    assert to_cover([*waiting, said(3, author="eve")], pace) == 6


def test_a_late_result_is_a_unit_of_its_own() -> None:
    # The author went on, so nothing waits any more.
    messages = [said(1), asked(1, "a"), said(1, Role.ASSISTANT, "bot"), got(2, "a"), said(2)]
    assert to_cover(messages, Pace(Reach(9, 1), Reach(9, 2))) == 3


def test_what_has_left_the_window_is_covered_on_request() -> None:
    assert to_cover(turns(1, 2, 3, 4, 5), on_request(SessionSettings())) == 0
    assert to_cover(turns(1, 2, 3, 4, 5, 6), on_request(SessionSettings())) == 2
    assert to_cover([said(0)] * 31, on_request(SessionSettings())) == 1


def test_without_room_all_but_the_newest_unit_is_covered() -> None:
    assert to_cover(turns(1), URGENT) == 0
    assert to_cover([*turns(1), asked(2, "a"), got(2, "a")], URGENT) == 2


def test_nothing_to_cover() -> None:
    assert to_cover([], STEADY) == 0
    assert whole([]) == 0


def test_of_more_to_come_all_is_covered_up_to_a_unit_that_may_go_on() -> None:
    assert whole(turns(1, 2)) == 4
    assert whole([*turns(1), asked(2, "a")]) == 2
    # Rather than never: one that has everything in it.
    assert whole([asked(1, "a"), *turns(1)]) == 3


CALLS = st.sampled_from(["a", "b", "c", "d"])
AUTHORS = st.sampled_from(["bot", "eve"])
MESSAGES = st.lists(
    st.one_of(
        st.builds(said, st.integers(0, 4), st.sampled_from([Role.USER, Role.ASSISTANT]), AUTHORS),
        st.builds(lambda turn, calls, author: asked(turn, *calls, author=author), st.integers(0, 4),
                  st.sets(CALLS, min_size=1).map(sorted), AUTHORS),
        st.builds(got, st.integers(0, 4), CALLS, AUTHORS),
    ),
    max_size=40,
)  # fmt: skip
REACHES = st.builds(Reach, st.integers(0, 6), st.integers(0, 12))


@settings(max_examples=examples(400), deadline=None)
@given(messages=MESSAGES, due=REACHES, left=REACHES)
def test_no_cut_parts_a_call_from_a_result_that_joins_it(messages: list[Message], due: Reach, left: Reach) -> None:
    cut = to_cover(messages, Pace(due, left))
    assert 0 <= cut <= len(messages)
    for start, end in _pairs(messages):
        assert not start < cut <= end, (cut, start, end)


@settings(max_examples=examples(200), deadline=None)
@given(messages=MESSAGES, due=REACHES)
def test_nothing_is_due_within_the_reach(messages: list[Message], due: Reach) -> None:
    units = len(messages) - len({end for _, end in _pairs(messages)})
    if units <= due.units and len({m.turn for m in messages} - {0}) <= due.turns:
        assert to_cover(messages, Pace(due, Reach(0, 0))) == 0


def _pairs(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Calls and the results that join them, by trying every pair: the first one, before the author has gone on."""
    found: list[tuple[int, int]] = []
    for end, result in enumerate(messages):
        if result.role is not Role.TOOL:
            continue
        for start in range(end - 1, -1, -1):
            call = messages[start]
            if result.tool_call_id not in {use.call_id for use in call.tool_calls}:
                continue
            gone_on = any(m.role is Role.ASSISTANT and m.author == call.author for m in messages[start + 1 : end])
            taken = any(
                m.role is Role.TOOL and m.tool_call_id == result.tool_call_id for m in messages[start + 1 : end]
            )
            if not gone_on and not taken:
                found.append((start, end))
            break
    return found


def _window(messages: Sequence[Message], window_turns: int, window_steps: int) -> Sequence[Message]:
    kept = messages[-window_steps:]
    newest = sorted({m.turn for m in kept})[-window_turns:]
    return [m for m in kept if m.turn in newest]
