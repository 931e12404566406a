"""The agent that plans."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.client import Append, Client, Context, Operation, Put, Session

from .plan import PLAN, Model, read_plan, said

SYSTEM = "You plan a text. Answer with the titles of its sections, one a line, and nothing else."


async def begin(client: Client, model: Model, goal: str, *, to: str, session_id: str | None = None) -> str:
    """Makes a plan in a session, and hands the session over.

    Args:
        client: the planner's.
        model: the planner's language model.
        goal: what the text is for.
        to: the agent that is to write.
        session_id: the session; None for a new one.

    Returns:
        What the other agent needs, as one text: it travels in a message, a queue or a prompt.
    """
    async with client.session(session_id) as session, session.turn():
        await session.goal().put({"text": goal})
        await _plan(session, model, goal)
        await session.control.set(next_node="write")
        return await session.handoff(to, "Write the sections of the plan in their order.")


async def revise(client: Client, model: Model, wish: str, *, session_id: str) -> None:
    """Changes the plan, which somebody may be working on. What is written already is kept."""
    async with client.session(session_id, existing="required") as session, session.turn():
        await _plan(session, model, wish)


async def _plan(session: Session, model: Model, wish: str) -> None:
    async def think(context: Context) -> Sequence[Operation]:
        # The plan is guarded: were this one newer than what the context shows, the decision would be refused.
        plan = await read_plan(session)
        titles = await model(context.openai())
        return [Append(said(titles)), Put(PLAN, plan.with_titles(titles))]

    await session.append({"role": "user", "content": wish})
    await session.decide(think, system=SYSTEM, guard=PLAN)
