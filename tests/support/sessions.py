"""Sessions as an agent of the behaviour suite calls them: raw requests, and the short ways that most tests take.

Nothing here remembers anything between calls or retries: tests see the contract raw.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message
from tests.support.api import Agent, contents
from tests.support.transport import SESSIONS, Refused
from tests.support.worlds import World

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

OUTBOX = "_session/outbox/"

Response = TypeVar("Response", bound=Message)


def space(session_id: str) -> str:
    """Returns a session's namespace."""
    return f"sessions/{session_id}"


class SessionAgent:
    """An agent that calls SessionService. Keyword arguments are fields of the request, by their own names."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def call(self, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call; a request without a caller gets this agent."""
        if not request.HasField("call"):
            request.call.CopyFrom(self.agent.call())  # type: ignore[attr-defined] # every request has one
        return await self.agent.api.transport.unary(SESSIONS, method, request, kind)

    async def open(self, session_id: str = "", **fields: Any) -> pb.Session:
        """Opens a session."""
        request = pb.OpenSessionRequest(session_id=session_id, **fields)
        return (await self.call("OpenSession", request, pb.OpenSessionResponse)).session

    async def get(self, session_id: str) -> pb.Session:
        """Reads a session."""
        request = pb.GetSessionRequest(session_id=session_id)
        return (await self.call("GetSession", request, pb.GetSessionResponse)).session

    async def update(self, session_id: str, **fields: Any) -> pb.Session:
        """Changes title and labels."""
        request = pb.UpdateSessionRequest(session_id=session_id, **fields)
        return (await self.call("UpdateSession", request, pb.UpdateSessionResponse)).session

    async def listed(self, page_size: int = 0, **fields: Any) -> list[pb.Session]:
        """Reads every page of a list."""
        found: list[pb.Session] = []
        token = ""
        while True:
            request = pb.ListSessionsRequest(page_size=page_size, page_token=token, **fields)
            response = await self.call("ListSessions", request, pb.ListSessionsResponse)
            found += response.sessions
            token = response.next_page_token
            if not token:
                return found

    async def append(self, session_id: str, *messages: pb.Message, **fields: Any) -> pb.AppendMessagesResponse:
        """Appends messages."""
        request = pb.AppendMessagesRequest(session_id=session_id, messages=messages, **fields)
        return await self.call("AppendMessages", request, pb.AppendMessagesResponse)

    async def say(self, session_id: str, text: str, **fields: Any) -> pb.Message:
        """Appends one message of the user and returns it as stored."""
        return (await self.append(session_id, said(text, **fields))).messages[0]

    async def messages(self, session_id: str, page_size: int = 0, **fields: Any) -> list[pb.Message]:
        """Reads every page of a transcript."""
        found: list[pb.Message] = []
        token = ""
        while True:
            request = pb.ListMessagesRequest(session_id=session_id, page_size=page_size, page_token=token, **fields)
            response = await self.call("ListMessages", request, pb.ListMessagesResponse)
            found += response.messages
            token = response.next_page_token
            if not token:
                return found

    async def retract(self, session_id: str, message_id: str) -> pb.Message:
        """Takes a message back."""
        request = pb.RetractMessageRequest(session_id=session_id, message_id=message_id)
        return (await self.call("RetractMessage", request, pb.RetractMessageResponse)).message

    async def begin_turn(self, session_id: str, **fields: Any) -> int:
        """Begins a turn; returns its number."""
        request = pb.BeginTurnRequest(session_id=session_id, **fields)
        return (await self.call("BeginTurn", request, pb.BeginTurnResponse)).turn

    async def end_turn(self, session_id: str, turn: int = 0, **fields: Any) -> pb.EndTurnResponse:
        """Ends a turn."""
        request = pb.EndTurnRequest(session_id=session_id, turn=turn, **fields)
        return await self.call("EndTurn", request, pb.EndTurnResponse)

    async def control(self, session_id: str) -> pb.GetControlResponse:
        """Reads the control state."""
        return await self.call("GetControl", pb.GetControlRequest(session_id=session_id), pb.GetControlResponse)

    async def set_control(self, session_id: str, **fields: Any) -> pb.SetControlResponse:
        """Replaces the control state."""
        request = pb.SetControlRequest(session_id=session_id, **fields)
        return await self.call("SetControl", request, pb.SetControlResponse)

    async def checkpoint(self, session_id: str, **fields: Any) -> pb.Checkpoint:
        """Makes a checkpoint."""
        request = pb.CreateCheckpointRequest(session_id=session_id, **fields)
        return (await self.call("CreateCheckpoint", request, pb.CreateCheckpointResponse)).checkpoint

    async def checkpoints(self, session_id: str, page_size: int = 0) -> list[pb.Checkpoint]:
        """Reads every page of checkpoints, the newest first."""
        found: list[pb.Checkpoint] = []
        token = ""
        while True:
            request = pb.ListCheckpointsRequest(session_id=session_id, page_size=page_size, page_token=token)
            response = await self.call("ListCheckpoints", request, pb.ListCheckpointsResponse)
            found += response.checkpoints
            token = response.next_page_token
            if not token:
                return found

    async def restore(self, session_id: str, checkpoint_id: str, **fields: Any) -> pb.RestoreCheckpointResponse:
        """Goes back to a checkpoint."""
        request = pb.RestoreCheckpointRequest(session_id=session_id, checkpoint_id=checkpoint_id, **fields)
        return await self.call("RestoreCheckpoint", request, pb.RestoreCheckpointResponse)

    async def fork(self, session_id: str, **fields: Any) -> pb.Session:
        """Forks a session."""
        request = pb.ForkSessionRequest(session_id=session_id, **fields)
        return (await self.call("ForkSession", request, pb.ForkSessionResponse)).session

    async def close(self, session_id: str, **fields: Any) -> pb.CloseSessionResponse:
        """Closes a session."""
        request = pb.CloseSessionRequest(session_id=session_id, **fields)
        return await self.call("CloseSession", request, pb.CloseSessionResponse)

    async def purge(self, session_id: str, **fields: Any) -> int:
        """Purges a session; returns how many records went."""
        request = pb.PurgeSessionRequest(session_id=session_id, **fields)
        return (await self.call("PurgeSession", request, pb.PurgeSessionResponse)).records

    async def summarise(self, session_id: str, **fields: Any) -> pb.SummarizeSessionResponse:
        """Has covered what left the window."""
        request = pb.SummarizeSessionRequest(session_id=session_id, **fields)
        return await self.call("SummarizeSession", request, pb.SummarizeSessionResponse)

    async def run(self, session_id: str, **fields: Any) -> dict[str, pb.Transition]:
        """Runs the controller; returns its decisions by key."""
        request = pb.RunTransitionsRequest(session_id=session_id, **fields)
        response = await self.call("RunTransitions", request, pb.RunTransitionsResponse)
        return {transition.key: transition for transition in response.transitions}

    async def transitions(self, session_id: str, page_size: int = 0) -> list[pb.Transition]:
        """Reads every page of decisions, the newest first."""
        found: list[pb.Transition] = []
        token = ""
        while True:
            request = pb.ListTransitionsRequest(session_id=session_id, page_size=page_size, page_token=token)
            response = await self.call("ListTransitions", request, pb.ListTransitionsResponse)
            found += response.transitions
            token = response.next_page_token
            if not token:
                return found

    async def health(self, session_id: str) -> pb.GetSessionHealthResponse:
        """Reads how a session fares."""
        request = pb.GetSessionHealthRequest(session_id=session_id)
        return await self.call("GetSessionHealth", request, pb.GetSessionHealthResponse)

    async def turns(self, session_id: str, count: int = 1) -> list[pb.Transition]:
        """Begins and ends turns; returns what the controller changed."""
        changed: list[pb.Transition] = []
        for _ in range(count):
            turn = await self.begin_turn(session_id)
            changed += (await self.end_turn(session_id, turn)).transitions
        return changed

    async def items(self, session_id: str) -> dict[str, bytes]:
        """Reads all items with their one value."""
        records = await self.agent.listing(space(session_id))
        return contents(record for record in records if not record.key.startswith("_session/"))


