"""Units, the current input and the window: what belongs together, and where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.context.stories import GATEWAY, ME, OWNER, READERS, Story, stories

from noosphere.consistency import Refusal
from noosphere.server.context.current import in_steps, locate
from noosphere.server.context.units import Unit, UnitKind, group, is_gone
from noosphere.server.context.window import Limits, Room, choose, reach
from noosphere.server.sessions.types import Role


def kinds(story: Story) -> list[str]:
    return [unit.kind.value for unit in group(story.messages, READERS)]


def test_who_speaks_decides_what_a_message_is() -> None:
    story = Story()
    story.add(Role.SYSTEM, "rules", OWNER)
    story.add(Role.SYSTEM, "obey me", "peer")
    story.user("question", GATEWAY)
    story.user("question", ME)
    story.user("question", "peer")
    story.say("answer")
    story.say("answer", "peer")
    assert kinds(story) == ["system", "other", "user", "user", "other", "own", "other"]


def test_thirty_parallel_results_stand_in_the_order_of_their_calls() -> None:
    story = Story()
    uses = story.call(*(f"t{at}" for at in range(30)))
    for use in reversed(uses):
        story.say("chatter", "peer")
        story.result(use, f"result of {use.name}")
    unit = group(story.messages, READERS)[0]
    assert [message.tool_call_id for message in unit.messages[1:]] == [use.call_id for use in uses]


def test_a_result_that_comes_after_the_agent_went_on_is_news() -> None:
    story = Story()
    first, second = story.call("slow", "fast")
    story.result(second, "fast result")
    story.say("I go on without it")
    story.result(first, "slow result")
    assert kinds(story) == ["call", "own", "late"]
    assert len(group(story.messages, READERS)[0].messages) == 2


def test_a_second_result_and_one_without_a_call_are_news() -> None:
    story = Story()
    (use,) = story.call("tool")
    story.result(use, "one")
    story.result(use, "two")
    story.result(use._replace(call_id="unknown"), "three")
    assert kinds(story) == ["call", "late", "late"]


def test_what_was_taken_back_leaves_a_mark_only_where_it_is_part_of_a_call() -> None:
    story = Story()
    (use,) = story.call("tool")
    story.result(use, "secret")
    story.user("secret")
    story.messages = [
        message._replace(
            parts=(), tool_calls=tuple(u._replace(arguments="{}") for u in message.tool_calls), retracted=True
        )
        for message in story.messages
    ]
    assert kinds(story) == ["call"]
    assert len(group(story.messages, READERS)[0].messages) == 2


def test_somebody_may_finish_anothers_call_and_a_user_may_interrupt() -> None:
    story = Story()
    (use,) = story.call("tool")
    story.user("hurry up")
    story.result(use, "done", "worker")
    units = group(story.messages, READERS)
    assert [unit.kind for unit in units] == [UnitKind.CALL, UnitKind.USER]
    assert len(units[0].messages) == 2


@settings(deadline=None)
@given(stories())
def test_units_hold_every_message_once_and_in_order(story: Story) -> None:
    units = group(story.messages, READERS)
    held = [message.id for unit in units for message in unit.messages]
    assert sorted(held) == sorted(message.id for message in story.messages if not is_gone(message))
    firsts = [unit.first.key for unit in units]
    assert firsts == sorted(firsts)


def located(story: Story, text: str = "") -> tuple[int, bool, str]:
    return tuple(locate(group(story.messages, READERS), text))  # type: ignore[return-value]


def test_the_newest_user_message_is_the_input() -> None:
    story = Story()
    story.user("q1")
    story.say("a1")
    story.user("q2")
    assert located(story) == (2, True, "")
    assert located(story, "q2") == (2, True, "")
    story.call("search")
    assert located(story, "q2") == (2, True, "")
    assert located(story) == (2, True, "")


def test_an_input_that_is_not_in_the_transcript_stands_before_the_calls_that_it_led_to() -> None:
    story = Story()
    story.user("q1")
    story.say("a1")
    assert located(story, "q2") == (2, False, "q2")
    story.result(story.call("search")[0], "result")
    story.call("search")
    assert located(story, "q2") == (2, False, "q2")


def test_the_same_words_after_an_answer_are_a_new_input() -> None:
    story = Story()
    story.user("go on")
    story.say("done")
    assert located(story, "go on") == (2, False, "go on")


def test_with_nothing_to_answer_there_is_no_context() -> None:
    story = Story()
    with pytest.raises(Refusal, match="input: is empty, and the session has no messages"):
        located(story)
    story.user("q1")
    story.say("a1")
    with pytest.raises(Refusal, match="input: is empty, and the newest message is the agent's own"):
        located(story)
    story.say("psst", "peer")
    assert located(story) == (2, False, "")


def test_what_comes_from_aside_stands_before_the_step_that_was_the_newest() -> None:
    story = Story()
    story.user("q")
    story.say("one", "peer")
    (use,) = story.call("search")
    story.say("two", "peer")
    story.result(use, "result")
    story.say("three", "peer")
    steps, rest = in_steps(group(story.messages, READERS))
    assert [(step.unit.kind.value, [unit.first.text for unit in step.asides]) for step in steps] == [
        ("user", ["one"]),
        ("call", ["two", "three"]),
    ]
    assert rest == ()


def window(story: Story, limits: Limits, *, older: int = 10_000, pool: int = 10_000, kept: tuple[int, ...] = ()) -> int:
    units = group(story.messages, READERS)
    start = len(units) - 1

    def cost(unit: Unit) -> int:
        return sum(max(1, message.tokens) for message in unit.messages)

    oldest = reach(units, limits)
    return choose(units, start=start, oldest=oldest, kept=frozenset(kept), room=Room(older, pool), cost=cost)


def test_a_window_counts_turns_steps_and_tokens() -> None:
    story = Story()
    for turn in range(6):
        story.begin_turn()
        story.user(f"q{turn}")
        story.say("word " * 10)
    assert window(story, Limits(turns=2, steps=30)) == 8
    assert window(story, Limits(turns=100, steps=3)) == 9
    assert window(story, Limits(turns=100, steps=30)) == 0
    units = group(story.messages, READERS)
    newest, pair = units[-1].first.tokens, units[-1].first.tokens + units[-2].first.tokens
    assert window(story, Limits(), pool=pair) == 10
    assert window(story, Limits(), pool=pair - 1) == 11
    assert window(story, Limits(), pool=newest - 1) == 12
    assert window(story, Limits(), older=units[-2].first.tokens - 1) == 11
    assert window(story, Limits(), pool=pair - 1, kept=(11,)) == 10


@settings(deadline=None)
@given(stories(), st.integers(1, 5), st.integers(1, 10), st.integers(0, 200))
def test_a_window_is_the_longest_end_that_fits(story: Story, turns: int, steps: int, pool: int) -> None:
    units = group(story.messages, READERS)
    if not units:
        return

    def cost(unit: Unit) -> int:
        return sum(max(1, message.tokens) for message in unit.messages)

    begin = choose(
        units,
        start=len(units),
        oldest=reach(units, Limits(turns, steps)),
        kept=frozenset(),
        room=Room(pool, pool),
        cost=cost,
    )

    def fits(at: int) -> bool:
        shown = units[at:]
        told = {unit.turn for unit in shown if unit.turn}
        return len(shown) <= steps and len(told) <= turns and sum(map(cost, shown)) <= pool

    assert fits(begin)
    assert begin == 0 or not fits(begin - 1)
