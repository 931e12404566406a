"""The agent. Nothing here knows that it is tested: it connects as it does in production."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pydantic import BaseModel

from noosphere.client import ClaimLost, Conflict, Namespace, Operation, Put, View, connect

NAMESPACE = "report"
LEASE_SECONDS = 30

Model = Callable[[str], Awaitable[str]]
"""A language model: a prompt in, a text out. It may take minutes."""


class Section(BaseModel):
    """A task on the board."""

    title: str


class Outline(BaseModel):
    """What all agents write together: texts by title."""

    texts: dict[str, str] = {}


class Goal(BaseModel):
    """What the report is for."""

    audience: str


async def work(name: str, model: Model, *, wait: float = 10) -> list[str]:
    """Writes sections until none is left; returns the titles of those that this agent finished."""
    finished: list[str] = []
    async with connect(agent=name) as client:
        report = client.shared(NAMESPACE)
        board = report.board("sections/", Section)
        while True:
            try:
                async with board.claim(lease=LEASE_SECONDS, wait=wait) as claim:
                    if claim is None:
                        return finished
                    title = claim.value.title
                    text = await model(f"Write about {title}.")
                    await _add(report, title, text, model)
                    await claim.complete()
                    finished.append(title)
            except ClaimLost:
                # Somebody else has the section by now, and finds what we have written of it.
                continue


async def decide_next(name: str, model: Model) -> str:
    """Decides what is to be written next; the decision is kept only if goal and outline are still what they were."""
    chosen = ""

    async def think(view: View) -> Sequence[Operation]:
        nonlocal chosen
        goal, outline = await view.get("goal", Goal), await view.get("outline", Outline)
        known = ", ".join(outline.value.texts) if outline is not None else "nothing"
        prompt = f"For {goal.value.audience if goal else 'anybody'}, with {known} written: what is next?"
        chosen = await model(" ".join([prompt, view.notes.explain()]).strip())
        return [Put("next", chosen)]

    async with connect(agent=name) as client:
        await client.shared(NAMESPACE).decide(think, guard=("goal", "outline"))
    return chosen


async def _add(report: Namespace, title: str, text: str, model: Model) -> None:
    async def change(outline: Outline | None, conflict: Conflict[Outline] | None) -> Outline:
        texts = dict(outline.texts) if outline is not None else {}
        if conflict is not None and title in texts:
            # Two of us wrote it: the model joins what both have.
            return Outline(texts={**texts, title: await model(f"Join. {conflict.explain()}")})
        return Outline(texts={**texts, title: text})

    await report.key("outline", Outline).update(change)
