"""Makes of a message, or of a tool's result, what a fact may rest on: its text as it arrived, and its trust."""

from __future__ import annotations

import hashlib
import re

import msgspec

from ..memory.codec import decode_record
from ..ports.sources import REDACTED, Source
from ..ports.store import StoredEntry
from .appending import known_anywhere, message_key
from .codec import decode_index, decode_message
from .keys import CALL_IDS, HISTORY, MESSAGES, TOOLS, KeyRange, id_key, pieces_of, slot
from .paths import Path, read_session
from .references import Reference, SourceKind
from .scribe import Scan, Scribe
from .seen import TRUST_OUTSIDE, Seen, has_result
from .summary_record import Place
from .toolcall import ToolCall, decode_tool_call
from .types import Message, Role

_PIECES_A_STEP = 16
_FENCE = re.compile(r"^\[data [0-9a-f]{16} ", re.MULTILINE)
"""How a context begins what it shows, recalled facts above all; see ``context.fence``."""

_JSON_TEXT = msgspec.json.Decoder(str)


class Witness:
    """Reads sources.

    Args:
        scribe: reads the records of sessions.
        seen: judges what they are made of.
    """

    def __init__(self, scribe: Scribe, seen: Seen) -> None:
        self._scribe = scribe
        self._seen = seen

    async def locate(self, path: Path, reference: Reference) -> tuple[str, StoredEntry] | None:
        """Returns what a reference means, and the session that holds it: its own, or one that it was forked from."""
        for session_id in dict.fromkeys((path.session_id, *map(path.session_at, reversed(range(len(path.parts)))))):
            entry = await self.entry(session_id, reference)
            if entry is None:
                continue
            # What was said in a parent after the fork is no part of it.
            if session_id == path.session_id or path.place_of(place_key(entry.key), session_id) is not None:
                return session_id, entry
            if reference.kind is SourceKind.TOOL:
                call = tool_call_of(entry)
                if path.inherits_call(call.key, session_id, call.started_ms):
                    return session_id, entry
        return None

    async def entry(self, session_id: str, reference: Reference) -> StoredEntry | None:
        """Returns the record that a reference's id means in a session; None if it means nothing there."""
        is_message = reference.kind is SourceKind.MESSAGE
        name = message_key(reference.entry_id) if is_message else id_key(CALL_IDS, reference.entry_id)
        look = await read_session(self._scribe, session_id, (name, HISTORY))
        named = None if look is None else look.entries[name]
        if look is None or named is None:
            return None
        key = known_anywhere(look, reference.entry_id) if is_message else TOOLS + slot(named.revision, _index(named))
        look = await read_session(self._scribe, session_id, (key,)) if key else None
        return None if look is None or look.record(key) is None else look.entries[key]

    async def message(self, path: Path, place: Place, message: Message) -> Source | None:
        """Returns a message of a branch as a source; None for one that was taken back or forgotten."""
        if message.retracted or message.text == REDACTED:
            return None
        session_id = path.session_at(place.stretch)
        shows = shows_context(message.text)
        if message.role is Role.ASSISTANT and not shows:
            shows = await self._seen.recalled_before(path, place)
        return Source(
            reference=str(Reference(SourceKind.MESSAGE, session_id, message.id)),
            text=message.text,
            trust=await self._seen.trust_of(path, place, message),
            role=message.role.value,
            author=message.author,
            time_ms=message.time_ms,
            content_hash=content_hash(message.text),
            position="",
            recalled=shows,
        )

    async def result(self, session_id: str, call: ToolCall) -> Source | None:
        """Returns a call's result as a source; None if it has none, or it was forgotten."""
        if not has_result(call) or call.content == REDACTED:
            return None
        text = await self._whole(session_id, call) if call.raw else call.content
        return Source(
            reference=str(Reference(SourceKind.TOOL, session_id, call.call_id)),
            text=text,
            trust=TRUST_OUTSIDE,
            role=Role.TOOL.value,
            author=call.author,
            time_ms=call.finished_ms,
            content_hash=content_hash(text),
            position="",
            recalled=shows_context(text),
        )

    async def call_at(self, session_id: str, key: str) -> ToolCall | None:
        """Returns the call at a key, None if there is none."""
        look = await read_session(self._scribe, session_id, (key,))
        record = None if look is None else look.record(key)
        return None if record is None else decode_tool_call(key, record)

    async def _whole(self, session_id: str, call: ToolCall) -> str:
        """Returns a result as it arrived; what is no text as it is in working memory, which says so."""
        ref = await self._scribe.living(session_id)
        pieces: list[bytes] = []
        keys, more = KeyRange(None, None), True
        while more:
            page = await self._scribe.scan(ref, Scan(pieces_of(call.raw), _PIECES_A_STEP, keys=keys))
            more = page.more
            pieces += [entry.data for entry in page.entries]
            if page.entries:
                keys = KeyRange(page.entries[-1].key, None)
        data = b"".join(pieces)
        try:
            return _JSON_TEXT.decode(data) if data.startswith(b'"') else data.decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            return call.content


def content_hash(text: str) -> bytes:
    """Returns the SHA-256 of a text, by which evidence is known again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def shows_context(text: str) -> bool:
    """Tells whether a text repeats what a context showed, and so teaches nothing new."""
    return _FENCE.search(text) is not None


def message_of(entry: StoredEntry) -> Message:
    """Returns the message that a record holds."""
    return decode_message(entry.key, decode_record(entry.data, entry.revision))


def tool_call_of(entry: StoredEntry) -> ToolCall:
    """Returns the tool call that a record holds."""
    return decode_tool_call(entry.key, decode_record(entry.data, entry.revision))


def place_key(key: str) -> str:
    """Returns where a message would lie that was said when the record with this slot key was made."""
    return MESSAGES + key.rpartition("/")[2]


def _index(entry: StoredEntry) -> int:
    return decode_index(entry.data)
