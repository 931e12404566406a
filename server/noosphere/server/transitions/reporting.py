"""Reports how a session fares: the figures, and how much it holds."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ..memory.types import Call
from ..sessions.branches import branch_keys, stretch_ref, stretches
from ..sessions.items import count_items
from ..sessions.keys import ACCESS, MESSAGES, OUTBOX, PENDING, KeyRange
from ..sessions.scribe import Scan, Scribe
from .chronicle import Chronicle, decode_chronicle
from .health import RECENT, Figure, Signs, figures
from .noting import Notes

_SCAN_STEP = 512
COUNTED_MAX = 1_000_000
EVERYTHING = KeyRange(None, None)


class Health(NamedTuple):
    """A session's figures and sizes.

    Attributes:
        figures: the four figures.
        items: how many items are active.
        messages: how many messages the present branch has; at most 1,000,000 are counted.
        pending_calls: how many tool calls are pending.
        outbox: how many fact candidates wait.
        head: the namespace's newest visible revision.
    """

    figures: tuple[Figure, ...]
    items: int
    messages: int
    pending_calls: int
    outbox: int
    head: int


class HealthReporter:
    """Tells how sessions fare.

    Args:
        scribe: reads their records.
        notes: what happened since the last turn.
    """

    def __init__(self, scribe: Scribe, notes: Notes) -> None:
        self._scribe = scribe
        self._notes = notes

    async def report(self, call: Call, session_id: str) -> Health:
        """Returns a session's figures and sizes.

        Raises:
            Refusal: SESSION_NOT_FOUND, or a reason that concerns the caller.
        """
        scribe = self._scribe
        look = await scribe.read(call, session_id, (ACCESS,))
        ref = await scribe.living(session_id)
        heard = await self._notes.of(session_id)
        chronicle = decode_chronicle(look.internal(ACCESS)).with_contexts(heard.notes)
        return Health(
            figures_of(chronicle),
            await count_items(scribe.core.store, ref),
            await self._messages(call, session_id),
            await self._count(session_id, PENDING),
            await self._count(session_id, OUTBOX),
            look.view.head,
        )

    async def _messages(self, call: Call, session_id: str) -> int:
        look = await self._scribe.read(call, session_id)
        branch = look.session.branch
        look = await self._scribe.read(call, session_id, branch_keys(branch))
        count = 0
        for stretch in stretches(look, branch):
            name = (await stretch_ref(self._scribe, look, stretch)).name
            count += await self._count(name.removeprefix("sessions/"), MESSAGES, stretch.keys)
        return count

    async def _count(self, session_id: str, collection: str, keys: KeyRange = EVERYTHING) -> int:
        ref = await self._scribe.living(session_id)
        count, more = 0, True
        while more and count < COUNTED_MAX:
            page = await self._scribe.scan(ref, Scan(collection, _SCAN_STEP, keys=keys))
            count += sum(entry.live_until_ms > page.view.now_ms for entry in page.entries)
            more = page.more
            if more:
                keys = KeyRange(page.entries[-1].key, keys.before)
                await asyncio.sleep(0)
        return count


def figures_of(chronicle: Chronicle) -> tuple[Figure, ...]:
    """Returns the four figures of a session's chronicle."""
    told = [note for note in chronicle.contexts[-RECENT:] if note.recalled]
    signs = Signs(
        utilizations=tuple(n.used_tokens / n.allowed_tokens for n in chronicle.contexts if n.allowed_tokens),
        recalled=tuple(note.recalled for note in told),
        used=tuple(note.used for note in told),
        reported=any(note.reported for note in told),
        lifespans=chronicle.lifespans,
        turn_tokens=tuple(tokens for _, tokens in chronicle.turn_tokens),
    )
    return figures(signs)
