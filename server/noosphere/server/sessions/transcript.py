"""The transcript: appending, listing and taking back messages."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from noosphere.consistency import ReadSet, Reason, Refusal, StaleEntry, StampMode

from ..memory.codec import decode_record
from ..memory.reads import PAGE_BYTES_MAX, check_page_size
from ..memory.types import Call
from ..ports.models import Tokenizers
from .appending import Stored, append, check_messages, keys_of, known, known_anywhere, message_key, turn_keys
from .branches import OlderHistory, Stretch, branch_keys, check_branch, older_history, stretch_ref, stretches
from .codec import decode_message, encode_message, message_attributes
from .counting import count, texts_of
from .draft import Draft, Look
from .history import Quoting, newest_key, summaries_quoting
from .keys import HISTORY, MESSAGES, RETRACTED, SUMMARIES, KeyRange, check_entry_id, slot, slot_index, slot_revision
from .saving import Moved, prepared
from .scribe import Intent, Scan, Scribe, Written, recorded
from .types import Message, SessionSettings, ToolUse

_STEP_RECORDS = 64
_SCAN_STEP = 128
_SCANNED_MAX = 10_000
"""Most entries that one page looks through for matches; the page may then be empty, with a next token."""

_PLACE = struct.Struct(">QH")
_POSITION = re.compile(r"([0-9]{1,10}):([0-9]{1,6}):(.+)", re.DOTALL)


class MessagesReply(NamedTuple):
    """Messages as stored, after a call that wrote them; ``revision`` is 0 if all of them were known."""

    messages: tuple[Message, ...]
    revision: int
    replayed: bool
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class MessagePage(NamedTuple):
    """One page of a transcript; ``position`` is where the next page begins, None at the end."""

    messages: tuple[Message, ...]
    position: str | None
    head: int
    read_set: ReadSet | None


class _Position(NamedTuple):
    branch: int
    stretch: int
    key: str

    def __str__(self) -> str:
        return f"{self.branch}:{self.stretch}:{self.key}"

    @classmethod
    def parse(cls, text: str) -> _Position:
        found = _POSITION.fullmatch(text)
        if found is None:
            raise Refusal(Reason.INVALID_PAGE_TOKEN, "page_token: is damaged or not a token")
        return cls(int(found[1]), int(found[2]), found[3])


class Transcript:
    """Messages of sessions.

    Args:
        scribe: reads and writes their records.
        tokenizers: knows the vocabularies.
    """

    def __init__(self, scribe: Scribe, tokenizers: Tokenizers) -> None:
        self._scribe = scribe
        self._tokenizers = tokenizers

    async def append(
        self, call: Call, session_id: str, messages: tuple[Message, ...], *, expected_last: str | None = None
    ) -> MessagesReply:
        """Appends messages in one commit; those whose id is known stay as they are, for ever.

        Args:
            call: who appends.
            session_id: where.
            messages: 1 to 16; what is output only in them is ignored.
            expected_last: refuse unless this is the newest message's id; empty asks for an empty transcript.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, TURN_NOT_OPEN, TRANSCRIPT_MOVED, INVALID_FIELD,
                VALUE_TOO_LARGE, or a reason that concerns the caller.
        """
        check_messages(messages)
        tokens = await self.sizes(session_id, messages)
        author = call.agent_id
        checked, glanced = turn_keys(messages)
        scans: tuple[Scan, ...] = ()
        older: OlderHistory | None = None
        if expected_last is not None:
            older = await older_history(self._scribe, session_id)
            scans = (Scan(MESSAGES, 1, reverse=True, guard=StampMode.MEMBERS),)

        def decide(look: Look, draft: Draft) -> tuple[Stored, ...]:
            # What is known stays as it is, whatever has come after it.
            if older is not None and not all(m.id and known(look, m.id) for m in messages):
                _check_last(look, older, expected_last or "")
            stored = append(look, draft, messages, author, tokens)
            draft.reply = b"".join(map(_remember, stored))
            return stored

        meaning = (messages, expected_last)
        intent = Intent("append", meaning, keys=(*keys_of(messages), *checked), glances=glanced, scans=scans)
        written = await self._scribe.write(call, session_id, intent, decide)
        stored = tuple(map(_recall, _PLACE.iter_unpack(written.reply))) if written.value is None else written.value
        keys = [place.at(written.revision) for place in stored]
        look = await self._scribe.read(Call(call.incarnation), session_id, keys)
        return MessagesReply(
            tuple(_message(look, key) for key in keys),
            written.revision,
            written.replayed,
            look.view.head,
            written.read_set,
            written.stale,
        )

    async def sizes(self, session_id: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the size of each message in the session's tokenizer; of what is no session, in the default one."""
        info = (await self._scribe.peek(session_id)).info
        return await self.sizes_in((info.settings if info else SessionSettings()).tokenizer, messages)

    async def sizes_in(self, vocabulary: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the size of each message in a vocabulary."""
        tokenizer = self._tokenizers.named(vocabulary)
        return tuple([await count(tokenizer, texts_of(message)) for message in messages])

    async def list(
        self,
        call: Call,
        session_id: str,
        *,
        page_size: int,
        position: str | None,
        reverse: bool,
        branch: int | None,
        turn: int,
    ) -> MessagePage:
        """Reads one page of a branch's messages in order, those of a fork's parent included.

        Args:
            call: who reads.
            session_id: which session.
            page_size: 1 to 1,000; 0 means 100. Pages are also cut at 1 MiB.
            position: where the page begins, None for the first.
            reverse: the newest first.
            branch: which branch, None for the present one; later pages stay on the branch of the first.
            turn: only messages of this turn; 0 means any.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND (no such branch), INVALID_FIELD, INVALID_PAGE_TOKEN, or a
                reason that concerns the caller.
        """
        size = check_page_size(page_size)
        at = None if position is None else _Position.parse(position)
        first = await self._scribe.read(call, session_id)
        wanted = check_branch(first, branch if at is None else at.branch)
        look = await self._scribe.read(call, session_id, branch_keys(wanted), (Scan(MESSAGES, 1),))
        read_set = recorded(call, look, (), ((MESSAGES, StampMode.MEMBERS, look.scans[0].stamps.members),))
        parts = list(enumerate(stretches(look, wanted)))
        if reverse:
            parts.reverse()
        found: list[Message] = []
        taken = scanned = 0
        for number, stretch in parts:
            if at is not None and (number > at.stretch if reverse else number < at.stretch):
                continue
            cursor = at.key if at is not None and number == at.stretch else None
            ref = await stretch_ref(self._scribe, look, stretch)
            more = True
            while more:
                keys = _narrowed(stretch, cursor, reverse)
                page = await self._scribe.scan(ref, Scan(MESSAGES, max(size, _SCAN_STEP), reverse, keys))
                more = page.more
                for entry in page.entries:
                    cursor = entry.key
                    scanned += 1
                    if scanned % _STEP_RECORDS == 0:
                        await asyncio.sleep(0)
                    message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                    if turn and message.turn != turn:
                        continue
                    found.append(message)
                    taken += len(entry.data)
                    if len(found) >= size or taken >= PAGE_BYTES_MAX:
                        return MessagePage(
                            tuple(found), str(_Position(wanted, number, cursor)), look.view.head, read_set
                        )
                if scanned >= _SCANNED_MAX and cursor is not None:
                    return MessagePage(tuple(found), str(_Position(wanted, number, cursor)), look.view.head, read_set)
        return MessagePage(tuple(found), None, look.view.head, read_set)

    async def retract(self, call: Call, session_id: str, message_id: str) -> MessagesReply:
        """Takes a message's content back; what remains is a mark in its place, with the ids that others refer to.

        Summaries that may quote it go with it, in the same commit; new ones are made without it.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, ENTRY_NOT_FOUND, or a reason that concerns the caller.
        """
        check_entry_id(message_id, "message_id")
        name = message_key(message_id)
        key = known_anywhere(await self._scribe.peek(session_id, (name, HISTORY)), message_id)
        written = await prepared(session_id, lambda: self._retract(call, session_id, message_id, key))
        look = await self._scribe.read(Call(call.incarnation), session_id, (key,))
        return MessagesReply(
            (_message(look, key),),
            written.revision,
            written.replayed,
            look.view.head,
            written.read_set,
            written.stale,
        )

    async def _retract(self, call: Call, session_id: str, message_id: str, key: str) -> Written[None]:
        quoting = await summaries_quoting(self._scribe, session_id, key) if key else Quoting("", ())

        def decide(look: Look, draft: Draft) -> None:
            record = look.record(key) if key else None
            message = None if record is None else decode_message(key, record)
            if message is None or message.id != message_id:
                raise Refusal(
                    Reason.ENTRY_NOT_FOUND, f"message_id: session {session_id!r} has no message {message_id!r}"
                )
            if message.retracted:
                return
            if newest_key(look.scans[0]) != quoting.newest:
                raise Moved
            left = _retracted(message)
            draft.put(key, encode_message(left), message_attributes(left))
            draft.keep(RETRACTED, b"")
            for summary in quoting.keys:
                draft.remove(summary)

        intent = Intent(
            "retract",
            (message_id,),
            keys=(key,) if key else (),
            glances=quoting.keys,
            scans=(Scan(SUMMARIES, 1, reverse=True, guard=StampMode.MEMBERS),),
        )
        return await self._scribe.write(call, session_id, intent, decide)


def _check_last(look: Look, older: OlderHistory, expected: str) -> None:
    """Checks that the newest message is the expected one.

    Raises:
        Refusal: TRANSCRIPT_MOVED.
    """
    newest = next((entry for entry in look.scans[0].entries if entry.key > older.begins), None)
    if look.session.branch != older.branch:
        now = "on another branch"
    elif newest is not None:
        last = decode_message(newest.key, decode_record(newest.data, newest.revision)).id
        if last == expected:
            return
        now = repr(last)
    else:
        last = "" if older.last is None else older.last.id
        if last == expected:
            return
        now = repr(last) if last else "none"
    raise Refusal(
        Reason.TRANSCRIPT_MOVED,
        f"expected_last: the newest message of session {look.session_id!r} is {now}, not {expected or 'none'!r}",
    )


def _retracted(message: Message) -> Message:
    calls = tuple(ToolUse(use.call_id, use.name, "{}") for use in message.tool_calls)
    return message._replace(parts=(), tool_calls=calls, tokens=0, retracted=True)


def _message(look: Look, key: str) -> Message:
    record = look.record(key)
    assert record is not None, "messages are never removed one by one"
    return decode_message(key, record)


def _remember(place: Stored) -> bytes:
    if place.key:
        return _PLACE.pack(slot_revision(place.key), slot_index(place.key))
    return _PLACE.pack(0, place.number)


def _recall(place: tuple[int, int]) -> Stored:
    revision, number = place
    return Stored(MESSAGES + slot(revision, number) if revision else "", number)


def _narrowed(stretch: Stretch, cursor: str | None, reverse: bool) -> KeyRange:
    if cursor is None:
        return stretch.keys
    return stretch.keys._replace(before=cursor) if reverse else stretch.keys._replace(after=cursor)
