"""Plays a script on a running server, and checks what must be so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from noosphere.client import (
    Append,
    Client,
    Context,
    Session,
    SessionHealth,
    SessionSettings,
    ToolCall,
    connect,
)

from .script import Checkpoint, Get, Goal, Put, Restore, Script, Step, Summarize, Tool, Turn

CALL_LIMIT_S = 30.0
"""A busy machine is no failure of the demo."""

MODEL = "gpt-4o"


@dataclass(frozen=True, slots=True)
class Told:
    """What one turn has brought about.

    Attributes:
        number: the turn's number.
        user: what the user said.
        tokens_used: what the context took.
        tokens_max: what it was allowed.
        items: how many items working memory had afterwards.
        events: what else happened, in words.
    """

    number: int
    user: str
    tokens_used: int
    tokens_max: int
    items: int
    events: tuple[str, ...]


@dataclass(slots=True)
class Played:
    """A whole session as it was played.

    Attributes:
        session_id: the session.
        title: for people.
        turns: what each turn has brought about.
        health: how the session fares in the end.
        checks: what must be so, and whether it is.
        context_id: the newest context.
        seconds: how long it took.
    """

    session_id: str
    title: str
    turns: list[Told] = field(default_factory=list)
    health: SessionHealth | None = None
    checks: list[tuple[str, bool]] = field(default_factory=list)
    context_id: str = ""
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """The checks that do not hold."""
        return [text for text, holds in self.checks if not holds]

    def as_dict(self) -> dict[str, Any]:
        """Returns it as plain data for JSON."""
        assert self.health is not None
        return {
            "ok": not self.failures,
            "failures": self.failures,
            "session": self.session_id,
            "title": self.title,
            "context": self.context_id,
            "turns": [
                {
                    "turn": told.number,
                    "tokens_used": told.tokens_used,
                    "tokens_max": told.tokens_max,
                    "items": told.items,
                    "events": list(told.events),
                }
                for told in self.turns
            ],
            "health": [
                {
                    "metric": figure.metric,
                    "value": figure.value,
                    "verdict": figure.verdict,
                    "source": figure.source,
                    "advice": figure.advice,
                }
                for figure in self.health.figures
            ],
            "checks": [{"text": text, "holds": holds} for text, holds in self.checks],
            "seconds": round(self.seconds, 3),
        }


async def play(server: str, script: Script) -> Played:
    """Plays a script in a session of its own, which stays.

    Raises:
        NoosphereError: the server refuses something, or went away.
    """
    started = time.monotonic()
    run = uuid.uuid4().hex[:6]
    async with connect(server, agent=f"demo-agent-{run}", timeout=CALL_LIMIT_S) as client:
        settings = SessionSettings(grace_turns=script.grace_turns)
        async with client.session(f"demo-{run}", title=script.title, settings=settings) as session:
            played = Played(session.id, script.title)
            player = _Player(client, session, script, played)
            for turn in script.turns:
                await player.turn(turn)
            await player.close_the_books()
    played.seconds = time.monotonic() - started
    return played


class _Player:
    def __init__(self, client: Client, session: Session, script: Script, played: Played) -> None:
        self._client = client
        self._session = session
        self._script = script
        self._played = played
        self._savepoints: dict[str, tuple[str, dict[str, bytes], list[str]]] = {}
        self._values: dict[str, Any] = {}
        self._archived: set[str] = set()
        self._over_budget: list[int] = []
        self._compacted = 0
        self._left = 0

    async def turn(self, turn: Turn) -> None:
        """Plays one turn: input, steps, context, answer."""
        session, events = self._session, list[str]()
        async with session.turn() as running:
            await session.append({"role": "user", "content": turn.user})
            for step in turn.steps:
                events += await self._step(step)
            context = await session.context(
                model=MODEL, tokens=self._script.tokens, system=self._script.system, guard=("goals/", "task/")
            )
            await context.commit(Append({"role": "assistant", "content": turn.reply}))
            await context.report_usage(reply=turn.reply)
        ended = running.ended
        assert ended is not None, "the block has ended the turn"
        for transition in ended.transitions:
            self._left += 1
            if transition.action == "archive":
                self._archived.add(transition.key)
            events.append(f"{transition.action} {transition.key} ({transition.reason})")
        self._note_context(ended.number, context)
        items = len(await self._items())
        self._played.context_id = context.id
        self._played.turns.append(
            Told(ended.number, turn.user, context.tokens_used, context.tokens_max, items, tuple(events))
        )

    async def close_the_books(self) -> None:
        """Checks what must be so at the end."""
        checks, session = self._played.checks, self._session
        self._played.health = await session.health()
        turns = len(self._script.turns)
        checks.append((f"No context of {turns} was over its budget", not self._over_budget))
        listed = [message.text async for message in session.messages()]
        for name, (_, _, abandoned) in self._savepoints.items():
            if abandoned:
                checks.append(
                    (
                        f"What was said after {name!r} is not in the present transcript, and still readable",
                        not set(abandoned) & set(listed),
                    )
                )
        if self._archived:
            holds = await self._is_handed_over(self._archived)
            checks.append((f"Each of {len(self._archived)} archived items is a fact candidate", holds))
        told = [transition async for transition in session.transitions()]
        checks.append((f"Every one of {self._left} decisions of the controller is told", len(told) >= self._left))

    async def _step(self, step: Step) -> list[str]:
        session = self._session
        match step:
            case Put():
                await session.items.put(step.key, step.value, blind=True, attributes=step.attributes or None)
                self._values[step.key] = step.value
                return []
            case Get():
                await session.items.get(step.key)
                return []
            case Goal():
                await session.goal(step.name).put(step.text, blind=True, attributes={"status": step.status})
                self._values[f"goals/{step.name}"] = step.text
                return [f"goal {step.name}: {step.status}"]
            case Tool():
                return [await self._tool(step)]
            case Checkpoint():
                made = await session.checkpoint(step.name)
                said = [message.text async for message in session.messages()]
                self._savepoints[step.name] = (made.id, await self._items(), said)
                return [f"checkpoint {step.name!r}"]
            case Restore():
                return [await self._restore(step.name)]
            case Summarize():
                summary = await session.summarize()
                return [f"summary of {summary.messages} messages"] if summary is not None else []

    async def _tool(self, step: Tool) -> str:
        session = self._session
        call = await session.start_tool(step.name, step.args, late=step.late)
        if step.goal_meanwhile is not None:
            await session.goal().put(step.goal_meanwhile, blind=True, attributes={"status": "open"})
            self._values["goals/main"] = step.goal_meanwhile
        # Whoever has the ticket may finish it; here it is the same agent, by the ticket alone.
        finished: ToolCall = await (await self._client.tool_call(call.ticket)).finish(step.result, keep=step.keep)
        met = finished.status == step.expect
        found = "" if met else f" (it is {finished.status})"
        self._played.checks.append((f"The call of {step.name!r} is {step.expect}{found}", met))
        told = f"{step.name}: {finished.status}"
        if finished.changes:
            told += f", because {', '.join(change.key for change in finished.changes)} changed meanwhile"
        if finished.raw_bytes and finished.compaction not in ("none", None):
            self._compacted += 1
            told += f", {finished.raw_bytes} bytes became {finished.tokens} tokens ({finished.compaction})"
        return told

    async def _restore(self, name: str) -> str:
        checkpoint_id, items, said = self._savepoints[name]
        before = [message.text async for message in self._session.messages()]
        restored = await self._session.restore(checkpoint_id)
        self._played.checks.append((f"The items are as they were at {name!r}", await self._items() == items))
        left = [message.text async for message in self._session.messages(branch=restored.abandoned_branch)]
        self._played.checks.append(("The branch that was left is readable as it was", left == before))
        # What both have in common was said before; what was said twice says nothing.
        later = [text for text in before[len(said) :] if text not in said]
        self._savepoints[name] = (checkpoint_id, items, later)
        return f"restored {name!r}; branch {restored.abandoned_branch} stays readable"

    async def _is_handed_over(self, keys: set[str]) -> bool:
        """Tells whether items wait to become facts, or were decided about; waits for what is just being decided."""
        facts = self._client.facts
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_LIMIT_S), facts.watch() as decisions:
                while True:
                    waiting = {
                        json.loads(record.raw)["item"]
                        async for record in self._session.items.list("_session/outbox/")
                        if record.raw is not None
                    }
                    texts = [state.candidate.text async for state in facts.candidates()]
                    # What the server made smaller, results of tools, is in its own words.
                    ours = (self._values[key] for key in keys - waiting if key in self._values)
                    if all(any(_says(text, value) for text in texts) for value in ours):
                        return True
                    await anext(decisions)
        return False

    async def _items(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        async for record in self._session.items.list():
            if not record.key.startswith("_session/"):
                found[record.key] = record.raw or b""
        return found

    def _note_context(self, turn: int, context: Context) -> None:
        if context.tokens_used > min(context.tokens_max, self._script.tokens):
            self._over_budget.append(turn)


def _says(text: str, value: Any) -> bool:
    """Tells whether a claim in words is of a value: whatever texts and numbers that holds, they stand in it."""
    match value:
        case dict():
            return all(_says(text, one) for one in value.values())
        case list():
            return all(_says(text, one) for one in value)
        case None | bool():
            return True
    return str(value) in text
