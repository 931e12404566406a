"""Where everything of a session lies in its namespace ``sessions/<id>``.

What begins with ``_session/`` can be read and watched by anybody, and is written by the services of sessions
only. What begins with NUL is out of the users' sight (see ``memory.internal``). Everything else is an *item*: a
piece of working memory, written through MemoryService or by a session call.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from noosphere.consistency import Refusal, check_namespace, invalid, to_hex, too_large

from ..memory.internal import FIRST_USER_KEY_AFTER, is_internal

NAMESPACES = "sessions/"
EPHEMERAL = "~"
"""The first character of an ephemeral session's id, which no other id begins with."""

ENTRY_ID_BYTES_MAX = 128

OWN = "_session/"
"""The collection of what the services of sessions keep."""

INFO = "_session/info"
"""Settings, owner, status, branch: what every write depends on, so it changes rarely."""

META = "_session/meta"
"""Title and labels, apart from the rest so that changing them disturbs nobody."""

TURNS = "_session/turns"
CONTROL = "_session/control"
MESSAGES = "_session/messages/"
TOOLS = "_session/tools/"
SUMMARIES = "_session/summaries/"
CHECKPOINTS = "_session/checkpoints/"
BRANCHES = "_session/branches/"
OUTBOX = "_session/outbox/"
EVENTS = "_session/events/"
HANDOFFS = "_session/handoffs/"

ITEMS_COUNTED = "\0items"
"""Written by whoever makes an item while the session has many, so that two cannot both take the last place."""

IDS = "\0ids/"
"""``\\0ids/<kind>/<id>``: an id that was used. Its revision and the index in it name the record's key.

A message's id may have been used before on other branches; then these places follow.
"""

HISTORY = "\0history"
"""What the present branch keeps of the history before it; absent on the first. Its revision is where it begins."""

PENDING = "\0pending/"
"""``\\0pending/<call id>``: a tool call that has no result yet; gone with the commit that finishes it."""

VERSIONS = "\0iv/"
"""``\\0iv/<key>/<revision>``: an overwritten version of an item that a checkpoint needs."""

RETRACTED = "\0retracted"
"""Written by whoever takes a message back: what is being made of messages meanwhile may still quote it."""

SAVEPOINTS = "\0savepoints"
"""Where the newest checkpoint stands: what every write of an item depends on once there is one."""

MANIFESTS = "\0manifests/"
"""``\\0manifests/<number>``: which versions a checkpoint consists of."""

CHILDREN = "\0children/"
"""``\\0children/<session>``: a fork that reads its older messages here."""

RAW = "\0raw/"
"""``\\0raw/<blob>/<number>``: a piece of a tool's result as it arrived."""

UPLOADS = "\0uploads/"
"""``\\0uploads/<blob>``: pieces that no tool call refers to yet, and which call may; they go with it when it ends."""

HANDED = "\0handed"
"""To which agents the session was handed over, the latest last."""

CONTEXTS = "\0contexts/"
ACCESS = "\0access"
NOTED = "\0noted/"
"""``\0noted/<process>``: what a process has seen of a session's use since the end of the last turn."""


GOALS = "goals/"
TASK = "task/"
PROFILE = "profile/"
RESULTS = "results/"
NOTES = "notes/"
"""Collections of items that have a meaning; see the guide to sessions."""

MESSAGE_IDS = "message"
CALL_IDS = "call"
PROCEDURE_IDS = "procedure"
"""Kinds of ids."""

_SLOT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{4}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class KeyRange(NamedTuple):
    """Keys between two exclusive bounds."""

    after: str | None
    before: str | None


ITEM_RANGES = (KeyRange(FIRST_USER_KEY_AFTER, OWN), KeyRange(OWN + "\U0010ffff", None))
"""Where the items are: on both sides of what the services keep."""


def namespace_of(session_id: str) -> str:
    """Returns a session's namespace."""
    return NAMESPACES + session_id


def session_of(namespace: str) -> str | None:
    """Returns whose namespace this is or would be, None if it can be no session's."""
    if not namespace.startswith(NAMESPACES):
        return None
    session_id = namespace[len(NAMESPACES) :]
    return None if "/" in session_id else session_id


def is_ephemeral(session_id: str) -> bool:
    """Tells whether an id is that of an ephemeral session."""
    return session_id.startswith(EPHEMERAL)


def is_item(key: str) -> bool:
    """Tells whether a key of a session's namespace is that of an item."""
    return not key.startswith(OWN) and not is_internal(key)


def check_session_id(session_id: str, field: str = "session_id") -> str:
    """Checks a session's id; returns its namespace.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    check_entry_id(session_id, field)
    if "/" in session_id:
        raise invalid(field, f"{session_id!r} contains '/'")
    try:
        check_namespace(namespace_of(session_id))
    except Refusal as refusal:
        raise invalid(field, refusal.message) from None
    return namespace_of(session_id)


def check_entry_id(entry_id: str, field: str) -> None:
    """Checks the id of a message, tool call or the like: any text of at most 128 bytes without control characters.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    if not entry_id:
        raise invalid(field, "must not be empty")
    if (size := len(entry_id.encode("utf-8", "surrogatepass"))) > ENTRY_ID_BYTES_MAX:
        raise too_large(field, size, ENTRY_ID_BYTES_MAX)
    if found := _CONTROL.search(entry_id):
        raise invalid(field, f"contains the control character U+{ord(found.group()):04X}")


def id_key(kind: str, entry_id: str) -> str:
    """Returns where it is kept that an id was used."""
    return f"{IDS}{kind}/{entry_id}"


def pieces_of(blob: str) -> str:
    """Returns the collection in which the pieces of a tool's result lie."""
    return f"{RAW}{blob}/"


def is_saved(key: str) -> bool:
    """Tells whether a key's record is part of checkpoints: the items and the control state are."""
    return key == CONTROL or is_item(key)


def version_key(key: str, revision: int) -> str:
    """Returns where the version of ``key`` that was stored at ``revision`` lies once it is overwritten."""
    return f"{VERSIONS}{key}/{to_hex(revision)}"


def slot(revision: int, index: int) -> str:
    """Returns the name that a store gives to the ``index``-th mutation of the commit at ``revision``."""
    return f"{to_hex(revision)}-{index:04x}"


def slot_revision(key: str) -> int:
    """Returns the revision at which the record with this slot key was made."""
    return int(key[-21:-5], 16)


def slot_index(key: str) -> int:
    """Returns which mutation of its commit made the record with this slot key."""
    return int(key[-4:], 16)


def is_slot(text: str) -> bool:
    """Tells whether a text has the form of a slot, as ids that the server issues have."""
    return _SLOT.fullmatch(text) is not None


def just_after(key: str) -> str:
    """Returns the exclusive upper bound of a range that ends with ``key``."""
    return key + "\0"
