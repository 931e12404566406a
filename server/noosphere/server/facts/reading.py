"""Reads facts: one, as it is or was; those of a scope by pages; and all versions of one and of what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Refusal, invalid

from ..memory.core import Core
from ..memory.reads import check_page_size
from ..memory.types import Call
from ..ports.factstore import HITS_MAX, FactContent, FactFilter, FactKey, FactStore
from .contents import content_key, decode_body, fact_of, read_all
from .fresh import Fresh
from .ledger import FACTS, FactNote, Ledger, fact_key
from .scopes import admit_reader, check_owner, check_scope, scope_of
from .standing import Standing, version_at
from .types import Fact, FactState

PAGE_BYTES_MAX = 1024 * 1024
"""A page ends once it has so much in it; the next one goes on."""

SCANNED_MAX = 4_096
"""Most facts that one page of a list looks at; a page may be short, and the next goes on from there."""

HISTORY_MAX = 1_000
_SCAN_STEP = 256


class FactPage(NamedTuple):
    """Some facts by id; ``following`` is where the next page begins, None after the last one."""

    facts: tuple[Fact, ...]
    following: str | None


class Reading:
    """Reads facts.

    Args:
        core: admits callers.
        ledger: says what there is.
        store: has the words.
    """

    def __init__(self, core: Core, ledger: Ledger, store: FactStore) -> None:
        self._core = core
        self._ledger = ledger
        self._store = store
        self._fresh = Fresh(ledger, store)

    async def get(self, call: Call, fact_id: str, *, as_of_ms: int | None = None) -> Fact:
        """Returns a fact's present version, or the one of a moment of store time; one that was superseded, too.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, ENTRY_NOT_FOUND, ENGINE_UNAVAILABLE.
        """
        scope = scope_of(fact_id)
        admit_reader(self._core, call, scope)
        if as_of_ms is not None and as_of_ms < 0:
            raise invalid("as_of", "lies before 1970")
        note = await self._note(scope, fact_id)
        version = version_at(note, as_of_ms)
        if version is None:
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"fact {fact_id!r} was not known at that moment")
        standing = Standing(scope, note, version)
        (content,) = await self._contents((standing.key,))
        if content is None:
            # Its words went before its note did.
            raise _not_found(fact_id)
        return fact_of(*standing, content)

    async def note(self, call: Call, fact_id: str) -> tuple[str, FactNote]:
        """Returns a fact's scope and what the ledger says of it.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, ENTRY_NOT_FOUND.
        """
        scope = scope_of(fact_id)
        admit_reader(self._core, call, scope)
        return scope, await self._note(scope, fact_id)

    async def list(
        self, call: Call, scope: str, *, owner: str = "", include_superseded: bool = False, page_size: int, after: str
    ) -> FactPage:
        """Lists facts of a scope by id.

        Args:
            call: who calls.
            scope: the scope.
            owner: only this owner's; empty for any.
            include_superseded: also what was superseded.
            page_size: 1 to 1,000; 0 means 100.
            after: where the page begins; empty for the first.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, PERMISSION_DENIED, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        check_scope(scope)
        if owner:
            check_owner(owner)
        size = check_page_size(page_size)
        admit_reader(self._core, call, scope)
        facts: list[Fact] = []
        bound, looked_at, taken = after or None, 0, 0
        while True:
            page = await self._ledger.scan(scope, FACTS, after=bound, limit=_SCAN_STEP)
            alive = [entry for entry in page.entries if entry.live_until_ms > page.view.now_ms]
            notes = [(entry.key, msgspec.json.decode(entry.data, type=FactNote)) for entry in alive]
            wanted = [
                (key, Standing(scope, note, note.newest))
                for key, note in notes
                if note.expires_at_ms > page.view.now_ms
                and (not owner or note.owner == owner)
                and (include_superseded or note.state is FactState.CURRENT)
            ][: size - len(facts)]
            for (key, standing), content in zip(
                wanted, await self._contents([one.key for _, one in wanted]), strict=True
            ):
                if content is None:
                    continue
                facts.append(fact_of(*standing, content))
                taken += len(content.body)
                if len(facts) == size or taken >= PAGE_BYTES_MAX:
                    last = not page.more and bool(page.entries) and key == page.entries[-1].key
                    return FactPage(tuple(facts), None if last else key)
            if page.entries:
                bound = page.entries[-1].key
            looked_at += len(page.entries)
            if not page.more:
                return FactPage(tuple(facts), None)
            if looked_at >= SCANNED_MAX:
                return FactPage(tuple(facts), bound)

    async def history(self, call: Call, fact_id: str) -> tuple[Fact, ...]:
        """Returns every version of a fact, and of those that it superseded or was superseded by, however often.

        The newest first, by when they were recorded; at most 1,000, and no more than 1 MiB of words.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, ENTRY_NOT_FOUND, ENGINE_UNAVAILABLE.
        """
        scope, note = await self.note(call, fact_id)
        chain = _chain(note, await self._of_slot(scope, note))
        versions = sorted(
            (Standing(scope, one, version) for one in chain for version in one.versions),
            key=lambda one: (one.version.recorded_ms, one.version.number, one.note.id),
            reverse=True,
        )
        facts: list[Fact] = []
        taken = 0
        for start in range(0, min(len(versions), HISTORY_MAX), _SCAN_STEP):
            part = versions[start : min(start + _SCAN_STEP, HISTORY_MAX)]
            for standing, content in zip(part, await self._contents([one.key for one in part]), strict=True):
                if content is not None:
                    facts.append(fact_of(*standing, content))
                    taken += len(content.body)
                if taken >= PAGE_BYTES_MAX:
                    return tuple(facts)
        return tuple(facts)

    async def _note(self, scope: str, fact_id: str) -> FactNote:
        page = await self._ledger.read(scope, (fact_key(fact_id),))
        note = page.get(fact_key(fact_id), FactNote)
        if note is None or note.expires_at_ms <= page.view.now_ms:
            raise _not_found(fact_id)
        return note

    async def _of_slot(self, scope: str, note: FactNote) -> tuple[FactNote, ...]:
        """Returns what the ledger says of all facts that ever were in a fact's slot, itself included."""
        (content,) = await self._contents((content_key(scope, note.id, note.newest),))
        if not note.slot or content is None:
            return (note,)
        body = decode_body(content)
        where = FactFilter((scope,), (note.owner,), subject=body.subject, predicate=body.predicate)
        ids: dict[str, None] = {note.id: None}
        after: FactKey | None = None
        for _ in range(HISTORY_MAX // _SCAN_STEP + 1):
            page = await self._store.matching(where, after, HITS_MAX)
            ids |= dict.fromkeys(key.fact_id for key in page)
            if len(page) < HITS_MAX or len(ids) >= HISTORY_MAX:
                break
            after = page[-1]
        missed = (await self._fresh.ids((scope,))).get(scope, ())
        notes = await self._ledger.facts(scope, list(dict.fromkeys((*missed, *ids)))[:HISTORY_MAX])
        now_ms = self._ledger.now_ms
        return tuple(
            one
            for one in notes.values()
            if one.expires_at_ms > now_ms and (one.id in ids or (one.slot, one.owner) == (note.slot, note.owner))
        )

    async def _contents(self, keys: Sequence[FactKey]) -> Sequence[FactContent | None]:
        return await read_all(self._store, keys)


def _chain(note: FactNote, of_slot: Sequence[FactNote]) -> list[FactNote]:
    """Returns a fact and all those of its slot that superseded it or were superseded by it, at whatever remove."""
    beside: dict[str, list[str]] = {}
    for one in of_slot:
        if one.superseded_by:
            beside.setdefault(one.id, []).append(one.superseded_by)
            beside.setdefault(one.superseded_by, []).append(one.id)
    reached, waiting = {note.id}, [note.id]
    while waiting:
        for other in beside.get(waiting.pop(), ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return [one for one in of_slot if one.id in reached]


def _not_found(fact_id: str) -> Refusal:
    return Refusal(Reason.ENTRY_NOT_FOUND, f"there is no fact {fact_id!r}, or it has ended or was forgotten")
