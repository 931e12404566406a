"""Which sessions are an owner's."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal

from ..sessions.codec import decode_meta
from ..sessions.keys import META, NAMESPACES, session_of
from ..sessions.scribe import Scribe
from ..sessions.teaching import OWNER_LABEL

_PAGE = 128
_AGENT = "agent/"


class _Found(NamedTuple):
    parent: str
    owned: bool


async def sessions_of(scribe: Scribe, owner: str) -> tuple[str, ...]:
    """Returns the ids of an owner's sessions, forks before those that they were forked from.

    An agent's are those that it has opened, everybody else's those whose label ``facts_owner`` names them. A fork of
    such a session is one, too, whoever made it: it holds, or reads, what was said before.

    Args:
        scribe: reads their records.
        owner: as ``user/42``.
    """
    found: dict[str, _Found] = {}
    cursor = NAMESPACES
    while True:
        page = await scribe.core.store.namespaces(NAMESPACES, cursor, _PAGE)
        for summary in page:
            cursor = summary.ref.name
            session_id = session_of(cursor)
            if session_id and not summary.deleted and (one := await _look(scribe, session_id, owner)) is not None:
                found[session_id] = one
        await asyncio.sleep(0)
        if len(page) < _PAGE:
            return _with_forks(found)


async def _look(scribe: Scribe, session_id: str, owner: str) -> _Found | None:
    try:
        look = await scribe.peek(session_id, (META,))
    except Refusal as refusal:
        # A namespace with a name that no session has.
        if refusal.reason in (Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE):
            return None
        raise
    if look.view.deleted or look.info is None:
        return None
    if owner.startswith(_AGENT):
        # Whom it is labelled for says whose facts are learned from it, not who has opened it.
        return _Found(look.info.parent, owner == _AGENT + look.info.owner)
    return _Found(look.info.parent, decode_meta(look.record(META)).labels.get(OWNER_LABEL, "") == owner)


def _with_forks(found: dict[str, _Found]) -> tuple[str, ...]:
    children: dict[str, list[str]] = {}
    for session_id, one in found.items():
        if one.parent:
            children.setdefault(one.parent, []).append(session_id)
    ordered: dict[str, None] = {}
    pending = [session_id for session_id, one in found.items() if one.owned]
    while pending:
        session_id = pending.pop()
        # One that is reached again goes behind those that were before it.
        ordered.pop(session_id, None)
        ordered[session_id] = None
        pending += children.get(session_id, ())
    return tuple(reversed(ordered))
