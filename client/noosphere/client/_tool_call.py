"""Calls of tools: started by one process, finished exactly once by any that has the ticket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from noosphere.consistency import Encoding
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2

from ._arguments import checked_text, shown
from ._budget import Budget
from ._errors import InvalidArgument, ValueTooLarge
from ._messages import Message, to_message
from ._operations import checked_key
from ._session_link import Link, Services
from ._session_wire import name_of, number_of, time_or_none
from ._values import JSON, Payload, load_json
from ._wire import from_payload, from_seconds, to_seconds, to_time

LatePolicy = Literal["apply", "apply_flagged", "park", "reject"]
"""What happens to a result whose basis has changed: it is applied; applied, and flagged with the changes; kept for
a review; or refused."""

ToolCallStatus = Literal["pending", "done", "failed", "parked", "rejected"]
"""Where a call stands: no result yet; the result is in working memory; the tool failed; the result waits for a
review, or was refused, because its basis had changed."""

Compaction = Literal["", "none", "fields", "lossless", "relevant", "cut"]
"""How a result entered working memory: there is none yet; as it arrived; the fields that were named; written
shorter with nothing left out; the parts most relevant to the task; or head and tail."""

RESULT_BYTES_MAX = 8 * 1024 * 1024
_PIECE_BYTES = 768 * 1024

_LATE: Mapping[LatePolicy, pb.LatePolicy.ValueType] = {
    "apply": pb.LATE_POLICY_APPLY,
    "apply_flagged": pb.LATE_POLICY_APPLY_FLAGGED,
    "park": pb.LATE_POLICY_PARK,
    "reject": pb.LATE_POLICY_REJECT,
}
STATUSES: Mapping[ToolCallStatus, pb.ToolCallStatus.ValueType] = {
    "pending": pb.TOOL_CALL_STATUS_PENDING,
    "done": pb.TOOL_CALL_STATUS_DONE,
    "failed": pb.TOOL_CALL_STATUS_FAILED,
    "parked": pb.TOOL_CALL_STATUS_PARKED,
    "rejected": pb.TOOL_CALL_STATUS_REJECTED,
}
_COMPACTIONS: Mapping[Compaction, int] = {
    "": pb.COMPACTION_UNSPECIFIED,
    "none": pb.COMPACTION_NONE,
    "fields": pb.COMPACTION_FIELDS,
    "lossless": pb.COMPACTION_LOSSLESS,
    "relevant": pb.COMPACTION_RELEVANT,
    "cut": pb.COMPACTION_CUT,
}


class Basis(NamedTuple):
    """A key that a tool call is based on, and its version when the call began; 0 if it had no live value."""

    key: str
    version: int


class BasisChange(NamedTuple):
    """A change to what a tool call was based on.

    Attributes:
        key: the key.
        seen: the version that the call was based on.
        now: the version at present; 0 if the key has no live value.
        actor: who changed it, as ``agent#incarnation``; empty for an expiry.
    """

    key: str
    seen: int
    now: int
    actor: str


class ToolCall:
    """One call of a tool, as one request found it. Immutable: what finishes it returns it anew.

    ::

        call = await session.start_tool("search", {"q": "prices"}, based_on=("goals/main",), late="park")
        ...  # elsewhere, with call.ticket
        done = await (await client.tool_call(ticket)).finish(result, keep=("items[*].price",))
        if done.status == "parked":
            print([(change.key, change.actor) for change in done.changes])
    """

    def __init__(
        self,
        services: Services,
        proto: pb.ToolCall,
        *,
        changes: Sequence[pb.BasisChange] = (),
        message: Message | None = None,
        started: bool = False,
        replayed: bool = False,
    ) -> None:
        self._services = services
        self._proto = proto
        self._changes = changes
        self._message = message
        self._started = started
        self._replayed = replayed

    @property
    def session_id(self) -> str:
        """The session's id."""
        return session_of(self.ticket)

    @property
    def call_id(self) -> str:
        """The call's id, unique in the session."""
        return self._proto.call_id

    @property
    def ticket(self) -> str:
        """With this text any process may finish this attempt at the call."""
        return self._proto.ticket

    @property
    def reference(self) -> str:
        """What names it as the evidence of a fact: ``tool:<session>/<call id>``."""
        return f"tool:{self.session_id}/{self.call_id}"

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._proto.name

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, as they were given."""
        return self._proto.arguments

    @property
    def args(self) -> Any:
        """The arguments as a JSON value, a fresh object each time.

        Raises:
            ValueMismatch: they are not JSON, which models do write at times.
        """
        return load_json(self._proto.arguments or "{}")

    @property
    def status(self) -> ToolCallStatus:
        """Where it stands: ``pending``, ``done``, ``failed``, ``parked`` or ``rejected``."""
        return name_of(self._proto.status, STATUSES, "pending")

    @property
    def author(self) -> str:
        """The agent that started it."""
        return self._proto.author

    @property
    def turn(self) -> int:
        """The turn in which it was started; 0 outside any."""
        return self._proto.turn

    @property
    def started_at(self) -> datetime:
        """Store time of the start."""
        return to_time(self._proto.start_time)

    @property
    def finished_at(self) -> datetime | None:
        """Store time of the end; None while it is pending."""
        return time_or_none(self._proto.HasField("finish_time"), self._proto.finish_time)

    @property
    def deadline(self) -> datetime | None:
        """From then on a result is late, whatever its basis; None for never."""
        return time_or_none(self._proto.HasField("deadline"), self._proto.deadline)

    @property
    def based_on(self) -> tuple[Basis, ...]:
        """What it is based on."""
        return tuple(Basis(basis.key, basis.version) for basis in self._proto.based_on)

    @property
    def late(self) -> LatePolicy:
        """What happens to a late result."""
        return name_of(self._proto.late_policy, _LATE, "apply_flagged")

    @property
    def attempt(self) -> int:
        """Which attempt may finish it, from 1."""
        return self._proto.attempt

    @property
    def side_effects(self) -> bool:
        """Whether the tool is declared to change the world."""
        return self._proto.side_effects

    @property
    def changes(self) -> tuple[BasisChange, ...]:
        """What of its basis had changed when the result came; as long as nothing is decided, what has by now."""
        found = self._changes or self._proto.changes
        return tuple(BasisChange(change.key, change.seen, change.now, change.actor) for change in found)

    @property
    def overdue(self) -> bool:
        """Whether the result came after the deadline."""
        return self._proto.overdue

    @property
    def content(self) -> str:
        """The result as it entered working memory, or why the call failed."""
        return self._proto.content

    @property
    def compaction(self) -> Compaction:
        """How the result was made smaller; empty if there is none yet."""
        return name_of(self._proto.compaction, _COMPACTIONS, "relevant")

    @property
    def tokens(self) -> int:
        """Size of the content in the session's tokenizer."""
        return self._proto.tokens

    @property
    def raw_bytes(self) -> int:
        """Size of the result as it arrived, in bytes."""
        return self._proto.raw_bytes

    @property
    def key(self) -> str:
        """Its key in the session's namespace; a call started later has a greater one."""
        return self._proto.key

    @property
    def message(self) -> Message | None:
        """The message that finishing it has appended; None if none was asked for."""
        return self._message

    @property
    def started(self) -> bool:
        """Whether the request that returned this started it; False for a call that was known."""
        return self._started

    @property
    def replayed(self) -> bool:
        """Whether an earlier, remembered execution of the request is being reported."""
        return self._replayed

    async def refresh(self, *, timeout: float | None = None) -> ToolCall:
        """Reads the call again.

        Args:
            timeout: the deadline with all retries, in seconds.

        Raises:
            NoosphereError: see the tree.
        """
        return await read_tool_call(self._services, self.ticket, timeout)

    async def finish(
        self,
        result: Any,
        *,
        keep: Sequence[str] = (),
        append_message: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolCall:
        """Brings the result, exactly once.

        Whether it is applied depends on what the call is based on, see ``late`` of ``Session.start_tool``: look
        at the ``status`` and ``changes`` of what is returned. A result that is larger than the session's limit is
        kept whole and enters working memory made smaller.

        Args:
            result: a text, a JSON value, bytes or a pydantic model, at most 8 MiB. A large one travels in pieces.
            keep: paths of the fields to keep of a JSON result that is too large, e.g. ``items[*].price``.
            append_message: also append the result to the transcript, as a tool's message.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline of all of it, in seconds.

        Returns:
            The call as it stands now.

        Raises:
            ToolResultSuperseded: it has a result, or is at another attempt; nothing was written.
            SessionClosed: the session was closed, and the call failed by that.
            ValueTooLarge: the result is too large.
            NoosphereError: anything else, see the tree.
        """
        payload = _payload_of(result)
        if len(payload.data) > RESULT_BYTES_MAX:
            error = ValueTooLarge(f"result: {len(payload.data)} bytes, the limit is {RESULT_BYTES_MAX}")
            error.field, error.actual, error.limit = "result", len(payload.data), RESULT_BYTES_MAX
            raise error
        budget = Budget(self._services.transport, timeout, "delivery of the result")
        rest = max((len(payload.data) - 1) // _PIECE_BYTES, 0) * _PIECE_BYTES
        request = pb.FinishToolCallRequest(
            ticket=self.ticket,
            result=from_payload(Payload(payload.data[rest:], payload.encoding)),
            keep=[checked_text(f"keep[{index}]", path) for index, path in enumerate(_several("keep", keep))],
            append_message=append_message,
        )
        if rest:
            request.upload_id = await self._upload(payload.data[:rest], budget.call())
        return await self._end(request, request_id, budget.call())

    async def fail(
        self,
        why: str,
        *,
        append_message: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolCall:
        """Says that the tool has failed, or that the call is given up.

        Args:
            why: why, for the agent that waits for the result.
            append_message: also append that to the transcript, as a tool's message.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The call as it stands now.

        Raises:
            ToolResultSuperseded: it has a result, or is at another attempt; nothing was written.
            NoosphereError: anything else, see the tree.
        """
        request = pb.FinishToolCallRequest(
            ticket=self.ticket, failure=checked_text("why", why), append_message=append_message
        )
        return await self._end(request, request_id, timeout)

    async def accept(self, *, request_id: str | None = None, timeout: float | None = None) -> ToolCall:
        """Applies a parked result after all.

        Args:
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            NotParked: no result waits for a review.
            NoosphereError: anything else, see the tree.
        """
        return await self._review(True, request_id, timeout)

    async def reject(self, *, request_id: str | None = None, timeout: float | None = None) -> ToolCall:
        """Refuses a parked result, which stays readable as it arrived; see :meth:`accept`."""
        return await self._review(False, request_id, timeout)

    async def raw(self, *, timeout: float | None = None) -> bytes:
        """Returns the result as it arrived; empty if there is none yet.

        Args:
            timeout: the deadline with all retries, in seconds.

        Raises:
            NoosphereError: see the tree.
        """
        stub = self._services.sessions

        async def read(request: Any, *, timeout: float | None = None) -> bytes:
            return b"".join([piece.data async for piece in stub.ReadToolResult(request, timeout=timeout)])

        transport = self._services.transport
        request = pb.ReadToolResultRequest(ticket=self.ticket)
        return await transport.read(read, request, timeout=timeout, namespace=f"sessions/{self.session_id}")

    async def _review(self, apply: bool, request_id: str | None, timeout: float | None) -> ToolCall:
        link = Link(self._services, self.session_id)
        request = pb.ReviewToolCallRequest(ticket=self.ticket, apply=apply)
        reply: pb.ReviewToolCallResponse
        reply, _ = await link.write(link.sessions.ReviewToolCall, request, request_id, timeout)
        return ToolCall(self._services, reply.tool_call)

    async def _end(self, request: pb.FinishToolCallRequest, request_id: str | None, timeout: float | None) -> ToolCall:
        link = Link(self._services, self.session_id)
        reply: pb.FinishToolCallResponse
        reply, _ = await link.write(link.sessions.FinishToolCall, request, request_id, timeout)
        message = to_message(reply.message) if reply.HasField("message") else None
        return ToolCall(self._services, reply.tool_call, message=message, replayed=reply.replayed)

    async def _upload(self, data: bytes, timeout: float | None) -> str:
        """Sends the pieces before the last one; returns what names them.

        Sending them again does no harm: pieces that no result names are removed.
        """
        services, ticket = self._services, self.ticket
        call = types_pb2.CallContext(actor=services.transport.actor)

        def pieces() -> Iterator[pb.UploadToolResultRequest]:
            for start in range(0, len(data), _PIECE_BYTES):
                piece = pb.UploadToolResultRequest(data=data[start : start + _PIECE_BYTES])
                if not start:
                    piece.ticket = ticket
                    piece.call.CopyFrom(call)
                yield piece

        async def send(request: Any, *, timeout: float | None = None) -> pb.UploadToolResultResponse:
            return await services.sessions.UploadToolResult(request(), timeout=timeout)

        transport = services.transport
        seconds = transport.deadline(timeout)
        reply: pb.UploadToolResultResponse = await transport.invoke(
            send, pieces, timeout=seconds, namespace=f"sessions/{self.session_id}"
        )
        return reply.upload_id

    def __repr__(self) -> str:
        return f"ToolCall({self.session_id!r}, {self.call_id!r}, {self.name!r}, {self.status})"


async def read_tool_call(services: Services, ticket: str, timeout: float | None) -> ToolCall:
    """Reads a call; see ``Client.tool_call``."""
    link = Link(services, session_of(checked_text("ticket", ticket)))
    reply: pb.GetToolCallResponse = await link.read(
        link.sessions.GetToolCall, pb.GetToolCallRequest(ticket=ticket), timeout
    )
    return ToolCall(services, reply.tool_call, changes=reply.changes)


async def start_tool(
    link: Link,
    name: str,
    args: Any,
    *,
    call_id: str,
    based_on: Sequence[str],
    late: LatePolicy,
    deadline: timedelta | float | None,
    side_effects: bool,
    retry: bool,
    request_id: str | None,
    timeout: float | None,
) -> ToolCall:
    """Starts a call; see ``Session.start_tool``."""
    request = pb.StartToolCallRequest(
        session_id=link.id,
        call_id=checked_text("call_id", call_id),
        name=checked_text("name", name),
        arguments=checked_text("args", args) if isinstance(args, str) else JSON.encode(args, "args").data.decode(),
        based_on=[checked_key(key) for key in _several("based_on", based_on)],
        late_policy=number_of("late", late, _LATE),
        side_effects=side_effects,
        retry=retry,
    )
    if deadline is not None:
        request.deadline.CopyFrom(from_seconds(to_seconds("deadline", deadline)))
    reply: pb.StartToolCallResponse
    reply, _ = await link.write(link.sessions.StartToolCall, request, request_id, timeout)
    return ToolCall(link.services, reply.tool_call, started=reply.started)


def session_of(ticket: str) -> str:
    """Returns the session that a ticket names; of what is no ticket, whatever stands there."""
    return ticket.rsplit(":", 3)[0]


def _payload_of(result: Any) -> Payload:
    # A text is sent as it is: as JSON it would have to be kept a second time, with its quotes.
    if isinstance(result, str):
        return Payload(checked_text("result", result).encode(), Encoding.BYTES)
    return JSON.encode(result, "result")


def _several(field: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise InvalidArgument(f"{field}: {shown(values)} is {type(values).__name__}, not several texts")
    return values