def said(text: str, role: pb.Role.ValueType = pb.ROLE_USER, **fields: Any) -> pb.Message:
    """Returns a message of one text."""
    return pb.Message(role=role, parts=[pb.Part(text=text)], **fields)


def text_of(message: pb.Message) -> str:
    """Returns the text of a message."""
    return "".join(part.text for part in message.parts)


def texts(messages: Iterable[pb.Message]) -> list[str]:
    """Returns the text of each message."""
    return [text_of(message) for message in messages]


async def proposed(agent: SessionAgent, session_id: str) -> list[dict[str, Any]]:
    """Returns every candidate that a session's outbox ever had, taken over or not, the oldest first."""
    return [json.loads(record.values[0].value.data) for _, record in await outbox_puts(agent, session_id)]


async def outbox_puts(agent: SessionAgent, session_id: str) -> list[tuple[int, types.Record]]:
    """Returns what was ever put into a session's outbox, each with its revision; it may have left by now."""
    batches = await agent.agent.history(space(session_id), page_size=1_000)
    changes = [(batch.revision, change.record) for batch in batches for change in batch.changes]
    return [(at, record) for at, record in changes if record.key.startswith(OUTBOX) and record.values]


async def caller(world: World, name: str = "a") -> SessionAgent:
    """Opens an agent that calls SessionService."""
    return SessionAgent(await world.agent(name))


def session_name(agent: SessionAgent, name: str = "s") -> str:
    """Returns a session's id that no other test uses."""
    return f"{name}-{agent.agent.actor.agent_id}"


@contextlib.contextmanager
def refusal(reason: str, *words: str) -> Iterator[None]:
    """Expects a call to be refused for a reason, with a message that has all the words."""
    with pytest.raises(Refused) as refused:
        yield
    assert refused.value.reason == reason
    for word in words:
        assert word in refused.value.message
