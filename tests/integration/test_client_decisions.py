"""A decision is written only if what its model saw still holds; whatever happened while it was thought."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from pydantic import BaseModel
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

import noosphere.testing
from noosphere.client import (
    Client,
    Delete,
    Guard,
    Increment,
    LogAppend,
    Namespace,
    Operation,
    PreconditionRequired,
    Put,
    StaleRead,
    TransactionFailed,
    UncheckableGuard,
    View,
    new_request_id,
)

THINKERS = 8


class Plan(BaseModel):
    """What the agents agree on."""

    steps: list[str] = []


@pytest.fixture(params=[True, False], ids=["coalesced", "unary"])
async def agents(
    binary: ServerProcess, connect: Connect, request: pytest.FixtureRequest
) -> AsyncIterator[Sequence[Client]]:
    """Two agents, each with its own connection."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(connect(binary.address, timeout=60, coalesce=request.param))
            for _ in range(2)
        ]


@pytest.fixture
def name() -> str:
    """The name of a namespace that no other test uses."""
    return f"decisions/{new_request_id()}"


@pytest.fixture
def space(agents: Sequence[Client], name: str) -> Namespace:
    """Where the first agent decides."""
    return agents[0].shared(name)


@pytest.fixture
def others(agents: Sequence[Client], name: str) -> Namespace:
    """The same, for the other agent."""
    return agents[1].shared(name)


async def test_a_plan_that_changes_while_it_is_thought_about(space: Namespace, others: Namespace) -> None:
    await space.put("plan", Plan(steps=["search"]))
    told: list[str] = []

    async def think(view: View) -> Sequence[Operation]:
        record = await view.get("plan", Plan)
        assert record is not None
        told.append(view.notes.explain())
        if len(told) == 1:
            # The other agent is faster.
            await others.key("plan", Plan).update(lambda plan, _: Plan(steps=[*(plan or Plan()).steps, "compare"]))
        return [Put("next", f"after {record.value.steps[-1]}")]

    decision = await space.decide(think, guard="plan")
    assert decision.attempts == 2
    assert told[0] == ""
    assert told[1].startswith("Your decision was not written. This changed after you read it. `plan: changed, by ")
    # What was decided on the old plan was never there, not even for a moment.
    events = [event async for entry in space.history("next") for event in entry.events]
    assert [event.record.value for event in events if event.record is not None] == ["after compare"]


