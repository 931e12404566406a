"""The control state: where an agent's program stands, so that it can go on in another process."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noosphere.consistency import ConflictInfo, ReadSet, Reason, Record, Refusal, StaleEntry, too_large

from ..memory.types import Call
from .codec import author_of, decode_index, encode, value_of
from .draft import Draft, Look
from .keys import CONTROL, PENDING
from .scribe import Intent, Scan, Scribe, recorded
from .types import ControlState

DATA_BYTES_MAX = 64 * 1024
NODE_BYTES_MAX = 256
INTERRUPT_BYTES_MAX = 4 * 1024
PENDING_SHOWN_MAX = 64
_PENDING_SCANNED_MAX = 1_024

_decoder = msgspec.json.Decoder(ControlState)


def decode_control(record: Record) -> ControlState:
    """Returns what ``_session/control`` holds."""
    return _decoder.decode(value_of(record))


class ControlReply(NamedTuple):
    """The control state with its version (0 if it was never set), who set it, and which calls are pending."""

    control: ControlState
    version: int
    author: str
    pending_calls: tuple[str, ...]
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...] = ()


class Control:
    """Reads and replaces control states."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def get(self, call: Call, session_id: str) -> ControlReply:
        """Reads the control state.

        Raises:
            Refusal: SESSION_NOT_FOUND, or a reason that concerns the caller.
        """
        look = await self._scribe.read(call, session_id, (CONTROL,), (Scan(PENDING, _PENDING_SCANNED_MAX),))
        record = look.record(CONTROL)
        begun = sorted((e.revision, decode_index(e.data), e.key) for e in look.scans[0].entries)
        pending = tuple(key[len(PENDING) :] for _, _, key in begun[:PENDING_SHOWN_MAX])
        read_set = recorded(call, look, (CONTROL,))
        if record is None:
            return ControlReply(ControlState(), 0, "", pending, look.view.head, read_set)
        control = decode_control(record)
        return ControlReply(control, record.stored, author_of(record), pending, look.view.head, read_set)

    async def set(
        self, call: Call, session_id: str, control: ControlState, *, expected_version: int | None
    ) -> ControlReply:
        """Replaces the control state.

        Args:
            call: who sets it.
            session_id: where.
            control: the new state.
            expected_version: refuse unless this is its version, 0 for never set; None overwrites.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, VERSION_MISMATCH, VALUE_TOO_LARGE, or a reason that concerns
                the caller.
        """
        for field, size, limit in (
            ("control.next_node", len(control.next_node.encode()), NODE_BYTES_MAX),
            ("control.pending_interrupt", len(control.pending_interrupt.encode()), INTERRUPT_BYTES_MAX),
            ("control.data", len(bytes(control.data)), DATA_BYTES_MAX),
        ):
            if size > limit:
                raise too_large(field, size, limit)

        def decide(look: Look, draft: Draft) -> None:
            record = look.record(CONTROL)
            version = 0 if record is None else record.stored
            if expected_version is not None and version != expected_version:
                message = f"the control state has version {version}, not {expected_version}"
                raise Refusal(Reason.VERSION_MISMATCH, message, ConflictInfo(CONTROL, version))
            draft.put(CONTROL, encode(control))

        meaning = (control.next_node, control.pending_interrupt, control.retries, bytes(control.data), expected_version)
        shown = () if expected_version is None else (expected_version,)
        intent = Intent("set_control", meaning, keys=(CONTROL,), presents=shown)
        written = await self._scribe.write(call, session_id, intent, decide)
        author = call.agent_id
        return ControlReply(control, written.revision, author, (), written.head, written.read_set, written.stale)
