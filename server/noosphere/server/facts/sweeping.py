"""Removes what nobody refers to: words of decisions never committed or of refusals long ago, and jobs long given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..ports.factqueue import BATCH_MAX as JOBS_MAX
from ..ports.factqueue import FactQueue
from ..ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from .contents import HELD, versions_by_parts
from .ledger import CANDIDATE_RETENTION_MS, CandidateNote, FactNote, Ledger, candidate_key, fact_key
from .planning import Change

ORPHAN_AGE_MS = 10 * 60 * 1000
"""Younger contents may be of a decision that is just being committed."""

SWEPT_MAX = 10_000
"""Most contents of one round."""


DEAD_LOOKED_AT_MAX = 10_000
"""Most dead jobs that are looked at in one round; the next one goes on from there."""


class Swept(NamedTuple):
    """What is to be removed, and how that is told."""

    keys: tuple[FactKey, ...]
    changes: tuple[Change, ...]


class Sweeper:
    """Finds and removes orphans."""

    def __init__(self, ledger: Ledger, store: FactStore) -> None:
        self._ledger = ledger
        self._store = store

    async def find(self, scope: str) -> Swept:
        """Finds orphans of a scope; they stay orphans, since the number of a content is never used twice."""
        is_meant = self._is_old
        keys = await self._orphans(scope, is_meant, held=False)
        keys += await self._orphans(HELD + scope, is_meant, held=True)
        explanation = "Nobody refers to these words."
        return Swept(tuple(keys), tuple(Change(key.fact_id, "sweep", explanation) for key in keys))

    async def of_owner(self, scope: str, owner: str, until_ms: int) -> list[FactKey]:
        """Finds an owner's orphans in a scope, however young.

        Args:
            scope: where.
            owner: whose.
            until_ms: a store time. What was decided before must not be committed any more, or it is no orphan for good.
        """

        def is_meant(content: FactContent) -> bool:
            return content.owner == owner and content.recorded_ms <= until_ms

        keys = await self._orphans(scope, is_meant, held=False)
        return keys + await self._orphans(HELD + scope, is_meant, held=True)

    async def remove(self, swept: Swept) -> None:
        """Removes them."""
        for start in range(0, len(swept.keys), BATCH_MAX):
            await self._store.remove(swept.keys[start : start + BATCH_MAX])

    async def _orphans(self, place: str, is_meant: Callable[[FactContent], bool], *, held: bool) -> list[FactKey]:
        found: list[FactKey] = []
        async for part in versions_by_parts(self._store, place):
            found += await self._unnamed(place, part, is_meant, held=held)
            if len(found) >= SWEPT_MAX:
                break
        return found

    async def _unnamed(
        self, place: str, keys: Sequence[FactKey], is_meant: Callable[[FactContent], bool], *, held: bool
    ) -> list[FactKey]:
        scope = place.removeprefix(HELD) if held else place
        names = candidate_key if held else fact_key
        page = await self._ledger.read(scope, {names(key.fact_id) for key in keys})
        doubtful: list[FactKey] = []
        for key in keys:
            if held:
                candidate = page.get(names(key.fact_id), CandidateNote)
                named = candidate is not None and candidate.content == key.version
            else:
                fact = page.get(names(key.fact_id), FactNote)
                named = fact is not None and any(version.content == key.version for version in fact.versions)
            if not named:
                doubtful.append(key)
        contents = await self._store.read(doubtful) if doubtful else ()
        return [
            key for key, content in zip(doubtful, contents, strict=True) if content is not None and is_meant(content)
        ]

    def _is_old(self, content: FactContent) -> bool:
        return content.recorded_ms <= self._ledger.now_ms - ORPHAN_AGE_MS


class DeadJobs:
    """Removes jobs that were given up, once it is no longer remembered why: nobody could look at them any more.

    Args:
        ledger: knows the time.
        queue: where they are.
    """

    def __init__(self, ledger: Ledger, queue: FactQueue) -> None:
        self._ledger = ledger
        self._queue = queue
        self._after = ""

    async def sweep(self) -> int:
        """Looks at the next ones; returns how many were removed.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        old_ms = self._ledger.now_ms - CANDIDATE_RETENTION_MS
        old: list[str] = []
        for _ in range(0, DEAD_LOOKED_AT_MAX, JOBS_MAX):
            page = await self._queue.dead(self._after, JOBS_MAX)
            old += [one.job.id for one in page if one.died_ms <= old_ms]
            self._after = page[-1].job.id if len(page) == JOBS_MAX else ""
            if not self._after:
                break
        for start in range(0, len(old), JOBS_MAX):
            await self._queue.remove(ids=old[start : start + JOBS_MAX])
        return len(old)
