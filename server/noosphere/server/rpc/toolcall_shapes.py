"""Calls of tools: proto messages to domain values and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noosphere.consistency import Encoding, invalid
from noosphere.v1 import session_service_pb2 as pb

from ..sessions.finishing import Outcome
from ..sessions.raw import MESSAGE_BYTES_MAX
from ..sessions.tickets import Ticket
from ..sessions.toolcall import BasisChange, Compaction, LatePolicy, ToolCall, ToolCallStatus
from ..sessions.toolcalls import NewToolCall
from . import decode
from .times import duration_ms, timestamp

_POLICIES: Mapping[int, LatePolicy] = {
    pb.LATE_POLICY_UNSPECIFIED: LatePolicy.APPLY_FLAGGED,
    pb.LATE_POLICY_APPLY: LatePolicy.APPLY,
    pb.LATE_POLICY_APPLY_FLAGGED: LatePolicy.APPLY_FLAGGED,
    pb.LATE_POLICY_PARK: LatePolicy.PARK,
    pb.LATE_POLICY_REJECT: LatePolicy.REJECT,
}
_POLICY_NUMBERS = {
    LatePolicy.APPLY: pb.LATE_POLICY_APPLY,
    LatePolicy.APPLY_FLAGGED: pb.LATE_POLICY_APPLY_FLAGGED,
    LatePolicy.PARK: pb.LATE_POLICY_PARK,
    LatePolicy.REJECT: pb.LATE_POLICY_REJECT,
}
_STATUSES: Mapping[int, ToolCallStatus | None] = {
    pb.TOOL_CALL_STATUS_UNSPECIFIED: None,
    pb.TOOL_CALL_STATUS_PENDING: ToolCallStatus.PENDING,
    pb.TOOL_CALL_STATUS_DONE: ToolCallStatus.DONE,
    pb.TOOL_CALL_STATUS_FAILED: ToolCallStatus.FAILED,
    pb.TOOL_CALL_STATUS_PARKED: ToolCallStatus.PARKED,
    pb.TOOL_CALL_STATUS_REJECTED: ToolCallStatus.REJECTED,
}
_STATUS_NUMBERS = {
    ToolCallStatus.PENDING: pb.TOOL_CALL_STATUS_PENDING,
    ToolCallStatus.DONE: pb.TOOL_CALL_STATUS_DONE,
    ToolCallStatus.FAILED: pb.TOOL_CALL_STATUS_FAILED,
    ToolCallStatus.PARKED: pb.TOOL_CALL_STATUS_PARKED,
    ToolCallStatus.REJECTED: pb.TOOL_CALL_STATUS_REJECTED,
}
_COMPACTION_NUMBERS = {
    None: pb.COMPACTION_UNSPECIFIED,
    Compaction.NONE: pb.COMPACTION_NONE,
    Compaction.FIELDS: pb.COMPACTION_FIELDS,
    Compaction.LOSSLESS: pb.COMPACTION_LOSSLESS,
    Compaction.RELEVANT: pb.COMPACTION_RELEVANT,
    Compaction.CUT: pb.COMPACTION_CUT,
}


def new_tool_call(request: pb.StartToolCallRequest) -> NewToolCall:
    """Returns a call to start; sizes are checked by the service.

    Raises:
        Refusal: INVALID_FIELD.
    """
    policy = _POLICIES.get(request.late_policy)
    if policy is None:
        raise invalid("late_policy", f"{request.late_policy} is not a late policy")
    return NewToolCall(
        request.call_id,
        request.name,
        request.arguments,
        tuple(request.based_on),
        policy,
        duration_ms("deadline", request.deadline) if request.HasField("deadline") else None,
        request.side_effects,
        request.retry,
    )


def ticket(text: str, attempt: int = 0) -> Ticket:
    """Returns a ticket; an attempt other than 0 takes the place of the ticket's own.

    Raises:
        Refusal: INVALID_FIELD.
    """
    found = Ticket.parse(text)
    return found._replace(attempt=attempt) if attempt else found


def outcome(request: pb.FinishToolCallRequest) -> Outcome:
    """Returns how a tool ended; whether a result is the JSON that it is said to be is checked by the service.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    match request.WhichOneof("outcome"):
        case "result":
            encoding = decode.encoding("result", request.result)
            data = decode.bounded("result.data", request.result.data, MESSAGE_BYTES_MAX)
            return Outcome(data, encoding, upload_id=request.upload_id, keep=tuple(request.keep))
        case "failure":
            if request.upload_id:
                raise invalid("upload_id", "belongs to a result, not to a failure")
            data = decode.bounded("failure", request.failure.encode(), MESSAGE_BYTES_MAX)
            return Outcome(data, Encoding.BYTES, failed=True, keep=tuple(request.keep))
        case _:
            raise invalid("outcome", "must be a result or a failure")


def tool_call_status(number: int) -> ToolCallStatus | None:
    """Returns a status; None for UNSPECIFIED.

    Raises:
        Refusal: INVALID_FIELD for an unknown one.
    """
    if number not in _STATUSES:
        raise invalid("status", f"{number} is not a tool call's status")
    return _STATUSES[number]


def tool_call_shape(session_id: str, value: ToolCall) -> pb.ToolCall:
    """Returns a call."""
    return pb.ToolCall(
        call_id=value.call_id,
        ticket=str(Ticket(session_id, value.key.rpartition("/")[2], value.attempt)),
        name=value.name,
        arguments=value.arguments,
        status=_STATUS_NUMBERS[value.status],
        author=value.author,
        turn=value.turn,
        start_time=timestamp(value.started_ms),
        finish_time=timestamp(value.finished_ms) if value.finished_ms else None,
        deadline=timestamp(value.deadline_ms) if value.deadline_ms else None,
        based_on=[pb.Basis(key=key, version=version) for key, version in value.based_on],
        late_policy=_POLICY_NUMBERS[value.late_policy],
        attempt=value.attempt,
        side_effects=value.side_effects,
        changes=change_shapes(value.changes),
        overdue=value.overdue,
        content=value.content,
        compaction=_COMPACTION_NUMBERS[value.compaction],
        tokens=value.tokens,
        raw_bytes=value.raw_bytes,
        key=value.key,
    )


def change_shapes(values: Sequence[BasisChange]) -> list[pb.BasisChange]:
    """Returns changes of a basis."""
    return [pb.BasisChange(key=key, seen=seen, now=now, actor=actor) for key, seen, now, actor in values]
