"""Three agents and where they work; one of them has been away for long."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pydantic import BaseModel

from noosphere.client import (
    Client,
    ConflictPolicy,
    Key,
    NamespacePolicy,
    Order,
    Record,
    VersionClock,
    connect,
)

from .telling import Sights

PLAN = "plan"
GOAL = "goals/main"
NOTES = "notes/"
CALL_LIMIT_S = 30.0
"""A busy machine is no failure of the demo."""

_IN_EPOCH = (1 << 40) - 1
"""A revision without its epoch, which is the same for the whole story."""


class Plan(BaseModel):
    """What the agents agree on."""

    goal: str
    steps: list[str]


@dataclass(slots=True)
class Cast:
    """Who takes part.

    Attributes:
        namespace: where everything happens.
        ada: plans.
        ben: writes.
        cleo: read the plan once and then was away.
        first_seen: what cleo has read.
        joined: what the plan is once cleo's part is in it.
    """

    namespace: str
    ada: Client
    ben: Client
    cleo: Client
    first_seen: Record[Plan] | None = None
    joined: Record[Plan] | None = None

    def plan(self, agent: Client) -> Key[Plan]:
        """Returns the plan in an agent's hands."""
        return agent.namespace(self.namespace).key(PLAN, Plan)


@asynccontextmanager
async def gather(server: str) -> AsyncIterator[Cast]:
    """Connects the three agents for the length of the block.

    Raises:
        NoosphereError: the server refuses, or cannot be reached.
    """
    run = uuid.uuid4().hex[:6]
    policy = NamespacePolicy(prefix_policies=((NOTES, ConflictPolicy.SIBLINGS),))
    async with AsyncExitStack() as stack:
        ada, ben, cleo = [
            await stack.enter_async_context(connect(server, agent=f"{name}-{run}", timeout=CALL_LIMIT_S))
            for name in ("ada", "ben", "cleo")
        ]
        namespace = f"shared/demo-causality-{run}"
        await ada.ensure_namespace(namespace, policy)
        yield Cast(namespace, ada, ben, cleo)


def name_of(client: Client) -> str:
    """Returns an agent's name without what makes it unique."""
    return _short(client.agent)


def _short(agent: str) -> str:
    return agent.rpartition("-")[0]


def with_step(plan: Plan | None, step: str) -> Plan:
    """Returns a plan with one more step at its end."""
    assert plan is not None
    return Plan(goal=plan.goal, steps=[*plan.steps, step])


def joined(theirs: Plan, mine: Plan) -> Plan:
    """Returns what a sensible model makes of two plans: every step of both, theirs first."""
    return Plan(goal=theirs.goal, steps=[*theirs.steps, *(step for step in mine.steps if step not in theirs.steps)])


def after_writing(seen: VersionClock, actor: str, revision: int) -> VersionClock:
    """Returns what somebody has seen who has seen ``seen`` and then written at ``revision``."""
    return seen.written_by(actor).at(revision)


def sights(present: VersionClock, held: Iterable[tuple[str, str, VersionClock]]) -> Sights:
    """Returns a table of who had seen what.

    Args:
        present: the record's clock now.
        held: for each agent its name, what it holds, and the clock of that.
    """
    return Sights(tuple((who, what, show(clock), clock.compare(present).name) for who, what, clock in held))


def show(clock: VersionClock) -> str:
    """Returns a version vector in short: the newest two writers, and how many more."""
    shown = [f"{_short(actor)}: {revision & _IN_EPOCH}" for actor, revision in clock.entries[-2:]]
    more = len(clock.entries) - len(shown)
    older = [f"{more} more"] if more else []
    base = [f"all up to {clock.base & _IN_EPOCH}"] if clock.base else []
    return "{" + ", ".join([*base, *older, *shown]) + "}"


def is_order(left: VersionClock, right: VersionClock, order: Order) -> bool:
    """Tells whether two clocks relate so, seen from either side."""
    mirrored = {Order.BEFORE: Order.AFTER, Order.AFTER: Order.BEFORE}.get(order, order)
    return left.compare(right) is order and right.compare(left) is mirrored
