"""The loop. All that it has to remember is in the session: it may stop anywhere and be run again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from noosphere.client import Append, Message, Session, StaleRead, ToolCall, ToolResultSuperseded, ToolUse

from .tools import Model, Tool

SYSTEM = "Work on what the user asks for, step by step. Use the tools to find out what you do not know."
FAILURE_CHARS_MAX = 1_000


class StepsExceeded(Exception):
    """The model went on asking for tools; what it has found out is in the session."""


@dataclass(frozen=True)
class Agent:
    """An agent: thinks, uses tools, and thinks again until it has an answer.

    Attributes:
        model: the language model.
        tools: what it may use.
        name: the model's name, which decides how tokens are counted and how large a context may be.
        window: the model's window in tokens; 0 for what is known of the name.
        reserve_output: tokens kept free for each answer.
        guard: keys and collections of the session, besides its goals, that no thought may go past unnoticed.
        steps_max: how often it thinks about one question.
        attempts_max: how often one thought is thought anew because its grounds have changed.
    """

    model: Model
    tools: Sequence[Tool[Any]] = ()
    _: KW_ONLY
    name: str = ""
    window: int = 0
    reserve_output: int = 1024
    guard: tuple[str, ...] = ()
    steps_max: int = 20
    attempts_max: int = 3

    async def answer(self, session: Session, question: str, *, question_id: str = "") -> str:
        """Works on a question until the model has an answer, which it returns.

        Args:
            session: what it remembers; others may work in it at the same time.
            question: what the user wants.
            question_id: an id for the question. Whoever asks again under it goes on where the last run stopped.

        Raises:
            StepsExceeded: there is no answer after ``steps_max`` thoughts.
            StaleRead: the grounds of one thought changed ``attempts_max`` times.
        """
        async with session.turn():
            [asked] = await session.append(Message("user", question, id=question_id))
            said = await _said_since(session, asked)
            notes: list[str] = []
            for _ in range(self.steps_max):
                if said is None:
                    said = await self._think(session, notes)
                if not said.tool_calls:
                    return said.text
                calls = await asyncio.gather(*(self._use(session, use) for use in said.tool_calls))
                notes = [_late(call) for call in calls if call.changes]
                said = None
        raise StepsExceeded(f"no answer after {self.steps_max} thoughts about {question!r}")

    async def _think(self, session: Session, notes: Sequence[str]) -> Message:
        """Has the model say what is next, and appends it, unless what it was said about has changed meanwhile."""
        refused: tuple[Mapping[str, Any], ...] = ()
        for attempt in range(1, self.attempts_max + 1):
            context = await session.context(
                system=SYSTEM,
                model=self.name,
                window=self.window,
                reserve_output=self.reserve_output,
                tools=[tool.schema for tool in self.tools],
                guard=self.guard,
                notes=[*notes, *refused],
            )
            reply = await self.model(context.openai(), context.openai_tools())
            try:
                await context.commit(Append(reply))
            except StaleRead as stale:
                if attempt == self.attempts_max:
                    raise
                # The next attempt sees the new state, and is told what it is that has changed.
                refused = (stale.as_message(),)
            else:
                return _as_message(reply)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _use(self, session: Session, use: ToolUse) -> ToolCall:
        """Runs a tool; its result goes to the transcript, once, whoever brings it first."""
        tool = next((tool for tool in self.tools if tool.name == use.name), None)
        call = await session.start_tool(
            use.name,
            use.arguments,
            call_id=use.call_id,
            side_effects=tool is not None and tool.side_effects,
            deadline=tool.seconds_max if tool is not None else None,
        )
        if call.status != "pending":
            # An earlier run has got that far.
            return call
        try:
            return await self._finish(call, tool)
        except ToolResultSuperseded:
            # Another run has brought it meanwhile.
            return await call.refresh()

    async def _finish(self, call: ToolCall, tool: Tool[Any] | None) -> ToolCall:
        if tool is None:
            known = ", ".join(tool.name for tool in self.tools) or "none"
            return await call.fail(f"there is no tool {call.name!r}; there are: {known}", append_message=True)
        try:
            async with asyncio.timeout(tool.seconds_max):
                result = await tool(call.arguments)
        except TimeoutError:
            return await call.fail(f"gave up after {tool.seconds_max:g} seconds", append_message=True)
        except Exception as error:
            # Models put right what they are told is wrong.
            return await call.fail(f"{type(error).__name__}: {error}"[:FAILURE_CHARS_MAX], append_message=True)
        else:
            return await call.finish(result, append_message=True)


async def _said_since(session: Session, asked: Message) -> Message | None:
    """Returns what this agent has said last about a question that was asked before; None for a new one."""
    async for message in session.messages(reverse=True):
        if message.key <= asked.key:
            return None
        if message.role == "assistant" and message.author == asked.author:
            return message
    return None


def _late(call: ToolCall) -> str:
    """Says what the model should know about a result: it was asked for when something else was wanted."""
    changes = ", ".join(f"{change.key} (by {change.actor or 'expiry'})" for change in call.changes)
    return f"While call {call.call_id} of {call.name} ran, what it was based on changed: {changes}."


def _as_message(reply: Mapping[str, Any]) -> Message:
    """Reads what the loop goes by in a message of OpenAI's shape."""
    calls = reply.get("tool_calls") or ()
    uses = [ToolUse(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return Message("assistant", reply.get("content") or "", tool_calls=uses)
