"""Contexts and decisions through the client: what the model sees, and what is written only if it still holds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

from noosphere.client import (
    Append,
    BudgetTooSmall,
    Client,
    Context,
    DeadlineExceeded,
    Delete,
    EntryNotFound,
    Evidence,
    InvalidArgument,
    Operation,
    Put,
    Recipe,
    SectionRule,
    Session,
    StaleRead,
    TransactionFailed,
    new_request_id,
    read_handoff,
)

QUESTION = "What is the price?"


@pytest.fixture
async def clients(binary: ServerProcess, connect: Connect) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(connect(binary.address, timeout=60)),
            await stack.enter_async_context(connect(binary.address, timeout=60)),
        )


@pytest.fixture
async def session(clients: tuple[Client, Client]) -> AsyncIterator[Session]:
    async with clients[0].session(new_request_id()) as opened:
        await opened.goal().put({"text": "find the price"})
        yield opened


@pytest.fixture
async def theirs(clients: tuple[Client, Client], session: Session) -> AsyncIterator[Session]:
    async with clients[1].session(session.id) as opened:
        yield opened


async def change_goal(session: Session, text: str) -> None:
    record = await session.items.get("goals/main")
    assert record is not None
    await record.replace({"text": text})


def said(text: str) -> dict[str, Any]:
    """What a model says, as OpenAI's library returns it."""
    return {"role": "assistant", "content": text}


async def test_both_providers_get_what_they_can_send(session: Session) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
    await session.append(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        said("It is 42."),
    )
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    context = await session.context(input=QUESTION, model="gpt-4o", reserve_output=1024, tools=[tool])
    openai = context.openai()
    assert openai[0]["role"] == "system"
    assert "Be brief." in openai[0]["content"]
    assert openai[-1] == {"role": "user", "content": QUESTION}
    assert [m["tool_calls"][0]["id"] for m in openai if m.get("tool_calls")] == ["c1"]
    anthropic = context.anthropic()
    assert "Be brief." in json.dumps(anthropic["system"])
    assert anthropic["messages"][0]["role"] == "user"
    assert [t["function"]["name"] for t in context.openai_tools()] == ["search"]
    assert [t["name"] for t in context.anthropic_tools()] == ["search"]
    # Changing what was handed out changes nobody else's.
    openai.clear()
    assert context.openai()

    assert context.tokens_used <= context.tokens_max
    assert context.utilization == pytest.approx(context.tokens_used / context.tokens_max)
    assert context.warnings == context.manifest.warnings
    assert sum(section.tokens_used for section in context.sections) <= context.tokens_used
    fates = {entry.id: entry.fate for entry in context.manifest.entries}
    assert fates["item:goals/main"] == "included"
    assert context.manifest.tokenizer == "o200k_base"
    explained = await session.explain(context.id)
    assert explained == context.manifest
    assert await session.explain() == explained
    with pytest.raises(EntryNotFound):
        await session.explain("nothing")


async def test_a_decision_on_what_was_shown_is_written(session: Session) -> None:
    await session.items.put("plan/next", "draft")
    context = await session.context(input=QUESTION, guard=("plan/",))
    decision = await context.commit(
        Append(said("42")), Put("plan/next", "publish"), Put("notes/price", 42), Delete("notes/none")
    )
    assert decision.revision
    assert [message.text async for message in session.messages()] == ["42"]
    record = await session.items.get("plan/next")
    assert record is not None
    assert record.value == "publish"
    # Own writes make the context no staler.
    assert (await context.commit(Put("plan/next", "celebrate"))).revision > decision.revision


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("goals/main", True),
        ("goals/new", True),
        ("task/step", True),
        ("plan/a", True),
        ("notes/new", False),
        ("notes/shown", False),
    ],
)
async def test_what_makes_a_decision_stale(session: Session, theirs: Session, changed: str, stale: bool) -> None:
    await session.items.put("notes/shown", "a note")
    context = await session.context(input=QUESTION, guard="plan/")
    record = await theirs.items.key(changed).read()
    await record.replace({"text": "theirs"})
    await theirs.append({"role": "user", "content": "by the way"})
    if not stale:
        assert (await context.commit(Append(said("42")))).revision
        return
    with pytest.raises(StaleRead) as refused:
        await context.commit(Append(said("42")))
    note = refused.value.as_message()
    assert changed.partition("/")[0] in note["content"]
    assert [message.text async for message in session.messages()] == ["by the way"]
    again = await session.context(input=QUESTION, guard="plan/", notes=(note,))
    assert note["content"] in json.dumps(again.openai(), ensure_ascii=False)
    assert (await again.commit(Append(said("42")))).revision


