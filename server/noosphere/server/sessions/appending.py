"""What it takes to append messages, by whichever call: checks of their form, and the decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal, invalid, too_large

from .branches import on_present_branch
from .codec import decode_message, decode_places, decode_turns, encode_message, message_attributes
from .draft import Draft, Look
from .keys import HISTORY, MESSAGE_IDS, MESSAGES, TURNS, check_entry_id, id_key, is_slot, slot
from .types import Message, Role

MESSAGES_PER_CALL_MAX = 16
MESSAGE_BYTES_MAX = 64 * 1024
CALL_BYTES_MAX = 256 * 1024
PARTS_MAX = 256
TOOL_CALLS_MAX = 64
NAME_BYTES_MAX = 128


class Stored(NamedTuple):
    """Where a message is: at a key if it was known, else at this number in the commit's mutations."""

    key: str
    number: int

    def at(self, revision: int) -> str:
        """Returns the message's key, given the revision of the commit."""
        return self.key or MESSAGES + slot(revision, self.number)


def message_bytes(message: Message) -> int:
    """Returns the size of a message's content, its tool calls included."""
    size = sum(len(part.text.encode()) + len(part.media_type) + len(part.data) for part in message.parts)
    for use in message.tool_calls:
        size += len(use.call_id.encode()) + len(use.name.encode()) + len(use.arguments.encode())
    return size


def check_messages(messages: Sequence[Message]) -> None:
    """Checks what is to be appended by one call.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if not messages:
        raise invalid("messages", "must not be empty")
    if len(messages) > MESSAGES_PER_CALL_MAX:
        raise too_large("messages", len(messages), MESSAGES_PER_CALL_MAX, "entries")
    for index, message in enumerate(messages):
        check_message(message, f"messages[{index}]")
    if (size := sum(map(message_bytes, messages))) > CALL_BYTES_MAX:
        raise too_large("messages", size, CALL_BYTES_MAX)
    check_distinct(messages, "messages")


def check_distinct(messages: Sequence[Message], field: str) -> None:
    """Checks that no id is used twice in one commit.

    Raises:
        Refusal: INVALID_FIELD.
    """
    seen: set[str] = set()
    for message in messages:
        if message.id and message.id in seen:
            raise invalid(f"{field}.id", f"{message.id!r} is used twice")
        seen.add(message.id)


def check_message(message: Message, field: str) -> None:
    """Checks the form of one message.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    if message.id:
        check_entry_id(message.id, f"{field}.id")
    if len(message.parts) > PARTS_MAX:
        raise too_large(f"{field}.parts", len(message.parts), PARTS_MAX, "entries")
    for index, part in enumerate(message.parts):
        if part.data and not part.media_type:
            raise invalid(f"{field}.parts[{index}].blob.media_type", "must not be empty")
        if len(part.media_type.encode()) > NAME_BYTES_MAX:
            raise too_large(f"{field}.parts[{index}].blob.media_type", len(part.media_type.encode()), NAME_BYTES_MAX)
    if len(message.name.encode()) > NAME_BYTES_MAX:
        raise too_large(f"{field}.name", len(message.name.encode()), NAME_BYTES_MAX)
    _check_calls(message, field)
    if (size := message_bytes(message)) > MESSAGE_BYTES_MAX:
        raise too_large(field, size, MESSAGE_BYTES_MAX)


def _check_calls(message: Message, field: str) -> None:
    if message.tool_calls and message.role is not Role.ASSISTANT:
        raise invalid(f"{field}.tool_calls", f"belong to an assistant's message, not to one of role {message.role}")
    if len(message.tool_calls) > TOOL_CALLS_MAX:
        raise too_large(f"{field}.tool_calls", len(message.tool_calls), TOOL_CALLS_MAX, "entries")
    seen: set[str] = set()
    for index, use in enumerate(message.tool_calls):
        check_entry_id(use.call_id, f"{field}.tool_calls[{index}].call_id")
        check_entry_id(use.name, f"{field}.tool_calls[{index}].name")
        if use.call_id in seen:
            raise invalid(f"{field}.tool_calls[{index}].call_id", f"{use.call_id!r} is used twice")
        seen.add(use.call_id)
    if message.role is Role.TOOL:
        check_entry_id(message.tool_call_id, f"{field}.tool_call_id")
    elif message.tool_call_id:
        raise invalid(f"{field}.tool_call_id", f"belongs to a tool's message, not to one of role {message.role}")


