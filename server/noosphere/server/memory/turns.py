"""Turns at keys that callers of this process have met at, so that they do not undo each other's attempts for ever.

Where a read does not see commits that are still under way, callers that read one key at once find the same revision,
and all but one commit in vain; the more there are, the more of them run out of attempts. Whoever has met somebody
therefore waits for the one before. This only orders the callers of one process: what decides is still the check of
the commit, which other replicas move too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

LINES_MAX = 1_024
"""Keys at which callers take turns at a time; at others they go on trying."""

WAITING_MAX = 1_024
"""Callers that wait for their turn at one key; others go on trying."""

Name = tuple[bytes, str]


class Turns:
    """See the module. A caller has a turn at one key at most, so nobody can wait for each other."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Name, _Line] = OrderedDict()

    def met(self, space: bytes, key: str) -> None:
        """Notes that a caller's commit has failed at a key because somebody else's was faster."""
        if (space, key) in self._lines:
            return
        if len(self._lines) >= LINES_MAX:
            idle = next((name for name, line in self._lines.items() if not line.held), None)
            if idle is None:
                return
            del self._lines[idle]
        self._lines[space, key] = _Line()

    @asynccontextmanager
    async def turn(self, space: bytes, keys: Iterable[str], patient: bool) -> AsyncIterator[None]:
        """Waits, if callers have met at one of the keys; ends the turn with the block.

        Args:
            space: the namespace's storage id.
            keys: what the caller wants to write.
            patient: wait for a turn of one's own, first come, first served. Otherwise only for the end of the one that
                is under way, together with all others who do: for those whom the next look is likely to refuse.
        """
        name = next(((space, key) for key in keys if (space, key) in self._lines), None) if self._lines else None
        if name is None:
            yield
            return
        line = self._lines[name]
        mine = await line.enter(patient)
        try:
            yield
        finally:
            if mine and line.leave():
                self._lines.pop(name, None)


class _Line:
    """Those who want to write one key.

    Attributes:
        held: whether somebody has the turn.
    """

    def __init__(self) -> None:
        self.held = False
        self._met = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = asyncio.Event()

    async def enter(self, patient: bool) -> bool:
        """Waits; returns whether the turn is the caller's, who then has to leave."""
        if not self.held:
            self.held, self._met = True, False
            return True
        self._met = True
        if not patient:
            await self._ended.wait()
            if self.held:
                return False
            self.held = True
            return True
        if len(self._waiting) >= WAITING_MAX:
            return False
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                # It was given at the moment in which the caller was cancelled.
                self.leave()
            raise
        return True

    def leave(self) -> bool:
        """Gives the turn to the next; returns True if nobody has wanted it meanwhile."""
        self._ended.set()
        self._ended = asyncio.Event()
        while self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                return False
        self.held = False
        return not self._met
