"""The agent that writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noosphere.client import Append, Client, Context, Operation, Put, Session, read_handoff

from .plan import PLAN, Model, read_plan, said

SYSTEM = "You write a text, section by section, for the goal that you are given. Answer with the section alone."
INPUT = f"Write the first section of {PLAN} that has no text."

Told = Callable[[str], object]
"""Called with what the agent's model is told before it thinks anew."""


async def carry_on(client: Client, model: Model, envelope: str, told: Told = lambda _: None) -> str:
    """Takes over a session and writes until nothing is left to write.

    Args:
        client: the writer's.
        model: the writer's language model.
        envelope: what the planner has handed over.
        told: hears why a section was refused.

    Returns:
        The text.

    Raises:
        AckedWritesLost: what the planner had written did not survive; nothing is begun on such grounds.
        StaleRead: the plan changed three times while one section was being written.
    """
    await client.observe(envelope)
    async with client.session(read_handoff(envelope).session_id, existing="required") as session, session.turn():
        while await _write_next(session, model, told):
            pass
        await session.control.set(next_node="read")
        return "\n\n".join(f"{step.title}\n{step.text}" for step in (await read_plan(session)).steps)


async def _write_next(session: Session, model: Model, told: Told) -> bool:
    """Writes one section; returns False if there is none to write."""

    async def think(context: Context) -> Sequence[Operation]:
        if context.notes:
            told(context.notes.explain())
        # The plan is guarded: were this one newer than what the context shows, the decision would be refused.
        plan = await read_plan(session)
        if plan.next is None:
            return []
        text = await model(context.openai())
        return [Append(said(text)), Put(PLAN, plan.with_text(plan.next.title, text))]

    decision = await session.decide(think, system=SYSTEM, input=INPUT, guard=PLAN)
    return decision.revision > 0
