"""Brings together what processes hear of one session: which items were asked for, and which contexts there were.

Each process writes what it has heard into a record of its own, a moment later, and forgets it. Whoever ends the turn
reads those records too, and takes away what it has counted. What comes later than that counts for the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import Refusal

from ..ports.runtime import Clock
from ..ports.store import StoredEntry
from ..sessions.draft import Draft, Look
from ..sessions.keys import NOTED
from ..sessions.scribe import BACKGROUND, Intent, Need, Scan, Scribe
from .chronicle import ContextNote
from .watching import KEYS_MAX, NOTES_MAX, SessionWatch

log = structlog.get_logger(__name__)

GATHER_MS = 250
"""How long is gathered what is heard, so that a busy session writes few commits."""

PROCESSES_MAX = 256
"""Records of so many processes are counted at the end of one turn; those of others wait for the next."""


class Noted(msgspec.Struct, array_like=True, frozen=True):
    """What one process has heard: keys of items, and contexts, the oldest first."""

    keys: tuple[str, ...] = ()
    notes: tuple[ContextNote, ...] = ()

    def with_(self, keys: frozenset[str], notes: tuple[ContextNote, ...]) -> Noted:
        """Returns the record with more, within the bounds of a process."""
        contexts = {note.context_id: note for note in (*self.notes, *notes)}
        together = sorted({*self.keys, *keys})
        return Noted(tuple(together[:KEYS_MAX]), tuple(contexts.values())[-NOTES_MAX:])

    def without(self, counted: Noted) -> Noted:
        """Returns what has come since this was counted."""
        keys = tuple(key for key in self.keys if key not in counted.keys)
        return Noted(keys, tuple(note for note in self.notes if note not in counted.notes))


class Heard(NamedTuple):
    """What is known of a session's use since the last turn.

    Attributes:
        keys: items that were asked for.
        notes: contexts, the oldest first.
        own: of these, what this process has in memory.
        stored: what processes have written, by key.
    """

    keys: frozenset[str]
    notes: tuple[ContextNote, ...]
    own: tuple[frozenset[str], tuple[ContextNote, ...]]
    stored: Mapping[str, Noted]

    def take(self, look: Look, draft: Draft) -> None:
        """Takes what is stored away, in the commit that counts it; the keys of ``stored`` must have been read."""
        for key, counted in self.stored.items():
            if (entry := look.internal(key)) is None:
                continue
            left = decode_noted(entry).without(counted)
            if left == Noted():
                draft.forget(key)
            else:
                draft.keep(key, encode_noted(left))


class Notes:
    """What this process, and others if there are any, have heard of sessions.

    Args:
        scribe: reads and writes their records.
        watch: what this process has heard.
        clock: how long is gathered.
        process: a name that no other process has; empty if there are no others.
    """

    def __init__(self, scribe: Scribe, watch: SessionWatch, clock: Clock, process: str) -> None:
        self._scribe = scribe
        self._watch = watch
        self._clock = clock
        self._key = NOTED + process
        self._shared = bool(process)
        self._writing = asyncio.Lock()

    async def of(self, session_id: str) -> Heard:
        """Returns what was heard of a session.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        stored: dict[str, Noted] = {}
        if self._shared:
            ref = await self._scribe.living(session_id)
            page = await self._scribe.scan(ref, Scan(NOTED, PROCESSES_MAX))
            stored = {e.key: decode_noted(e) for e in page.entries if e.live_until_ms > page.view.now_ms}
        own = self._watch.of(session_id)
        contexts: dict[str, ContextNote] = {}
        for note in (*own[1], *(note for noted in stored.values() for note in noted.notes)):
            contexts[note.context_id] = note.newest(contexts.get(note.context_id))
        # Ids of contexts rise with time.
        notes = tuple(contexts[context_id] for context_id in sorted(contexts))
        keys = own[0].union(*(noted.keys for noted in stored.values()))
        return Heard(keys, notes, own, stored)

    def settled(self, session_id: str, heard: Heard) -> None:
        """Forgets what was counted and is in this process's memory."""
        self._watch.settled(session_id, *heard.own)

    async def run(self) -> None:
        """Writes down what is heard, until cancelled."""
        while True:
            await self._watch.more.wait()
            await self._clock.sleep(GATHER_MS / 1000)
            await self.settle()

    async def settle(self) -> None:
        """Writes down what was heard so far; nothing if there are no other processes."""
        if not self._shared:
            return
        async with self._writing:
            self._watch.more.clear()
            for session_id in self._watch.sessions():
                try:
                    await self._write(session_id)
                except Refusal as refusal:
                    # The session is gone, or the store: then it is as if the process had ended.
                    log.debug("what was heard of a session is not kept", reason=refusal.reason)
                    self._watch.forget(session_id)

    async def _write(self, session_id: str) -> None:
        keys, notes = self._watch.of(session_id)

        def decide(look: Look, draft: Draft) -> None:
            entry = look.internal(self._key)
            known = Noted() if entry is None else decode_noted(entry)
            draft.keep(self._key, encode_noted(known.with_(keys, notes)))

        intent = Intent("note", keys=(self._key,), need=Need.ANY, background=True)
        await self._scribe.write(BACKGROUND, session_id, intent, decide)
        self._watch.settled(session_id, keys, notes)


_decoder = msgspec.json.Decoder(Noted)


def encode_noted(noted: Noted) -> bytes:
    """Returns a record's bytes."""
    return msgspec.json.encode(noted)


def decode_noted(entry: StoredEntry) -> Noted:
    """Returns a record."""
    return _decoder.decode(entry.data)
