"""Results as they arrived, when words in them are to be forgotten.

A result lies in pieces, and a word may lie in two of them. So it is written anew beside the old one, as an upload is,
and one commit has the call refer to the new pieces and removes the old ones. What a crash leaves in between is swept
like any upload that no call refers to.
"""

from __future__ import annotations

import asyncio
import random

import msgspec

from ..ports.store import StoredEntry
from .blackout import Blackout
from .counting import INLINE_CHARS_MAX
from .draft import Draft, Look
from .keys import TOOLS, UPLOADS, KeyRange, pieces_of
from .raw import PIECE_BYTES, UPLOAD_MS, keep_pieces
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe
from .toolcall import ToolCall, decode_tool_call, encode_tool_call, tool_call_attributes
from .witness import tool_call_of

_PIECES_A_STEP = 16
_ID_BYTES = 12


class Blobs:
    """Finds and forgets words in results as they arrived.

    Args:
        scribe: reads and writes the records of sessions.
        rng: makes names.
    """

    def __init__(self, scribe: Scribe, rng: random.Random) -> None:
        self._scribe = scribe
        self._rng = rng

    async def has(self, session_id: str, entry: StoredEntry, blackout: Blackout) -> bool:
        """Tells whether a tool call's result as it arrived has one of the words; False for other records."""
        call = _with_blob(entry)
        if call is None:
            return False
        data = b"".join([piece.data for piece in await self._stored(session_id, call.raw)])
        return await _changed(data, blackout) is not None

    async def rewrite(self, session_id: str, entry: StoredEntry, blackout: Blackout) -> bool:
        """Forgets the words in a tool call's result as it arrived; returns whether there were any.

        Raises:
            Refusal: SESSION_NOT_FOUND, CONTENTION.
        """
        call = _with_blob(entry)
        if call is None:
            return False
        old = await self._stored(session_id, call.raw)
        changed = await _changed(b"".join([piece.data for piece in old]), blackout)
        if changed is None:
            return False
        blob = self._rng.randbytes(_ID_BYTES).hex()
        await self._upload(session_id, entry.key, blob, changed)
        return await self._swap(session_id, call, blob, len(changed), [piece.key for piece in old])

    async def pieces(self, session_id: str, call: ToolCall) -> list[str]:
        """Returns where a call's result lies as it arrived."""
        return [piece.key for piece in await self._stored(session_id, call.raw)] if call.raw else []

    async def _upload(self, session_id: str, key: str, blob: str, data: bytes) -> None:
        for first in range(0, max(1, -(-len(data) // PIECE_BYTES)), _PIECES_A_STEP):
            step = data[first * PIECE_BYTES : (first + _PIECES_A_STEP) * PIECE_BYTES]

            def decide(look: Look, draft: Draft, step: bytes = step, first: int = first) -> None:
                draft.keep(UPLOADS + blob, key.rpartition("/")[2].encode(), live_until_ms=look.now_ms + UPLOAD_MS)
                keep_pieces(draft, blob, step, first)

            intent = Intent("forget_upload", keys=(UPLOADS + blob,), need=Need.ANY, background=True)
            await self._scribe.write(BACKGROUND, session_id, intent, decide)

    async def _swap(self, session_id: str, call: ToolCall, blob: str, size: int, old: list[str]) -> bool:
        def decide(look: Look, draft: Draft) -> bool:
            record = look.record(call.key)
            now = None if record is None else decode_tool_call(call.key, record)
            if now is None or now.raw != call.raw:
                return False
            after = msgspec.structs.replace(now, raw=blob, raw_bytes=size)
            draft.put(call.key, encode_tool_call(after), tool_call_attributes(after))
            draft.forget(UPLOADS + blob)
            for key in old:
                draft.forget(key)
            return True

        keys = (call.key, UPLOADS + blob, *old)
        intent = Intent("forget_raw", keys=keys, need=Need.ANY, background=True)
        return bool((await self._scribe.write(BACKGROUND, session_id, intent, decide)).value)

    async def _stored(self, session_id: str, blob: str) -> list[StoredEntry]:
        ref = await self._scribe.living(session_id)
        found: list[StoredEntry] = []
        keys, more = KeyRange(None, None), True
        while more:
            page = await self._scribe.scan(ref, Scan(pieces_of(blob), _PIECES_A_STEP, keys=keys), accepted=True)
            more = page.more
            found += page.entries
            if page.entries:
                keys = KeyRange(page.entries[-1].key, None)
        return found


def _with_blob(entry: StoredEntry) -> ToolCall | None:
    if not entry.key.startswith(TOOLS) or not entry.live_until_ms:
        return None
    call = tool_call_of(entry)
    return call if call.raw else None


async def _changed(data: bytes, blackout: Blackout) -> bytes | None:
    """Returns a result without the words, None if it has none of them; off the event loop if that takes long."""
    changed = blackout.data(data) if len(data) <= INLINE_CHARS_MAX else await asyncio.to_thread(blackout.data, data)
    return None if changed == data else changed
