"""Tool results as they arrived, where that is more than working memory holds: at most 8 MiB, in pieces of 48 KiB.

What fits one commit is written by the commit that finishes the call. More is *uploaded* in commits before that, under
a record that ends after an hour; the finishing commit removes this record, and from then on the call refers to the
pieces. An upload that no call refers to by then is swept, the pieces with the record, in one commit.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from noosphere.consistency import Refusal, exhausted, invalid, too_large

from ..memory.admission import require_writer
from ..memory.types import Call
from .draft import Draft, Look
from .keys import UPLOADS, KeyRange, pieces_of
from .scribe import Intent, Scan, Scribe
from .tickets import Ticket
from .toolcall import check_attempt, tool_call_at

RAW_BYTES_MAX = 8 * 1024 * 1024
PIECE_BYTES = 48 * 1024
MESSAGE_BYTES_MAX = 900 * 1024
"""Most bytes of a result in one message of the API."""

AT_ONCE_BYTES_MAX = 256 * 1024
"""Most bytes of a result that are written by the commit that finishes its call."""

UPLOAD_MS = 60 * 60 * 1000
UPLOADS_MAX = 64
"""Most uploads of one session that no call refers to yet."""

_PIECES_A_STEP = 16
_ID = re.compile(r"[0-9a-f]{24}")
_ID_BYTES = 12


class Upload(NamedTuple):
    """What was uploaded."""

    upload_id: str
    bytes: int


class Uploaded(NamedTuple):
    """An upload as read back: its bytes, and in how many pieces they lie."""

    data: bytes
    pieces: int


def piece_key(blob: str, number: int) -> str:
    """Returns where a piece lies."""
    return f"{pieces_of(blob)}{number:04x}"


def upload_key(upload_id: str) -> str:
    """Returns where the record of an upload lies.

    Raises:
        Refusal: INVALID_FIELD, for what cannot be an upload's id.
    """
    if not _ID.fullmatch(upload_id):
        raise invalid("upload_id", f"{upload_id!r} is not what UploadToolResult returned")
    return UPLOADS + upload_id


def keep_pieces(draft: Draft, blob: str, data: bytes, first: int = 0) -> None:
    """Adds a result's pieces to a commit, from number ``first`` on."""
    for number, start in enumerate(range(0, len(data), PIECE_BYTES), first):
        draft.keep(piece_key(blob, number), data[start : start + PIECE_BYTES])


