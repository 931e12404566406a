"""Plays the story with models that follow a script: ``python -m shared_session``, beside ``noosphere serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from noosphere.client import connect, read_handoff

from .planner import begin, revise
from .writer import carry_on

Messages = Sequence[Mapping[str, Any]]


async def main() -> None:
    """The planner plans, hands over, and thinks better of it while the writer is thinking."""
    async with connect() as planner, connect() as writer:

        async def plans(messages: Messages) -> str:
            return "Costs\nRisks"

        async def plans_anew(messages: Messages) -> str:
            return "Returns\nRisks"

        sections = ["It costs ten.", "It brings twenty.", "It may fail."]

        async def writes(messages: Messages) -> str:
            if len(sections) == 3:
                print("planner: while the writer thinks about Costs, plans Returns instead")
                await revise(planner, plans_anew, "Rather say what it brings.", session_id=session_id)
            return sections.pop(0)

        envelope = await begin(planner, plans, "Convince the investors.", to=writer.agent)
        session_id = read_handoff(envelope).session_id
        print("planner: has planned Costs and Risks, and hands over")
        text = await carry_on(writer, writes, envelope, lambda words: print(f"writer, told: {words}"))
        print(f"\n{text}\n\nLook at it: noosphere session messages {session_id}")


asyncio.run(main())
