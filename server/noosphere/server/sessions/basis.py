"""What a tool call is based on, and what has become of that by the time of its result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from noosphere.consistency import Record

from ..memory.codec import decode_entry, decode_record
from .draft import Look
from .keys import GOALS, KeyRange
from .scribe import Scan, Scribe
from .toolcall import Basis, BasisChange

STATUS_ATTRIBUTE = "status"
CLOSED_STATUSES = frozenset({"done", "closed"})
"""A goal with one of these is no longer open."""

_STEP = 256


def is_open_goal(key: str, record: Record, now_ms: int) -> bool:
    """Tells whether a record is a goal that somebody still pursues."""
    if not key.startswith(GOALS) or not record.version(now_ms):
        return False
    return dict(record.attributes).get(STATUS_ATTRIBUTE) not in CLOSED_STATUSES


async def open_goals(scribe: Scribe, session_id: str) -> dict[str, Record]:
    """Returns the open goals of a session by key, as accepted."""
    ref = await scribe.living(session_id)
    found: dict[str, Record] = {}
    cursor: str | None = None
    while True:
        page = await scribe.scan(ref, Scan(GOALS, _STEP, keys=KeyRange(cursor, None)), accepted=True)
        for entry in page.entries:
            cursor = entry.key
            record = decode_record(entry.data, entry.revision)
            if is_open_goal(entry.key, record, page.view.now_ms):
                found[entry.key] = record
        if not page.more:
            return found
        await asyncio.sleep(0)


def basis_of(look: Look, keys: Iterable[str]) -> tuple[Basis, ...]:
    """Returns keys that were read with their versions."""
    return tuple(Basis(key, _version(look, key)) for key in keys)


def basis_changes(look: Look, based_on: Iterable[Basis]) -> tuple[BasisChange, ...]:
    """Returns what of a basis is no longer as it was; its keys must have been read."""
    changes = []
    for key, seen in based_on:
        now = _version(look, key)
        if now != seen:
            changes.append(BasisChange(key, seen, now, _changed_by(decode_entry(look.entries[key]), seen)))
    return tuple(changes)


def _version(look: Look, key: str) -> int:
    record = look.record(key)
    return 0 if record is None else record.stored


def _changed_by(record: Record | None, seen: int) -> str:
    if record is None:
        return ""
    newest = max(record.siblings, key=lambda sibling: sibling.dot)
    if newest.dot > seen:
        return newest.actor
    claim = record.claim
    return claim.holder if claim is not None and claim.fence > seen else ""