async def test_many_who_decide_on_the_same_never_decide_on_the_old(
    binary: ServerProcess, connect: Connect, name: str
) -> None:
    """Each decision continues the one before it: none was written on a plan that was another by then."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(binary.address, timeout=60)) for _ in range(THINKERS)]
        await clients[0].shared(name).put("plan", Plan())
        ready = asyncio.Barrier(THINKERS)

        async def agent(number: int) -> int:
            thoughts = 0

            async def think(view: View) -> Sequence[Operation]:
                nonlocal thoughts
                thoughts += 1
                record = await view.get("plan", Plan)
                assert record is not None
                if thoughts == 1:
                    await ready.wait()
                steps = record.value.steps
                plan = Plan(steps=[*steps, f"step {number}"])
                return [Put("plan", plan, Plan), Put(f"log/{len(steps)}", number, expected_version=0), Increment("n")]

            return (await clients[number].shared(name).decide(think, attempts=THINKERS)).attempts

        attempts = await asyncio.gather(*map(agent, range(THINKERS)))
        space = clients[0].shared(name)
        plan = await space.get("plan", Plan)
        assert plan is not None
        assert sorted(plan.value.steps) == [f"step {n}" for n in range(THINKERS)]
        log = [record.value async for record in space.list("log/")]
        assert [f"step {number}" for number in log] == plan.value.steps
        count = await space.get("n")
        assert count is not None
        assert count.value == THINKERS
        assert max(attempts) > 1, "nobody was in anybody's way, so this proves nothing"


async def test_what_appears_in_a_list_makes_it_stale(space: Namespace, others: Namespace) -> None:
    await space.put("goals/1", "one")
    async with space.reading() as view:
        assert [record.key async for record in view.list("goals/")] == ["goals/1"]
        await others.put("plans/1", "of no interest")
        await view.commit(Put("next", 1))
        await others.put("goals/2", "two")
        with pytest.raises(StaleRead) as caught:
            await view.commit(Put("next", 2))
    (entry,) = caught.value.stale
    assert (entry.name, entry.is_collection) == ("goals/", True)
    assert [change.key for change in entry.changes] == ["goals/2"]
    record = await space.get("next")
    assert record is not None
    assert record.value == 1


async def test_what_was_absent_is_guarded_too(space: Namespace, others: Namespace) -> None:
    async with space.reading() as view:
        assert await view.get("veto") is None
        await others.put("veto", True)
        with pytest.raises(StaleRead, match="veto"):
            await view.commit(Put("next", 1))


async def test_only_what_is_guarded_counts(space: Namespace, others: Namespace) -> None:
    await space.put("goal", 1)
    await space.put("noise", 1)
    async with space.reading(guard="goal") as view:
        await view.get_many(["goal", "noise"])
        await others.put("noise", 2, blind=True)
        await view.commit(Put("next", 1))
        with pytest.raises(StaleRead, match="noise"):
            await view.commit(Put("next", 2), guard=("goal", "noise"))


async def test_a_lenient_decision_tells_what_it_overruled(space: Namespace, others: Namespace) -> None:
    await space.put("goal", 1)
    asked = 0

    async def think(view: View) -> Sequence[Operation]:
        nonlocal asked
        asked += 1
        await view.get("goal")
        await others.put("goal", 2, blind=True)
        return [Put("goal", 3)]

    decision = await space.decide(think, mode="warn")
    assert asked == 1
    assert [(entry.name, entry.changes[0].revision) for entry in decision.stale] == [("goal", decision.revision - 1)]
    assert decision.results[0].overwritten[0].revision == decision.revision - 1


async def test_other_namespaces_are_checked_only_if_that_is_accepted(
    agents: Sequence[Client], space: Namespace, others: Namespace
) -> None:
    rules = agents[1].shared(f"rules/{new_request_id()}")
    await rules.put("rule", "be brief")
    async with space.reading() as view:
        await view.namespace(rules.name).get("rule")
        with pytest.raises(UncheckableGuard):
            await view.commit(Put("next", 1))
        # What is not guarded need not be checked.
        await view.get("next")
        await view.commit(Put("next", 2), guard=Guard("", space.name))

    async def think(view: View) -> Sequence[Operation]:
        record = await view.namespace(rules.name).get("rule")
        assert record is not None
        if not view.notes:
            await rules.put("rule", "be polite", blind=True)
        return [Put("said", record.value)]

    with pytest.raises(UncheckableGuard):
        await space.decide(think)
    decision = await space.decide(think, allow_checked=True)
    assert decision.attempts == 2
    said = await others.get("said")
    assert said is not None
    assert said.value == "be polite"


async def test_its_own_messages_make_no_decision_stale(space: Namespace, others: Namespace) -> None:
    async with space.reading() as view:
        assert [record async for record in view.list("messages/")] == []
        assert await view.get("count") is None
        for n in range(5):
            await view.put(f"messages/{n}", f"thinking about {n}")
            await view.apply(Increment("count"))
        await view.apply(LogAppend("log", ["done"]))
        await view.put("messages/0", "thought better of it")
        await view.delete("messages/1")
        await view.commit(Put("messages/2", "and of this"), Delete("messages/3"), Increment("count"))
        await others.put("messages/9", "who is there?")
        with pytest.raises(StaleRead):
            await view.put("messages/10", "nobody")
    assert [record.key async for record in space.list("messages/")] == [
        "messages/0",
        "messages/2",
        "messages/4",
        "messages/9",
    ]


async def test_writes_of_one_view_may_be_made_side_by_side(space: Namespace) -> None:
    """Each is on the grounds that the one before has left."""
    async with space.reading() as view:
        assert [record async for record in view.list("messages/")] == []
        await asyncio.gather(
            *(view.put(f"messages/{n}", n) for n in range(10)),
            *(view.commit(Put(f"messages/{n}", n), Increment("count")) for n in range(10, 20)),
            *(view.get(f"other/{n}") for n in range(10)),
        )
    assert len([record async for record in space.list("messages/")]) == 20


async def test_of_what_was_listed_only_the_same_is_replaced(space: Namespace, others: Namespace) -> None:
    await space.put("steps/1", "one")
    await space.put("steps/2", "two")
    async with space.reading(guard="steps/") as view:
        listed = [record async for record in view.list("steps/")]
        await view.commit(*(Put(record.key, record.value + "!") for record in listed))
    # Without a guard of the whole, each is guarded by its own version.
    async with space.reading(guard="rule") as view:
        await view.get("rule")
        listed = [record async for record in view.list("steps/")]
        await others.put("steps/2", "theirs", blind=True)
        with pytest.raises(TransactionFailed) as caught:
            await view.commit(*(Delete(record.key) for record in listed))
    assert [(part.key, part.error.reason) for part in caught.value.failures] == [("steps/2", "VERSION_MISMATCH")]
    assert [record.value async for record in space.list("steps/")] == ["one!", "theirs"]


async def test_a_conflict_under_a_view_is_a_conflict(space: Namespace, others: Namespace) -> None:
    await others.put("plan", "theirs")
    async with space.reading() as view:
        await view.get("goal")
        with pytest.raises(PreconditionRequired) as caught:
            await view.put("plan", "mine")
        assert caught.value.theirs is not None
        assert (caught.value.mine, caught.value.theirs.value) == ("mine", "theirs")
        with pytest.raises(PreconditionRequired):
            await view.delete("plan")
        # The view is as good as before.
        await view.commit(Put("goal", 1))


async def test_an_approval_that_took_days(agents: Sequence[Client], space: Namespace, others: Namespace) -> None:
    """Read by one agent, approved in another process, with what changed meanwhile before the approver's eyes."""
    await space.put("plan", "a")
    await space.put("budget", 10)
    async with space.reading() as view:
        await view.get("plan")
        await view.get("budget")
        token = view.token()
    await others.put("budget", 5, blind=True)
    async with agents[1].shared(others.name.removeprefix("shared/")).resume_view(token) as approver:
        with pytest.raises(StaleRead):
            await approver.commit(Put("approved", True))
        notes = await approver.refresh()
        assert [(entry.name, entry.changes[0].actor) for entry in notes.stale] == [("budget", agents[1].actor)]
        assert "budget: changed" in notes.explain()
        decision = await approver.commit(Put("approved", True), Put("budget", 4))
        assert decision.revision > notes.stale[0].now
        assert not await approver.refresh()
    record = await space.get("budget")
    assert record is not None
    assert record.value == 4