class RawResults:
    """Writes and reads results as they arrived.

    Args:
        scribe: reads and writes their records.
        rng: makes ids.
    """

    def __init__(self, scribe: Scribe, rng: random.Random) -> None:
        self._scribe = scribe
        self._rng = rng

    def new_id(self) -> str:
        """Returns an id that nobody else has."""
        return self._rng.randbytes(_ID_BYTES).hex()

    async def upload(self, call: Call, ticket: Ticket, parts: AsyncIterator[bytes]) -> Upload:
        """Stores a result, or the beginning of one, for the attempt that a ticket is for.

        Args:
            call: who uploads; the request id is not used, a retry uploads anew.
            ticket: which call.
            parts: the bytes in order, in any sizes.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, ENTRY_NOT_FOUND, TOOL_RESULT_SUPERSEDED, VALUE_TOO_LARGE,
                LIMIT_EXCEEDED (too many uploads), INVALID_FIELD (it took more than an hour), or a reason that
                concerns the caller.
        """
        require_writer(call)
        upload_id = self.new_id()
        who = Call(call.incarnation, fences=call.fences)
        await self._begin(who, ticket, upload_id)
        waiting = bytearray()
        size = pieces = 0
        async for part in parts:
            size += len(part)
            if size > RAW_BYTES_MAX:
                raise too_large("data", size, RAW_BYTES_MAX)
            waiting += part
            while len(waiting) >= _PIECES_A_STEP * PIECE_BYTES:
                step = bytes(waiting[: _PIECES_A_STEP * PIECE_BYTES])
                del waiting[: len(step)]
                pieces += await self.add(who, ticket, upload_id, step, pieces)
        if waiting:
            await self.add(who, ticket, upload_id, bytes(waiting), pieces)
        return Upload(upload_id, size)

    async def uploaded(self, ticket: Ticket, upload_id: str) -> Uploaded:
        """Reads back what was uploaded for a call.

        Raises:
            Refusal: INVALID_FIELD, if there is no such upload, or no longer.
        """
        name = upload_key(upload_id)
        look = await self._scribe.peek(ticket.session_id, (name,))
        check_upload(look, upload_id, ticket)
        found = [piece async for piece in self._pieces(ticket.session_id, upload_id, accepted=True)]
        return Uploaded(b"".join(found), len(found))

    async def read(self, session_id: str, blob: str) -> AsyncIterator[bytes]:
        """Yields the pieces of a result that a call refers to, synced, in order.

        Raises:
            Refusal: SESSION_NOT_FOUND, if the session is purged meanwhile.
        """
        async for piece in self._pieces(session_id, blob, accepted=False):
            yield piece

    async def _begin(self, call: Call, ticket: Ticket, upload_id: str) -> None:
        def decide(look: Look, draft: Draft) -> None:
            found = tool_call_at(look, ticket.key)
            check_attempt(found, ticket.attempt)
            held = sum(entry.live_until_ms > look.now_ms for entry in look.scans[0].entries)
            if held >= UPLOADS_MAX:
                raise exhausted("uploads", held + 1, UPLOADS_MAX, "too many uploads that no call refers to yet")
            draft.keep(UPLOADS + upload_id, ticket.slot.encode(), live_until_ms=look.now_ms + UPLOAD_MS)

        intent = Intent("upload", keys=(UPLOADS + upload_id,), glances=(ticket.key,), scans=(Scan(UPLOADS, 256),))
        await self._scribe.write(call, ticket.session_id, intent, decide)

    async def add(self, call: Call, ticket: Ticket, upload_id: str, data: bytes, first: int) -> int:
        """Adds to an upload, from piece number ``first`` on; returns how many pieces that takes.

        Args:
            call: who uploads, without a request id.
            ticket: which call the upload is for.
            upload_id: the upload.
            data: at most 900 KiB.
            first: how many pieces there are already.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, INVALID_FIELD (there is no such upload any more).
        """

        def decide(look: Look, draft: Draft) -> None:
            check_upload(look, upload_id, ticket)
            keep_pieces(draft, upload_id, data, first)

        # That the upload's record is still there is checked in the commit, so no piece is left without it.
        intent = Intent("upload_piece", keys=(UPLOADS + upload_id,))
        await self._scribe.write(call, ticket.session_id, intent, decide)
        return -(-len(data) // PIECE_BYTES)

    async def _pieces(self, session_id: str, blob: str, *, accepted: bool) -> AsyncIterator[bytes]:
        ref = await self._scribe.living(session_id)
        cursor: str | None = None
        more = True
        while more:
            page = await self._scribe.scan(
                ref, Scan(pieces_of(blob), _PIECES_A_STEP, keys=KeyRange(cursor, None)), accepted=accepted
            )
            more = page.more
            for entry in page.entries:
                cursor = entry.key
                yield entry.data


def check_upload(look: Look, upload_id: str, ticket: Ticket) -> None:
    """Checks that an upload is there and was made for a call; its record must have been read.

    Raises:
        Refusal: INVALID_FIELD.
    """
    entry = look.internal(UPLOADS + upload_id)
    if entry is None:
        raise _gone(upload_id)
    if entry.data != ticket.slot.encode():
        raise invalid("upload_id", f"{upload_id!r} was uploaded for another tool call")


def _gone(upload_id: str) -> Refusal:
    hours = UPLOAD_MS // 3_600_000
    return invalid(
        "upload_id",
        f"there is no upload {upload_id!r} in this session; one that no call refers to ends in {hours} hour",
    )
