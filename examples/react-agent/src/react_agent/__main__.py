"""Asks the agent about the files of a folder: ``python -m react_agent "What is this?" --folder .``."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from openai import AsyncOpenAI

from noosphere.client import connect

from .endpoint import endpoint_model
from .files import file_tools
from .loop import Agent


async def main(question: str, folder: Path, session_id: str | None, agent_name: str, window: int) -> None:
    """Answers one question in a session, and prints what was done for it."""
    name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    async with AsyncOpenAI() as endpoint, connect(agent=agent_name) as client:
        agent = Agent(endpoint_model(endpoint, name), file_tools(folder), name=name, window=window)
        async with client.session(session_id) as session:
            # First of all: with it the agent goes on, wherever it was stopped.
            print(f"session {session.id}", flush=True)
            print(await agent.answer(session, question))
            used = [f"{call.name} ({call.status}, {call.tokens} tokens)" async for call in session.tool_calls()]
            print(f"tools: {', '.join(used) or 'none'}")


parser = argparse.ArgumentParser(prog="react_agent", description="Answers questions about the files of a folder.")
parser.add_argument("question")
parser.add_argument("--folder", type=Path, default=Path(), help="the folder, by default this one")
parser.add_argument("--session", help="go on with this session; by default a new one")
parser.add_argument("--agent", default="react", help="the agent's name, by which it knows its own messages again")
parser.add_argument("--window", type=int, default=0, help="the model's window in tokens, where its name is not known")
given = parser.parse_args()
asyncio.run(main(given.question, given.folder, given.session, given.agent, given.window))
