"""Branches: which messages belong to a session's history, now and before each restore.

Branch 0 begins with the session. A restore begins the next one with a record at ``_session/branches/<n>``, which
says what it keeps of the history before; everything that is appended from that record's own revision on, until the
next branch begins, belongs to it. So an append need not say which branch it is for, and nothing is ever moved.
A fork's branch 0 has a record as well: what it keeps lies in its parent's namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Refusal, to_hex

from ..memory.codec import decode_record
from ..memory.types import Call
from ..ports.store import NamespaceRef
from .codec import decode_message, value_of
from .draft import Look
from .keys import BRANCHES, HISTORY, MESSAGES, SUMMARIES, KeyRange, just_after
from .scribe import Scan, Scribe
from .types import Message


class Stretch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages between two exclusive bounds; an empty bound is none, an empty session is the branch's own."""

    after: str = ""
    before: str = ""
    session: str = ""

    @property
    def keys(self) -> KeyRange:
        """The bounds for a scan of ``_session/messages/``."""
        return KeyRange(self.after or None, self.before or None)

    def holds(self, key: str) -> bool:
        """Tells whether a message's key lies within the bounds."""
        return self.after < key and (not self.before or key < self.before)


class BranchData(msgspec.Struct, frozen=True):
    """What a branch's record holds.

    Attributes:
        parent: the branch that was left.
        checkpoint: the id of the checkpoint that it began with.
        kept: what it keeps of the history before it, the oldest first.
        summary: the key of the newest summary that it begins with; empty if there is none.
    """

    parent: int = 0
    checkpoint: str = ""
    kept: tuple[Stretch, ...] = ()
    summary: str = ""


_decoder = msgspec.json.Decoder(BranchData)


def branch_key(branch: int) -> str:
    """Returns where a branch's record lies."""
    return f"{BRANCHES}{branch:08d}"


def branch_keys(branch: int) -> tuple[str, str]:
    """Returns the keys that :func:`stretches` needs to have been read."""
    return branch_key(branch), branch_key(branch + 1)


def branch_data(look: Look, branch: int) -> BranchData:
    """Returns what a branch's record holds; the first branch of a session that is no fork has none."""
    own = look.record(branch_key(branch))
    return BranchData() if own is None else _decoder.decode(value_of(own))


def stretches(look: Look, branch: int) -> tuple[Stretch, ...]:
    """Returns which messages a branch consists of, the oldest first.

    Args:
        look: the session, with :func:`branch_keys` read.
        branch: which; at most the present one.
    """
    own, following = (look.record(key) for key in branch_keys(branch))
    data = branch_data(look, branch)
    begins = "" if own is None else MESSAGES + to_hex(own.stored)
    ends = "" if following is None else MESSAGES + to_hex(following.stored)
    return (*data.kept, Stretch(begins, ends))


def on_present_branch(look: Look, key: str) -> bool:
    """Tells whether a message of the session itself belongs to the present branch; ``keys.HISTORY`` must be read."""
    begun = look.internal(HISTORY)
    if begun is None or key > MESSAGES + to_hex(begun.revision):
        return True
    return any(not stretch.session and stretch.holds(key) for stretch in _decoder.decode(begun.data).kept)


def up_to(found: Sequence[Stretch], last_message: str, session: str = "") -> tuple[Stretch, ...]:
    """Returns the part of a branch's stretches that ends with a message, itself included.

    Args:
        found: the stretches, the oldest first.
        last_message: a message's key; empty keeps nothing.
        session: the session in which it lies, empty for the branch's own: keys of two sessions say nothing about
            each other.
    """
    kept: list[Stretch] = []
    for stretch in found if last_message else ():
        if stretch.session == session and stretch.holds(last_message):
            kept.append(msgspec.structs.replace(stretch, before=just_after(last_message)))
            break
        kept.append(stretch)
    return tuple(kept)


def check_branch(look: Look, branch: int | None) -> int:
    """Returns the branch that a call means.

    Raises:
        Refusal: ENTRY_NOT_FOUND.
    """
    present = look.session.branch
    if branch is None:
        return present
    if branch > present:
        raise Refusal(
            Reason.ENTRY_NOT_FOUND,
            f"branch: {branch} does not exist; the newest branch of session {look.session_id!r} is {present}",
        )
    return branch


async def stretch_ref(scribe: Scribe, look: Look, stretch: Stretch) -> NamespaceRef:
    """Returns the namespace in which a stretch's messages lie."""
    return await scribe.living(stretch.session or look.session_id)


class OlderHistory(NamedTuple):
    """What lies before the present branch's own messages.

    Attributes:
        branch: the present branch.
        begins: own messages have keys above this.
        last: the newest message before, None if there is none.
        last_session: the session in which that lies, if it is another.
        summary: the newest summary before; empty if there is none.
    """

    branch: int
    begins: str
    last: Message | None
    last_session: str = ""
    summary: str = ""

    @property
    def summaries_begin(self) -> str:
        """Own summaries have keys above this."""
        return SUMMARIES + self.begins[len(MESSAGES) :]


async def older_history(scribe: Scribe, session_id: str) -> OlderHistory:
    """Returns what lies before the present branch's own messages; it never changes while the branch is the present."""
    info = (await scribe.peek(session_id)).info
    if info is None or not (info.branch or info.parent):
        return OlderHistory(0, "", None)
    look = await scribe.peek(session_id, branch_keys(info.branch))
    parts, summary = stretches(look, info.branch), branch_data(look, info.branch).summary
    for stretch in reversed(parts[:-1]):
        ref = await scribe.living(stretch.session or session_id)
        found = await scribe.scan(ref, Scan(MESSAGES, 1, reverse=True, keys=stretch.keys), accepted=True)
        if found.entries:
            key, revision, data, _ = found.entries[0]
            last = decode_message(key, decode_record(data, revision))
            return OlderHistory(info.branch, parts[-1].after, last, stretch.session, summary)
    return OlderHistory(info.branch, parts[-1].after, None, summary=summary)


async def last_message(scribe: Scribe, call: Call, look: Look) -> str:
    """Returns the key of the newest message of the present branch, as synced; empty if there is none."""
    branch = look.session.branch
    parts: tuple[Stretch, ...] = (Stretch(),)
    if branch or look.session.parent:
        parts = stretches(await scribe.read(call, look.session_id, branch_keys(branch)), branch)
    for stretch in reversed(parts):
        ref = await stretch_ref(scribe, look, stretch)
        found = await scribe.scan(ref, Scan(MESSAGES, 1, reverse=True, keys=stretch.keys))
        if found.entries:
            return found.entries[0].key
    return ""