async def test_the_transcript_is_guarded_if_that_is_asked_for(session: Session, theirs: Session) -> None:
    context = await session.context(input=QUESTION, guard_transcript=True)
    await theirs.append({"role": "user", "content": "wait"})
    with pytest.raises(StaleRead):
        await context.commit(Append(said("42")))


async def test_a_warning_commit_tells_what_it_overruled(session: Session, theirs: Session) -> None:
    context = await session.context(input=QUESTION, mode="warn")
    await change_goal(theirs, "another")
    decision = await context.commit(Append(said("42")))
    assert [entry.name for entry in decision.stale] == ["goals/main"]


async def test_an_approval_may_take_days(session: Session, theirs: Session) -> None:
    context = await session.context(input=QUESTION)
    assert not await context.refresh()
    await change_goal(theirs, "another")
    notes = await context.refresh()
    assert "goals/main" in notes.explain()
    assert (await context.commit(Append(said("42")))).revision
    async with session.items.resume_view(context.token(), guard="goals/") as view:
        await view.commit(Append(said("and on")))


async def test_nothing_is_overwritten_that_was_not_shown(session: Session, theirs: Session) -> None:
    context = await session.context(input=QUESTION)
    await theirs.items.put("notes/a", "theirs")
    with pytest.raises(TransactionFailed):
        await context.commit(Put("notes/a", "mine"))


async def test_decide_thinks_again_with_what_changed(session: Session, theirs: Session) -> None:
    prompts: list[str] = []
    told: list[str] = []

    async def think(context: Context) -> Sequence[Operation]:
        prompts.append(json.dumps(context.openai(), ensure_ascii=False))
        told.append(context.notes.explain())
        if len(prompts) == 1:
            await change_goal(theirs, "find the discount")
        return [Append(said(f"thought {len(prompts)}"))]

    decision = await session.decide(think, input=QUESTION, model="gpt-4o", reserve_output=512)
    assert decision.attempts == 2
    assert [message.text async for message in session.messages()] == ["thought 2"]
    assert "find the price" in prompts[0]
    assert "find the discount" in prompts[1]
    assert told[0] == ""
    assert "goals/main" in told[1]
    assert told[1] in prompts[1]


async def test_decide_gives_up_and_writes_nothing(session: Session, theirs: Session) -> None:
    thoughts = 0

    async def think(context: Context) -> Sequence[Operation]:
        nonlocal thoughts
        thoughts += 1
        await change_goal(theirs, f"goal {thoughts}")
        return [Append(said("never"))]

    with pytest.raises(StaleRead):
        await session.decide(think, input=QUESTION, attempts=2)
    assert thoughts == 2
    assert [message async for message in session.messages()] == []
    assert (await session.decide(lambda _: [], input=QUESTION)).revision == 0
    with pytest.raises(InvalidArgument, match="attempts: 0"):
        await session.decide(think, attempts=0)
    with pytest.raises(InvalidArgument, match="notes: 8 notes, the limit is 7"):
        await session.decide(think, input=QUESTION, notes=["a note"] * 8)


async def test_evidence_is_asked_for_once_its_room_is_known(session: Session) -> None:
    asked: list[tuple[str, int]] = []

    async def find(query: str, max_tokens: int) -> Sequence[Evidence | str]:
        asked.append((query, max_tokens))
        return [Evidence("The price is 42.", id="doc-1", source="catalogue", trust=0.9), "Prices may vary."]

    context = await session.context(input=QUESTION, tokens=4_000, evidence=find)
    [(query, room)] = asked
    assert query == QUESTION
    plan = await session.plan_context(input=QUESTION, tokens=4_000)
    assert 0 < room == plan.room("evidence") < 4_000
    assert plan.tokens_max == 4_000
    assert "The price is 42." in json.dumps(context.openai())
    fates = {entry.id: (entry.fate, entry.source) for entry in context.manifest.entries}
    assert fates["evidence:doc-1"] == ("included", "catalogue")
    assert fates["evidence:2"][0] == "included"
    # Without an input it is what the user asked last that is searched for.
    await session.append(said("42."), {"role": "user", "content": "And the discount?"})
    await session.context(tokens=4_000, evidence=find)
    assert asked[-1][0] == "And the discount?"


