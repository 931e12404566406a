"""A session's history as a summary sees it: the branch, its summaries, and the messages after one of them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ..memory.codec import decode_record
from ..ports.store import ScanResult, StoredEntry
from .branches import Stretch, branch_data, branch_keys, stretches
from .codec import decode_message
from .keys import MESSAGES, RETRACTED, SUMMARIES, KeyRange, namespace_of
from .scribe import Scan, Scribe
from .summary_record import Place, StoredSummary, decode_summary, farthest_first
from .types import Message, SessionInfo

AT_ONCE_MAX = 256
"""Most messages that are read at once."""

_BYTES_MAX = 1024 * 1024
_SUMMARIES_MAX = 32
_STEP_RECORDS = 32


class History(NamedTuple):
    """The present branch of a session.

    Attributes:
        session_id: whose.
        info: the session.
        parts: the branch's stretches, the oldest first.
        summaries: those that tell of the branch, the farthest reaching first; of many the newest.
        newest: the key of the newest summary, of whichever branch; empty if there is none.
        number: how many summaries were made.
        retracted: when a message was last taken back.
    """

    session_id: str
    info: SessionInfo
    parts: tuple[Stretch, ...]
    summaries: tuple[StoredSummary, ...]
    newest: str
    number: int
    retracted: int

    @property
    def namespace(self) -> str:
        """Where it lies."""
        return namespace_of(self.session_id)


class Said(NamedTuple):
    """A message and its place in the history."""

    place: Place
    message: Message


class Excerpt(NamedTuple):
    """Messages in order, and whether more follow."""

    messages: tuple[Said, ...]
    more: bool


async def read_history(scribe: Scribe, session_id: str) -> History | None:
    """Returns a session's present branch as accepted, None if there is no such session."""
    info = (await scribe.peek(session_id)).info
    if info is None:
        return None
    look = await scribe.peek(session_id, (RETRACTED, *branch_keys(info.branch)))
    if look.info is None:
        return None
    if look.session.branch != info.branch:
        return await read_history(scribe, session_id)
    ref = await scribe.living(session_id)
    page = await scribe.scan(ref, Scan(SUMMARIES, _SUMMARIES_MAX, reverse=True), accepted=True)
    begins_with = branch_data(look, info.branch).summary
    # A branch begins with a summary that may lie behind many of the branch that was left.
    known = [entry for entry in page.entries if entry.key == begins_with]
    hint = await scribe.peek(session_id, (begins_with,)) if begins_with and not known else None
    entries = [*page.entries, *((hint.entries[begins_with],) if hint is not None else ())]
    live = [decode_summary(entry) for entry in entries if entry is not None and entry.live_until_ms > look.now_ms]
    parts = stretches(look, info.branch)
    return History(
        session_id,
        look.session,
        parts,
        farthest_first(parts, live),
        newest_key(page),
        1 + max((stored.data.number for stored in live), default=-1),
        _revision(look.entries[RETRACTED]),
    )


async def said_after(scribe: Scribe, history: History, place: Place) -> Excerpt:
    """Returns the messages after a place, as many as are read at once: 256 or 1 MiB."""
    found: list[Said] = []
    size = 0
    for index in range(place.stretch, len(history.parts)):
        stretch = history.parts[index]
        ref = await scribe.living(stretch.session or history.session_id)
        keys = stretch.keys
        if index == place.stretch and place.key:
            keys = KeyRange(place.key, keys.before)
        more = True
        while more:
            page = await scribe.scan(ref, Scan(MESSAGES, AT_ONCE_MAX, keys=keys), accepted=True)
            more = page.more
            for entry in page.entries:
                if len(found) == AT_ONCE_MAX or size > _BYTES_MAX:
                    return Excerpt(tuple(found), True)
                found.append(Said(Place(index, entry.key), _message(entry)))
                size += len(entry.data)
                if len(found) % _STEP_RECORDS == 0:
                    await asyncio.sleep(0)
            if page.entries:
                keys = KeyRange(page.entries[-1].key, keys.before)
    return Excerpt(tuple(found), False)


class Quoting(NamedTuple):
    """Keys of summaries that may quote a message, and the key of the newest summary of all."""

    newest: str
    keys: tuple[str, ...]


async def summaries_quoting(scribe: Scribe, session_id: str, message: str) -> Quoting:
    """Returns the summaries that reach as far as a message of the session's own, of whichever branch.

    Args:
        scribe: reads.
        session_id: whose.
        message: the message's key.
    """
    ref = await scribe.living(session_id)
    newest = await scribe.scan(ref, Scan(SUMMARIES, 1, reverse=True), accepted=True)
    found: list[str] = []
    # A summary of it was made after it.
    after: str | None = SUMMARIES + message[len(MESSAGES) :]
    more = True
    while more:
        page = await scribe.scan(ref, Scan(SUMMARIES, _STEP_RECORDS, keys=KeyRange(after, None)), accepted=True)
        more = page.more
        for entry in page.entries:
            after = entry.key
            if entry.live_until_ms > page.view.now_ms:
                data = decode_summary(entry).data
                found += [entry.key] if not data.last_session and data.last >= message else []
        await asyncio.sleep(0)
    return Quoting(newest_key(newest), tuple(found))


def newest_key(newest: ScanResult) -> str:
    """Returns the key that a scan for the newest record found, live or not; empty if there is none."""
    return newest.entries[0].key if newest.entries else ""


def _message(entry: StoredEntry) -> Message:
    return decode_message(entry.key, decode_record(entry.data, entry.revision))


def _revision(entry: StoredEntry | None) -> int:
    return 0 if entry is None else entry.revision
