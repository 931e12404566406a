"""A decision that takes long: what it rests on changes meanwhile, so it is thought again."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.client import Notes, Operation, Put, View

from .cast import GOAL, PLAN, Cast, Plan, with_step
from .telling import Step

NEXT = "next"
CHAT = "chat/"
LATE_STEP = "legal check"
EXPLANATION_TOKENS = 300


async def think_twice(cast: Cast, step: Step) -> None:
    """Ada decides what is next; while she thinks, Ben changes the plan."""
    ada, ben, cleo = (agent.namespace(cast.namespace) for agent in (cast.ada, cast.ben, cast.cleo))
    await ada.put(GOAL, "launch before spring")
    notes: list[Notes] = []
    written_early: list[bool] = []

    async def think(view: View) -> Sequence[Operation]:
        notes.append(view.notes)
        await view.get(GOAL)
        plan = await view.get(PLAN, Plan)
        assert plan is not None
        written_early.append(await ada.get(NEXT) is not None)
        # Here the model thinks, for as long as it takes. Meanwhile the others go on.
        if len(notes) == 1:
            await cast.plan(cast.ben).update(lambda found, _: with_step(found, LATE_STEP))
        await cleo.put(f"{CHAT}{len(notes)}", "still here")
        return [Put(NEXT, {"after": plan.value.steps[-1]})]

    decision = await ada.decide(think, guard=(PLAN, "goals/"))
    step.line(
        "Ada reads goal and plan and thinks; Ben changes the plan meanwhile; her decision is refused",
        len(notes) == 2 and not notes[0] and notes[1].refused,
    )
    told = notes[1]
    step.quote("What her model is told at the second attempt:", told.explain(EXPLANATION_TOKENS), PLAN, cast.ben.actor)
    step.line(
        "It names the plan and Ben's change of it, and nothing else",
        [(entry.name, [change.actor for change in entry.changes]) for entry in told.stale]
        == [(PLAN, [cast.ben.actor])],
    )
    step.line("Nothing of the first decision was written", written_early == [False, False])
    found = await ben.get(NEXT)
    step.line(
        f"The second attempt is written, and rests on the plan as it is: next comes what follows {LATE_STEP!r}",
        decision.attempts == 2 and found is not None and found.value == {"after": LATE_STEP},
    )
    chats = [record.key async for record in ada.list(CHAT)]
    step.line(
        "What nobody guards may change: Cleo wrote to the chat during both thoughts, and the second stood",
        chats == [f"{CHAT}1", f"{CHAT}2"],
    )