async def test_reads_of_one_view_run_side_by_side(space: Namespace, others: Namespace) -> None:
    await space.transact(operations=[Put(f"k/{n}", n) for n in range(40)])
    async with space.reading() as view:
        records = await asyncio.gather(*(view.get(f"k/{n}") for n in range(40)))
        assert [record.value for record in records if record is not None] == list(range(40))
        await others.put("k/17", "theirs", blind=True)
        with pytest.raises(StaleRead) as caught:
            await view.commit(Put("next", 1))
    assert [entry.name for entry in caught.value.stale] == ["k/17"]


# A server whose time and misfortunes the test decides on.


@pytest.fixture
async def server() -> AsyncIterator[noosphere.testing.Server]:
    async with noosphere.testing.server() as made:
        yield made


async def test_what_ends_while_it_is_thought_about_is_stale(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await space.put("offers/1", "cheap", ttl=60)
        await space.put("price", 5, ttl=60)
        for read in ("offers/", "price"):
            async with space.reading(guard=read) as view:
                if read.endswith("/"):
                    assert [record.value async for record in view.list(read)] == ["cheap"]
                else:
                    assert await view.get(read) is not None
                await view.commit(Put("seen", read, blind=True))
                await server.advance(61)
                with pytest.raises(StaleRead, match=read):
                    await view.commit(Put("bought", read, blind=True))
            await space.put("price", 6, ttl=60)
        assert await space.get("bought") is None


async def test_a_decision_whose_reply_is_lost_is_written_once(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        thoughts = 0

        async def think(view: View) -> Sequence[Operation]:
            nonlocal thoughts
            thoughts += 1
            await view.get("tally")
            return [Increment("tally")]

        server.faults.drop_reply(method="Commit")
        decision = await space.decide(think)
        assert (thoughts, decision.replayed) == (1, True)
        record = await space.get("tally")
        assert record is not None
        assert record.value == 1


async def test_a_rival_just_before_the_commit(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await space.put("plan", "mine")
        server.faults.conflict_next("shared/launch", "plan", "theirs")

        async def think(view: View) -> Sequence[Operation]:
            record = await view.get("plan")
            assert record is not None
            return [Put("plan", f"{record.value}, improved")]

        decision = await space.decide(think)
        assert decision.attempts == 2
        record = await space.get("plan")
        assert record is not None
        assert record.value == "theirs, improved"


async def test_tokens_of_views_survive_a_failover_as_far_as_what_they_saw(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await space.put("goal", 1)
        async with space.reading() as view:
            await view.get("goal")
            await server.faults.fail_over()
            decision = await view.commit(Put("next", 1))
            assert decision.revision > decision.head - 1
            await space.put("goal", 2, blind=True)
        async with space.reading() as view:
            await view.get("goal")
            await server.faults.fail_over(lose=1)
            with pytest.raises(Exception, match="ACKED_WRITES_LOST"):
                await view.commit(Put("next", 2))
