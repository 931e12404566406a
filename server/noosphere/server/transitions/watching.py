"""Collects in memory what happens to sessions between the ends of turns. Bounded, and never waits."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from ..memory.types import Call
from .chronicle import ContextNote

SESSIONS_MAX = 10_000
KEYS_MAX = 512
NOTES_MAX = 32


@dataclass(slots=True)
class Collected:
    """What has happened in one session and is not written yet."""

    keys: set[str] = field(default_factory=set)
    notes: OrderedDict[str, ContextNote] = field(default_factory=OrderedDict)


class SessionWatch:
    """Hears of accesses to items and of contexts; of the least recently used sessions it forgets."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Collected] = OrderedDict()
        self.more = asyncio.Event()
        """Set whenever anything is heard."""

    def accessed(self, call: Call, session_id: str, key: str) -> None:
        """Notes that an item was read or written by name, or was used by a model."""
        keys = self._of(session_id).keys
        if len(keys) < KEYS_MAX:
            keys.add(key)

    def assembled(self, session_id: str, note: ContextNote) -> None:
        """Notes that a context was assembled."""
        notes = self._of(session_id).notes
        notes[note.context_id] = note
        if len(notes) > NOTES_MAX:
            notes.popitem(last=False)

    def used(self, session_id: str, note: ContextNote, *, recalled: int, used: int, reported: bool) -> None:
        """Notes what of a context was used; ``note`` is what was known of it."""
        self.assembled(session_id, msgspec.structs.replace(note, recalled=recalled, used=used, reported=reported))

    def sessions(self) -> tuple[str, ...]:
        """Returns the sessions of which anything was heard since the last :meth:`settled`."""
        return tuple(self._sessions)

    def of(self, session_id: str) -> tuple[frozenset[str], tuple[ContextNote, ...]]:
        """Returns what was asked for and which contexts there were since the last :meth:`settled`."""
        found = self._sessions.get(session_id)
        return (frozenset(), ()) if found is None else (frozenset(found.keys), tuple(found.notes.values()))

    def settled(self, session_id: str, keys: frozenset[str], notes: tuple[ContextNote, ...]) -> None:
        """Forgets what was written down; what has come since stays."""
        found = self._sessions.get(session_id)
        if found is None:
            return
        found.keys -= keys
        for note in notes:
            if found.notes.get(note.context_id) is note:
                del found.notes[note.context_id]
        if not found.keys and not found.notes:
            del self._sessions[session_id]

    def forget(self, session_id: str) -> None:
        """Forgets a session."""
        self._sessions.pop(session_id, None)

    def _of(self, session_id: str) -> Collected:
        self.more.set()
        found = self._sessions.get(session_id)
        if found is None:
            found = self._sessions[session_id] = Collected()
            if len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(session_id)
        return found