def message_key(message_id: str) -> str:
    """Returns the key that tells whether an id is known: its own record, or the message that the server named so."""
    return MESSAGES + message_id if is_slot(message_id) else id_key(MESSAGE_IDS, message_id)


def keys_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Returns the keys on which appending messages depends, for a commit to check."""
    ids = tuple(message_key(message.id) for message in messages if message.id)
    return (*ids, HISTORY) if ids else ()


def turn_keys(messages: Iterable[Message]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns keys to check and keys to look at for the turns of messages.

    Only who names a turn depends on its being open; everybody else's appends must not contend with turns.
    """
    return ((TURNS,), ()) if any(message.turn for message in messages) else ((), (TURNS,))


def known(look: Look, message_id: str) -> str:
    """Returns the key of the message with an id on the present branch, empty if there is none.

    A message that a restore has left behind does not count: whoever goes on from there may say it again. What the
    server has named is the one message, on whichever branch it lies.
    """
    keys = _named(look, message_id)
    return next((key for key in keys if is_slot(message_id) or on_present_branch(look, key)), "")


def known_anywhere(look: Look, message_id: str) -> str:
    """Returns the key of the message with an id on the present branch, else on the newest one that has it, else ''."""
    return known(look, message_id) or next(iter(_named(look, message_id)), "")


def _named(look: Look, message_id: str) -> tuple[str, ...]:
    """Returns the key of each message that an id has named, the newest first."""
    name = message_key(message_id)
    entry = look.entries[name]
    if entry is None:
        return ()
    if is_slot(message_id):
        return (name,)
    return tuple(MESSAGES + slot(revision, index) for revision, index in decode_places(entry))


def append(
    look: Look, draft: Draft, messages: Sequence[Message], author: str, tokens: Sequence[int]
) -> tuple[Stored, ...]:
    """Appends what is not known yet, in order.

    Args:
        look: the session, with :func:`keys_of` and :func:`turn_keys` read.
        draft: gets the messages and their ids.
        messages: what to append, checked.
        author: the agent that appends.
        tokens: the size of each.

    Raises:
        Refusal: TURN_NOT_OPEN, INVALID_FIELD (an id of the form that the server issues, which it has not).
    """
    turns = decode_turns(look.record(TURNS))
    stored: list[Stored] = []
    for message, size in zip(messages, tokens, strict=True):
        if message.id and (key := known(look, message.id)):
            if is_slot(message.id) and not _is_named_by_server(look, key):
                raise invalid("message.id", f"{message.id!r} is the place of a message with an id of its own")
            stored.append(Stored(key, 0))
            continue
        if is_slot(message.id):
            raise invalid("message.id", f"{message.id!r} has the form of ids that the server issues, and is none")
        if message.turn and not turns.is_open(message.turn):
            raise turn_not_open(look.session_id, message.turn, turns.turn)
        new = message._replace(
            author=author,
            turn=message.turn or turns.newest_of(author),
            time_ms=look.now_ms,
            tokens=size,
            key="",
            retracted=False,
        )
        entry_id = (MESSAGE_IDS, message.id) if message.id else None
        index = draft.append(MESSAGES, encode_message(new), message_attributes(new), entry_id=entry_id)
        stored.append(Stored("", index))
    return tuple(stored)


def _is_named_by_server(look: Look, key: str) -> bool:
    record = look.record(key)
    return record is not None and decode_message(key, record).id == key.rpartition("/")[2]


def turn_not_open(session_id: str, turn: int, newest: int) -> Refusal:
    """Returns the refusal of a call that names a turn that has not begun, or has ended."""
    what = "has not begun" if turn > newest else "has ended"
    return Refusal(
        Reason.TURN_NOT_OPEN, f"turn {turn} of session {session_id!r} {what}; the newest turn is {newest or 'none'}"
    )