async def test_evidence_in_hand_needs_no_question(session: Session) -> None:
    context = await session.context(input=QUESTION, evidence=["The price is 42."])
    assert "The price is 42." in json.dumps(context.openai())


async def test_a_slow_search_ends_with_the_time_for_the_context(session: Session) -> None:
    import asyncio

    async def find(query: str, max_tokens: int) -> Sequence[str]:
        await asyncio.sleep(0.3)
        return ()

    with pytest.raises(DeadlineExceeded):
        await session.context(input=QUESTION, evidence=find, timeout=0.1)


async def test_a_recipe_decides_what_goes_in(session: Session) -> None:
    await session.items.put("notes/a", "a note")
    rules = (SectionRule("system", 0.2), SectionRule("task", 0.2, form="yaml"), SectionRule("input", 0.2))
    context = await session.context(input=QUESTION, recipe=Recipe("short", rules))
    assert context.manifest.recipe == "short"
    text = json.dumps(context.openai())
    assert "find the price" in text
    assert "a note" not in text


async def test_what_is_used_is_reported(session: Session) -> None:
    await session.items.put("notes/price", "the price is forty-two euros")
    context = await session.context(input=QUESTION)
    usage = await context.report_usage(["item:notes/price"])
    assert usage.recalled >= usage.used
    assert "item:notes/price" in (await session.explain(context.id)).used
    with pytest.raises(InvalidArgument, match=r"used\[0\]: 'item:none'"):
        await context.report_usage(["item:none"])
    await context.report_usage(reply="It is forty-two euros.")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tokenizer": "klingon"}, "'klingon'"),
        (
            {"recipe": Recipe("r", (SectionRule("sytem"),))},  # type: ignore[arg-type]
            "recipe.sections[0].kind: 'sytem' is not one of system, tools",
        ),
        (
            {"recipe": Recipe("r", (SectionRule("input"), SectionRule("system")))},
            "recipe.sections[0].kind: INPUT stands first",
        ),
        ({"tokens": -1}, "tokens: -1 is not a whole number from 0"),
        ({"guard": "_session/turns"}, "guard[0]: '_session/turns' is kept by the SessionService"),
        ({"guard": 7}, "guard: 7 is int, not several"),
        ({"notes": "again"}, "notes: 'again' is str, not several"),
        ({"notes": [7]}, "notes[0]: 7 is int, neither text nor a message"),
        ({"evidence": [7]}, "evidence[0]: 7 is int, neither Evidence nor text"),
        ({"evidence": [Evidence("x", trust=2)]}, "evidence[0].trust: 2 is not between 0 and 1"),
        ({"tools": [{"type": "function"}]}, "tools[0]: {'type': 'function'} has no name"),
        ({"mode": "lenient"}, "mode: 'lenient' is not one of strict, warn"),
    ],
)
async def test_a_wrong_argument_is_named(session: Session, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await session.context(**{"input": QUESTION, **wrong})
    assert said in str(refused.value)


async def test_a_budget_below_what_must_be_there_tells_both(session: Session) -> None:
    with pytest.raises(BudgetTooSmall) as refused:
        await session.context(input=QUESTION, system="Be brief. " * 100, tokens=50)
    assert refused.value.needed > refused.value.limit == 50


async def test_a_session_is_handed_over(clients: tuple[Client, Client], session: Session) -> None:
    a, b = clients
    await session.control.set(next_node="write", data={"draft": 1})
    written = await a.shared(session.id).put("findings", {"n": 3})
    envelope = await session.handoff(to=b.agent, note="draft the report")
    await b.observe(envelope)
    handoff = read_handoff(envelope)
    assert (handoff.session_id, handoff.note) == (session.id, "draft the report")
    assert "write" in json.dumps(handoff.control)
    record = await b.shared(session.id).get("findings", consistency="causal")
    assert record is not None
    assert record.version == written.version
    async with b.session(handoff.session_id, existing="required") as theirs:
        assert (await theirs.control.get()).next_node == "write"
    for wrong in ("", "{}", "[1]", '{"handoff_id": 1, "session": 2, "note": 3, "causal_token": 4, "control": 5}'):
        with pytest.raises(InvalidArgument, match="envelope"):
            read_handoff(wrong)
