"""Real runs of an agent with tools, played through sessions: nothing is flagged or stale that need not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from tests.support.causality import Mind
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, caller, said, space, text_of
from tests.support.toolcalls import as_bytes, as_json, begin, finish, listed, raw
from tests.support.traces import recorded_traces
from tests.support.worlds import LocalWorld

from noosphere.v1 import memory_service_pb2 as memory
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

ROLES = {"system": pb.ROLE_SYSTEM, "user": pb.ROLE_USER, "assistant": pb.ROLE_ASSISTANT, "tool": pb.ROLE_TOOL}
RUNS = 24
CALLS = 137
GUARDS = ("goals/", "plan/")


class Meanwhile(Enum):
    """What happens between the start of a call and its result."""

    NOTHING = "nothing"
    CHAT = "a peer chats"
    EDIT = "the goal is edited"


def runs() -> list[list[dict[str, Any]]]:
    """Returns the recorded transcripts."""
    found = recorded_traces()
    files = sorted(found.glob("*.json")) if found.is_dir() else [found]
    return [run["traj"] for file in files for run in json.loads(file.read_text())]


class Player:
    """One agent that does what a recorded run did. Every write of its own carries all that it has seen so far.

    Alone it guards everything, its transcript included; beside a peer that chats, goals and plan. Where goals are
    edited under it, it looks anew for each decision, and leaves it to the calls to say what has changed.
    """

    def __init__(self, a: SessionAgent, peer: SessionAgent, session_id: str, meanwhile: Meanwhile) -> None:
        self.a = a
        self.peer = peer
        self.s = session_id
        self.meanwhile = meanwhile
        self.mind = Mind(a.agent)
        self.edits = 0

    async def play(self, run: list[dict[str, Any]]) -> list[pb.ToolCall]:
        """Plays a run; returns its calls as they ended."""
        await self.a.open(self.s)
        await self.a.agent.put(space(self.s), "goals/main", next(m["content"] for m in run if m["role"] == "user"))
        finished = []
        messages = iter(run)
        for message in messages:
            if message["role"] in {"system", "user"}:
                spoken = said(message["content"], ROLES[message["role"]])
                self.mind.take((await self.a.append(self.s, spoken, call=self.seen())).call)
                continue
            await self.decide(message)
            for use, result in self._results(message, messages):
                finished.append(await self.call(use, result))
        return finished

    def seen(self) -> types.CallContext:
        """Returns who calls, with what must not have changed."""
        if self.meanwhile is Meanwhile.EDIT:
            return self.a.agent.call()
        chatted = self.meanwhile is Meanwhile.CHAT and self.mind.token
        return self.mind.call(guards=GUARDS if chatted else ())

    async def decide(self, message: dict[str, Any]) -> None:
        """Reads goals, plan, transcript and calls, and commits the recorded answer against that."""
        if self.meanwhile is Meanwhile.EDIT:
            self.mind = Mind(self.a.agent)
        for collection in ("goals/", "plan/", "_session/messages/", "_session/tools/"):
            await self.mind.page(space(self.s), collection, page_size=1000)
        uses = [
            pb.ToolUse(call_id=use["id"], name=use["function"]["name"], arguments=use["function"]["arguments"])
            for use in message.get("tool_calls") or ()
        ]
        spoken = said(message["content"] or "", pb.ROLE_ASSISTANT, tool_calls=uses)
        if not message["content"]:
            del spoken.parts[:]
        append = memory.Operation(append=memory.AppendOperation(message=spoken))
        await self.mind.commit(space(self.s), append, guards=() if self.meanwhile is Meanwhile.NOTHING else GUARDS)

    async def call(self, use: dict[str, Any], result: str) -> pb.ToolCall:
        """Starts a call, lets happen what happens, and finishes it."""
        function = use["function"]
        fields = {"name": function["name"], "arguments": function["arguments"]}
        begun = await begin(self.a, self.s, use["id"], call=self.seen(), **fields)
        self.mind.take(begun.call)
        if self.meanwhile is not Meanwhile.NOTHING:
            await self.peer.say(self.s, "still there?")
        if self.meanwhile is Meanwhile.EDIT:
            self.edits += 1
            await self.peer.agent.put(space(self.s), "goals/main", f"other goal {self.edits}", blind=True)
        try:
            value = as_json(json.loads(result))
            value.data = result.encode()
        except ValueError:
            value = as_bytes(result.encode())
        ticket = begun.tool_call.ticket
        done = await finish(self.a, ticket, result=value, append_message=True, call=self.seen())
        self.mind.take(done.call)
        return done.tool_call

    @staticmethod
    def _results(message: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
        for use in message.get("tool_calls") or ():
            result = next(rest)
            assert (result["role"], result["tool_call_id"]) == ("tool", use["id"])
            yield use, result["content"]


@pytest.mark.parametrize("meanwhile", Meanwhile, ids=lambda value: value.value)
async def test_real_runs_are_flagged_only_if_their_goal_was_edited(local: LocalServer, meanwhile: Meanwhile) -> None:
    world = LocalWorld(local)
    played = calls = 0
    for number, run in enumerate(runs()):
        a, peer = await caller(world, f"agent-{number}"), await caller(world, f"peer-{number}")
        player = Player(a, peer, f"run-{number}", meanwhile)
        finished = await player.play(run)
        played += 1
        calls += len(finished)
        assert await listed(a, player.s) == finished
        for call, result in zip(finished, [m["content"] for m in run if m["role"] == "tool"], strict=True):
            assert call.status == pb.TOOL_CALL_STATUS_DONE
            assert not call.overdue
            flagged = [(change.key, change.actor) for change in call.changes]
            assert flagged == ([("goals/main", peer.agent.name)] if meanwhile is Meanwhile.EDIT else [])
            assert call.tokens <= 500
            assert b"".join(await raw(a, call.ticket)) == result.encode()
        own = [m for m in await a.messages(player.s, page_size=1000) if m.author == a.agent.actor.agent_id]
        assert [m.role for m in own] == [ROLES[m["role"]] for m in run]
        said_again = [text_of(m) for m in own if m.role != pb.ROLE_TOOL]
        assert said_again == [m["content"] or "" for m in run if m["role"] != "tool"]
        assert [text_of(m) for m in own if m.role == pb.ROLE_TOOL] == [call.content for call in finished]
    assert (played, calls) == (RUNS, CALLS)
