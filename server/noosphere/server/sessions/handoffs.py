"""Hand-overs: one agent records that another takes a session over, and gets one text that carries what it needs."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

import msgspec

from noosphere.consistency import (
    NOTHING_SEEN,
    ReadSet,
    Reason,
    Refusal,
    StaleEntry,
    check_agent_id,
    encode_causal,
    too_large,
)

from ..memory.types import Call
from .codec import author_of, value_of
from .control import decode_control
from .draft import Draft, Look
from .keys import CONTROL, HANDED, HANDOFFS, namespace_of, slot
from .scribe import Intent, Scribe
from .users import hand_to

NOTE_BYTES_MAX = 4 * 1024
_TO_ATTRIBUTE = "to"
_INDEX_BYTES = 2


class HandoffData(msgspec.Struct, frozen=True):
    """What the record of a hand-over holds.

    Attributes:
        to: the agent that takes over.
        note: what it should know.
        control_version: the control state's version then; 0 if it was never set.
        next_node: of the control state.
        pending_interrupt: of the control state.
        retries: of the control state.
    """

    to: str
    note: str
    control_version: int
    next_node: str = ""
    pending_interrupt: str = ""
    retries: int = 0


class HandoffReply(NamedTuple):
    """A hand-over that was recorded: its text and its id."""

    envelope: str
    handoff_id: str
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


_decoder = msgspec.json.Decoder(HandoffData)


class Handoffs:
    """Records hand-overs.

    Args:
        scribe: reads and writes their records.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def hand_over(self, call: Call, session_id: str, to: str, note: str) -> HandoffReply:
        """Records that ``to`` takes over, and uses the session from now on.

        The text names what the caller's causal tokens name, and the record itself: whoever observes it reads at
        least what the caller had seen. It authorises nothing.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, INVALID_FIELD, VALUE_TOO_LARGE, or a reason that concerns the
                caller.
        """
        check_agent_id(to, "to")
        if (size := len(note.encode())) > NOTE_BYTES_MAX:
            raise too_large("note", size, NOTE_BYTES_MAX)

        def decide(look: Look, draft: Draft) -> None:
            control = look.record(CONTROL)
            data = HandoffData(to, note, 0)
            if control is not None:
                state = decode_control(control)
                data = HandoffData(to, note, control.stored, state.next_node, state.pending_interrupt, state.retries)
            hand_to(look, draft, to)
            index = draft.append(HANDOFFS, msgspec.json.encode(data), ((_TO_ATTRIBUTE, to),))
            draft.reply = index.to_bytes(_INDEX_BYTES, "big")

        intent = Intent("handoff", (to, note), keys=(CONTROL, HANDED))
        written = await self._scribe.write(call, session_id, intent, decide)
        handoff_id = slot(written.revision, int.from_bytes(written.reply, "big"))
        envelope = await self._envelope(call, session_id, handoff_id, written.revision)
        return HandoffReply(envelope, handoff_id, written.head, written.read_set, written.stale)

    async def _envelope(self, call: Call, session_id: str, handoff_id: str, revision: int) -> str:
        key = HANDOFFS + handoff_id
        look = await self._scribe.read(Call(), session_id, (key,))
        record = look.record(key)
        if record is None:
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"hand-over {handoff_id!r} of session {session_id!r} is gone")
        data = _decoder.decode(value_of(record))
        control = {
            "key": CONTROL,
            "version": data.control_version,
            "next_node": data.next_node,
            "pending_interrupt": data.pending_interrupt,
            "retries": data.retries,
        }
        seen = NOTHING_SEEN if call.tokens is None else call.tokens.causal
        token = encode_causal(seen.seen(namespace_of(session_id), revision))
        return json.dumps(
            {
                "handoff_id": handoff_id,
                "session": session_id,
                "from": author_of(record),
                "to": data.to,
                "note": data.note,
                "control": control,
                "causal_token": base64.urlsafe_b64encode(token).decode().rstrip("="),
            },
            ensure_ascii=False,
        )
