"""Forks of a session: what a parent knows of those that still read its messages.

A fork leaves a mark in its parent before it is made, and is made within a minute of that or never. So a mark without
a child holds a purge back no longer than that, and no child can ever come too late.
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal

from ..ports.store import NamespaceRef, StoredEntry
from .draft import Look
from .keys import CHILDREN, KeyRange, is_ephemeral
from .scribe import Scan, Scribe

FORK_MS_MAX = 60_000
"""How long a fork may take from its mark in the parent to its first commit."""

_SCAN_STEP = 128
_MARK = struct.Struct(">QQ")


def child_key(session_id: str) -> str:
    """Returns where a parent keeps that a session was forked from it."""
    return CHILDREN + session_id


class Mark(NamedTuple):
    """A fork that was begun: when, and at which head its namespace was then, from an earlier session of that id."""

    marked_ms: int
    head: int


def encode_mark(mark: Mark) -> bytes:
    """Returns a mark's stored form."""
    return _MARK.pack(*mark)


def decode_mark(entry: StoredEntry) -> Mark:
    """Returns a stored mark."""
    return Mark(*_MARK.unpack(entry.data))


async def check_childless(scribe: Scribe, ref: NamespaceRef, look: Look) -> None:
    """Checks that no fork reads messages of a session.

    Raises:
        Refusal: CHILDREN_OPEN.
    """
    cursor, more = None, True
    while more:
        page = await scribe.scan(ref, Scan(CHILDREN, _SCAN_STEP, keys=KeyRange(cursor, None)), accepted=True)
        more = page.more
        for entry in page.entries:
            cursor = entry.key
            child = entry.key[len(CHILDREN) :]
            there, mark = await scribe.peek(child), decode_mark(entry)
            may_come = there.view.head == mark.head and mark.marked_ms + FORK_MS_MAX > look.now_ms
            if may_come or (there.info is not None and there.info.parent == look.session_id):
                raise Refusal(
                    Reason.CHILDREN_OPEN,
                    f"session {look.session_id!r} cannot be removed: its fork {child!r} still reads its messages; "
                    f"{'close' if is_ephemeral(child) else 'purge'} that first",
                )
        await asyncio.sleep(0)
