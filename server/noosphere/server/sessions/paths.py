"""The path that leads to a session as it is: the messages of its present branch, from the very first on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal

from ..memory.types import Call
from .branches import Stretch, branch_data, branch_keys, stretches
from .draft import Look
from .keys import RETRACTED, slot_revision
from .scribe import Scribe
from .summary_record import Place
from .types import SessionInfo

_FORKS_MAX = 16
"""Of forks of forks, so many owners count as having set a session up."""


class Path(NamedTuple):
    """The present branch of a session, as synced.

    Attributes:
        session_id: whose.
        info: the session.
        parts: its stretches, the oldest first, those in sessions from which it was forked included.
        generation: which life of the session's namespace.
        retracted: when a message was last taken back.
        forked_at: revision of the checkpoint of the parent with which a fork begins; 0 if it began as the parent was.
        inherited: how many of the stretches came with a fork.
        owners: the agents that opened it and the sessions from which it was forked.
    """

    session_id: str
    info: SessionInfo
    parts: tuple[Stretch, ...]
    generation: int
    retracted: int
    forked_at: int = 0
    inherited: int = 0
    owners: frozenset[str] = frozenset()

    def session_at(self, stretch: int) -> str:
        """Returns in which session a stretch lies."""
        return self.parts[stretch].session or self.session_id

    def inherits_call(self, key: str, session: str, started_ms: int) -> bool:
        """Tells whether a fork's parent had started a call by the time of the fork, perhaps among what was copied."""
        if not self.inherited or session != self.session_at(self.inherited - 1) or started_ms > self.info.created_ms:
            return False
        return not self.forked_at or slot_revision(key) <= self.forked_at

    def with_all_branches(self) -> Path:
        """Returns everything that the session ever said after what it has inherited, in the order of time."""
        return self._replace(parts=(*self.parts[: self.inherited], Stretch()))

    def place_of(self, key: str, session: str) -> Place | None:
        """Returns where a message of a session lies, None if it is not on this branch."""
        for index, stretch in enumerate(self.parts):
            if (stretch.session or self.session_id) == session and stretch.holds(key):
                return Place(index, key)
        return None


async def read_path(scribe: Scribe, session_id: str) -> Path | None:
    """Returns a session's present branch, None if there is no such session."""
    while True:
        look = await read_session(scribe, session_id)
        if look is None:
            return None
        branch = look.session.branch
        again = await read_session(scribe, session_id, (RETRACTED, *branch_keys(0), *branch_keys(branch)))
        if again is None or again.session.branch == branch:
            return None if again is None else await _path(scribe, again)


async def read_session(scribe: Scribe, session_id: str, keys: Sequence[str] = ()) -> Look | None:
    """Reads keys of a session, synced; None if there is no such session."""
    try:
        return await scribe.read(Call(), session_id, keys)
    except Refusal as refusal:
        if refusal.reason is Reason.SESSION_NOT_FOUND:
            return None
        raise


async def _path(scribe: Scribe, look: Look) -> Path:
    parts = stretches(look, look.session.branch)
    taken_back, first = look.entries[RETRACTED], branch_data(look, 0)
    return Path(
        session_id=look.session_id,
        info=look.session,
        parts=parts,
        generation=(await scribe.living(look.session_id)).generation,
        retracted=0 if taken_back is None else taken_back.revision,
        forked_at=slot_revision(first.checkpoint) if first.checkpoint else 0,
        inherited=sum(bool(part.session) for part in parts),
        owners=await _owners(scribe, look.session),
    )


async def _owners(scribe: Scribe, info: SessionInfo) -> frozenset[str]:
    found = {info.owner}
    for _ in range(_FORKS_MAX):
        parent = await read_session(scribe, info.parent) if info.parent else None
        if parent is None:
            break
        info = parent.session
        found.add(info.owner)
    return frozenset(found)
