"""Several agents at one key: who thinks when, and what becomes of values that stand side by side."""

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
    Conflict,
    ConflictPolicy,
    InvalidArgument,
    Key,
    Namespace,
    NamespacePolicy,
    NoConflict,
    SiblingConflict,
    UnresolvedSiblings,
    new_request_id,
)

THINKERS = 8
SIBLINGS = NamespacePolicy(conflict_policy=ConflictPolicy.SIBLINGS)


class Plan(BaseModel):
    """What the agents agree on."""

    steps: list[str] = []


@pytest.fixture
async def agents(binary: ServerProcess, connect: Connect) -> AsyncIterator[Sequence[Client]]:
    """Eight agents, each with its own connection."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(binary.address, timeout=60)) for _ in range(THINKERS)]


@pytest.fixture
def name() -> str:
    """The name of a namespace that no other test uses."""
    return f"conflicts/{new_request_id()}"


class SlowThinkers:
    """Agents that each add a step to one plan, and think for as long as it takes the others to be in the way."""

    def __init__(self, keys: Sequence[Key[Plan]]) -> None:
        self.thoughts = 0
        self.side_by_side = 0
        self._keys = keys
        self._thinking = 0
        # The first and the second thought of everybody who has to think again are thought at the same time.
        self._rounds = [asyncio.Barrier(len(keys)), asyncio.Barrier(len(keys) - 1)]

    async def run(self, reserve: str, rounds: int = 0) -> None:
        """Lets all of them update, at once."""
        await asyncio.gather(*(self._agent(number, key, reserve, rounds) for number, key in enumerate(self._keys)))

    async def _agent(self, number: int, key: Key[Plan], reserve: str, rounds: int) -> None:
        own = 0

        async def think(plan: Plan | None, conflict: Conflict[Plan] | None) -> Plan:
            nonlocal own
            self.thoughts += 1
            self._thinking += 1
            self.side_by_side = max(self.side_by_side, self._thinking)
            if own < rounds:
                await self._rounds[own].wait()
            else:
                # Long enough for anybody who does not wait to come in between.
                await key.read()
            own += 1
            self._thinking -= 1
            if own > 1:
                assert conflict is not None
                assert conflict.theirs is not None
                assert conflict.theirs.value == plan
                assert conflict.explain()
            return Plan(steps=[*(plan or Plan()).steps, f"step {number}"])

        await key.update(think, reserve=reserve, timeout=120)  # type: ignore[arg-type] # one of the three


@pytest.mark.parametrize(
    ("reserve", "rounds", "thoughts", "side_by_side"),
    # Without a reservation it would be 8 + 7 + 6 + … + 1, and nobody has that many attempts.
    [("first", 0, THINKERS, 1), ("on_conflict", 2, THINKERS + (THINKERS - 1) + (THINKERS - 2), THINKERS)],
)
async def test_slow_thinkers_all_come_to_an_end(
    agents: Sequence[Client], name: str, reserve: str, rounds: int, thoughts: int, side_by_side: int
) -> None:
    keys = [agent.shared(name).key("plan", Plan) for agent in agents]
    thinkers = SlowThinkers(keys)
    await thinkers.run(reserve, rounds)
    plan = await keys[0].get()
    assert plan is not None
    assert sorted(plan.value.steps) == [f"step {number}" for number in range(THINKERS)]
    assert (thinkers.thoughts, thinkers.side_by_side) == (thoughts, side_by_side)
    # Nobody has left a reservation behind.
    async with keys[0].reserve() as reservation:
        assert reservation.held


async def test_slow_thinkers_of_one_client_take_turns_too(agents: Sequence[Client], name: str) -> None:
    thinkers = SlowThinkers([agents[0].shared(name).key("plan", Plan)] * THINKERS)
    await thinkers.run("first")
    assert (thinkers.thoughts, thinkers.side_by_side) == (THINKERS, 1)


async def test_a_reservation_is_for_those_who_ask(agents: Sequence[Client], name: str) -> None:
    a, b, *_ = (agent.shared(name).key("plan") for agent in agents)
    async with a.reserve() as mine:
        assert mine.held
        async with b.reserve() as theirs:
            assert (theirs.held, theirs.holder) == (False, agents[0].actor)
        # Whoever does not ask is kept from nothing, and nobody's reads or watches are moved by it.
        written = await b.put("b's")
        assert (await a.read()).version == written.version
        scope = b.reserve(wait=60)
        waiting = asyncio.create_task(scope.__aenter__())
    assert (await waiting).held
    await scope.__aexit__(None, None, None)


async def test_a_plan_is_revised_by_a_model_that_reads_the_conflict(agents: Sequence[Client], name: str) -> None:
    """The second everyday task: the conflict goes into the prompt, and what comes out keeps both changes."""
    mine, theirs, *_ = (agent.shared(name).key("plan", Plan) for agent in agents)
    await mine.put(Plan(steps=["search"]))
    prompts: list[str] = []

    async def model(prompt: str, plan: Plan) -> Plan:
        prompts.append(prompt)
        if len(prompts) == 1:
            await theirs.update(lambda plan, _: Plan(steps=[*(plan or Plan()).steps, "compare"]))
        return Plan(steps=[*plan.steps, "report"])

    async def revise(cur: Plan | None, conflict: Conflict[Plan] | None) -> Plan:
        return await model(f"Revise {cur}. {conflict.explain() if conflict else ''}", cur or Plan())

    record = await mine.update(revise, attempts=4, reserve="on_conflict", timeout=300)
    assert record.value.steps == ["search", "compare", "report"]
    assert "Your write to `plan` failed: it changed after you read it." in prompts[1]


# Values that stand side by side.


async def side_by_side(space: Namespace, key: str, *values: object) -> None:
    base = await space.put(key, "base")
    for value in values:
        await base.replace(value)


async def test_the_queue_lists_who_waits_longest_first(agents: Sequence[Client], name: str) -> None:
    a, b, *_ = agents
    space = a.shared(name)
    await a.ensure_namespace(space.name, SIBLINGS)
    assert [pending async for pending in space.conflicts()] == []
    for key in ("z", "plan/b", "plan/a", "single"):
        await side_by_side(space, key, *([1] if key == "single" else [1, 2]))
    found = [pending async for pending in b.shared(name).conflicts(page_size=1)]
    assert [pending.record.key for pending in found] == ["z", "plan/b", "plan/a"]
    assert [pending.since for pending in found] == sorted(pending.since for pending in found)
    assert all(pending.record.values == (1, 2) for pending in found)
    assert [pending.since for pending in found] == [pending.record.writers[1].revision for pending in found]
    assert found[0].since_time == found[0].record.writers[1].time
    assert "`1 | 2`" in found[0].conflict.explain()
    assert [pending.record.key async for pending in space.conflicts("plan/")] == ["plan/b", "plan/a"]


async def test_conflicts_are_resolved_by_a_value_a_choice_or_a_delete(agents: Sequence[Client], name: str) -> None:
    a, b, *_ = agents
    space, others = a.shared(name), b.shared(name)
    await a.ensure_namespace(space.name, SIBLINGS)
    for key in ("joined", "kept", "gone"):
        await side_by_side(space, key, 1, 2)
    pending = {conflict.record.key: conflict.record async for conflict in others.conflicts()}
    joined = await pending["joined"].resolve(12)
    kept = await pending["kept"].resolve(keep=pending["kept"].writers[0].revision)
    gone = await pending["gone"].resolve(delete=True)
    assert (joined.value, kept.value, gone.exists) == (12, 1, False)
    assert [conflict async for conflict in space.conflicts()] == []
    for record, value in ((joined, 12), (kept, 1)):
        read = await space.get(record.key)
        assert read is not None
        assert (read.value, read.version) == (value, record.version)
        # What was returned can be worked on.
        await record.replace(value + 1)
    assert await space.get("gone") is None
    with pytest.raises(NoConflict):
        await pending["joined"].resolve(13)


async def test_null_is_a_value_to_resolve_with(agents: Sequence[Client], name: str) -> None:
    space = agents[0].shared(name)
    await agents[0].ensure_namespace(space.name, SIBLINGS)
    await side_by_side(space, "k", 1, 2)
    record = await space.get("k")
    assert record is not None
    assert (await record.resolve(None)).value is None


async def test_what_a_resolver_has_not_seen_is_not_resolved(agents: Sequence[Client], name: str) -> None:
    a, b, *_ = agents
    space, others = a.shared(name), b.shared(name)
    await a.ensure_namespace(space.name, SIBLINGS)
    base = await space.put("k", "base")
    for value in (1, 2):
        await base.replace(value)
    record = await space.get("k")
    assert record is not None
    await others.put("k", 3, seen=base.seen)
    with pytest.raises(Conflict) as caught:
        await record.resolve(12)
    conflict = caught.value
    assert conflict.theirs is not None
    assert (conflict.mine, conflict.base, conflict.theirs.values) == (12, record, (1, 2, 3))
    assert [dot.actor for dot in conflict.unseen] == [b.actor]
    assert "It has several values now: `1 | 2 | 3`." in conflict.explain()
    await conflict.theirs.resolve(123)


async def test_a_resolution_is_one_of_three(agents: Sequence[Client], name: str) -> None:
    space = agents[0].shared(name)
    record = await space.put("k", 1)
    with pytest.raises(InvalidArgument, match="give one of value, keep and delete"):
        await record.resolve()
    with pytest.raises(InvalidArgument, match="give one of value, keep and delete"):
        await record.resolve(1, delete=True)
    with pytest.raises(InvalidArgument, match="keep: no value of 'k' was written at revision 7"):
        await record.resolve(keep=7)
    with pytest.raises(NoConflict):
        await record.resolve(2)


async def test_an_update_joins_what_stands_side_by_side(agents: Sequence[Client], name: str) -> None:
    a, *_ = agents
    space = a.shared(name)
    await a.ensure_namespace(space.name, SIBLINGS)
    key = space.key("plan", list[str])
    base = await key.put(["base"])
    for value in (["a"], ["b"], ["c"]):
        await base.replace(value)
    read = await key.read()
    with pytest.raises(UnresolvedSiblings):
        _ = read.value

    def join(current: list[str] | None, conflict: Conflict[list[str]] | None) -> list[str]:
        assert isinstance(conflict, SiblingConflict)
        assert conflict.theirs is not None
        assert current == ["c"]
        return sorted(step for value in conflict.theirs.values for step in value)

    record = await key.update(join)
    assert record.value == ["a", "b", "c"]
    assert [pending async for pending in space.conflicts()] == []


async def test_agents_that_share_the_queue_resolve_each_conflict_once(agents: Sequence[Client], name: str) -> None:
    """Nobody's value is lost and nobody's joined value is overwritten by another's."""
    await agents[0].ensure_namespace(f"shared/{name}", SIBLINGS)
    for n in range(12):
        await side_by_side(agents[0].shared(name), f"k/{n:02}", [1], [2])

    async def work(agent: Client) -> int:
        done = 0
        async for pending in agent.shared(name).conflicts():
            try:
                await pending.record.resolve(sorted(part for value in pending.record.values for part in value))
            except (NoConflict, Conflict):
                continue
            done += 1
        return done

    assert sum(await asyncio.gather(*map(work, agents))) == 12
    assert [record.value async for record in agents[0].shared(name).list("k/")] == [[1, 2]] * 12


# A server whose time the test decides on.


async def test_a_thinker_that_stopped_does_not_keep_others_waiting() -> None:
    async with noosphere.testing.server() as server, server.client("a") as a, server.client("b") as b:
        mine, theirs = a.shared("launch").key("plan"), b.shared("launch").key("plan")
        async with mine.reserve(lease=10) as reservation:
            # Renewed as long as its holder lives.
            await server.advance(60)
            assert reservation.held
            async with theirs.reserve() as second:
                assert not second.held
            scope = theirs.reserve(wait=30)
            with server.faults.suspended("a"):
                waiting = asyncio.create_task(scope.__aenter__())
                await server.advance(12)
                assert (await waiting).held
            # It finds that its own lease is over, and takes nothing from the other.
            await server.advance(5)
            assert not reservation.held
            assert (await waiting).held
            # It was advice: the slow one may still write, if nobody was faster.
            await mine.put("late")
        async with mine.reserve() as again:
            assert (again.held, again.holder) == (False, b.actor)
        await scope.__aexit__(None, None, None)
