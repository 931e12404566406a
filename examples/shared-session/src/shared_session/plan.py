"""What the two agents work on together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from noosphere.client import Session

PLAN = "plan/main"
"""The plan's key in the session."""

Model = Callable[[Sequence[Mapping[str, Any]]], Awaitable[str]]
"""A language model: ``messages`` of OpenAI's chat completions in, a text out. It may take minutes."""


class Step(BaseModel):
    """A section that is to be written, or has been.

    Attributes:
        title: what it is about; no two steps have the same.
        text: the section; empty as long as nobody has written it.
    """

    title: str
    text: str = ""


class Plan(BaseModel):
    """What is to be written, in order."""

    steps: tuple[Step, ...] = ()

    @property
    def next(self) -> Step | None:
        """The first step that nobody has written."""
        return next((step for step in self.steps if not step.text), None)

    def with_text(self, title: str, text: str) -> Plan:
        """Returns the plan with a section written."""
        return Plan(steps=tuple(Step(title=s.title, text=text) if s.title == title else s for s in self.steps))

    def with_titles(self, titles: str) -> Plan:
        """Returns the plan with other steps, one a line; what is written of those that stay is kept.

        Raises:
            ValueError: there is no title.
        """
        named = dict.fromkeys(line.strip() for line in titles.splitlines() if line.strip())
        if not named:
            raise ValueError("titles: there is none")
        written = {step.title: step.text for step in self.steps}
        return Plan(steps=tuple(Step(title=title, text=written.get(title, "")) for title in named))


async def read_plan(session: Session) -> Plan:
    """Returns the plan as it is now; an empty one if there is none yet."""
    record = await session.items.get(PLAN, Plan)
    return record.value if record is not None else Plan()


def said(text: str) -> Mapping[str, Any]:
    """Returns what an agent says, for the transcript."""
    return {"role": "assistant", "content": text}
