"""Forgetting: one call removes facts from ledger, store, indexes, queue, caches and sources, and says what was where.

First the ledger forgets, in one commit for each fact, and notes that words may stand elsewhere. From then on no search
finds it and no late job brings it back. Then the words go everywhere else, and the note with them. After a crash in
between upkeep goes on from the note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

import msgspec
import structlog

from noosphere.consistency import NEVER_MS, Reason, Refusal, fingerprint, invalid

from ..memory.access import OPERATOR_PREFIX
from ..memory.admission import require_writer
from ..memory.cache_drops import CacheDrops
from ..memory.core import Core
from ..memory.types import Call
from ..ports.factqueue import FactQueue
from ..ports.factstore import NO_STORE, FactContent, FactKey, FactStore
from ..ports.grants import Verb
from ..ports.sources import SOURCES_MAX, Redaction
from ..ports.store import Mutation
from .answers import Answers
from .candidate_jobs import candidate_in
from .compressing import FACT_REFERENCE
from .contents import content_key
from .forgot import BACKUPS, ON_DISK, Forgot
from .fresh import Fresh, news
from .ledger import (
    ATTEMPTS_MAX,
    FORGOTTEN,
    REQUESTS,
    SECRET,
    SLOTS,
    FactNote,
    Ledger,
    Page,
    SourceNote,
    Suppression,
    contended,
    digest,
    fact_key,
    put,
)
from .removing import Removal
from .requests import request_digest
from .scopes import IdKind, check_scope, make_id, operates, require_write, scope_of, scope_or_own
from .selecting import FOUND_MAX, Selected, Wanted, select
from .sources import rests_on
from .suppression import SECRET_BYTES, evidence_key, owner_key, producer_key
from .sweeping import Sweeper
from .types import Decision, FactState
from .unlearning import (
    Forgotten,
    forget,
    forgotten_key,
    places_of,
    revived,
    rewritten,
    withdraw,
)
from .waiting import WaitingWork

log = structlog.get_logger(__name__)

IDS_MAX = 1_000
CALLS_MAX = 1_000


class Forgetting:
    """Forgets.

    Args:
        core: admits callers.
        ledger: where decisions stand.
        store: where words stand.
        queue: where candidates wait.
        redaction: overwrites sources.
        entropy: makes secrets.
        dropped: told of contents that are gone, so that no cache keeps them.
        decided: hears what became of candidates.
        cache_drops: has other processes drop what they keep of it.
    """

    def __init__(
        self,
        core: Core,
        ledger: Ledger,
        store: FactStore,
        queue: FactQueue,
        redaction: Redaction,
        *,
        entropy: Callable[[int], bytes],
        dropped: Callable[[Sequence[FactKey]], None],
        decided: Callable[[Decision], None],
        cache_drops: CacheDrops,
    ) -> None:
        self._core = core
        self._ledger = ledger
        self._store = store
        self._fresh = Fresh(ledger, store)
        self._answers = Answers(ledger)
        self._entropy = entropy
        self._waiting = WaitingWork(ledger, queue, entropy=entropy, decided=decided)
        self._removal = Removal(
            ledger, store, self._waiting, redaction, dropped, entropy=entropy, cache_drops=cache_drops
        )

    async def forget(self, call: Call, wanted: Wanted, scope: str, *, dry_run: bool) -> Forgot:
        """Forgets what is wanted, for good.

        Args:
            call: who calls.
            wanted: what.
            scope: where; empty for the fact's or owner's own scope, or for every scope of a producer, which is the
                operator's to ask for.
            dry_run: only tell what would be forgotten.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, ENTRY_NOT_FOUND, CONTENTION, ENGINE_UNAVAILABLE. After the last
                two what was begun goes on by itself, and the call may be repeated. REQUEST_ID_REUSED.
                ACKED_WRITES_LOST, if what the caller presents of a ledger was lost; nothing is done then.
        """
        require_writer(call)
        self._core.require_current(call)
        scopes = await self._scopes(call, wanted, scope)
        meaning = fingerprint("ForgetFacts", *wanted, scope)
        # Of a producer in every scope it is not remembered: there is no one ledger, and nothing new to be lost.
        key = _request_key(call) if not dry_run and (wanted.fact_id or wanted.owner or scope) else ""
        if key and (answer := await self._answers.known(scopes[0], key, meaning)) is not None:
            return answer
        for one in scopes:
            await self._ledger.check_presented(call, one)
        ids: list[str] = []
        places: Counter[str] = Counter()
        remaining = [BACKUPS]
        for one in scopes:
            begun = await self._removal.begun(one, wanted.fact_id) if wanted.fact_id and not dry_run else None
            if begun is not None and wanted.owner in ("", begun.owner):
                # An earlier call was cut off after the ledger had forgotten it.
                require_write(self._core, call, one, begun.owner, Verb.DELETE)
                counted, left = await self._removal.words(one, (begun,))
                places.update(counted, facts=1)
                ids.append(begun.fact_id)
                remaining += left
                continue
            selected = await self._select(one, wanted)
            for note in (*selected.facts, *selected.summaries):
                require_write(self._core, call, one, note.owner, Verb.DELETE)
            gone, left = await self._in_scope(one, wanted, selected, places, dry_run=dry_run)
            ids += gone
            remaining += left
            if not dry_run:
                # Nor does anything else stay behind of a call that was cut off and now comes again.
                await self.resume(one)
        remaining += self._on_disk(ids)
        forgot = Forgot(tuple(ids[:IDS_MAX]), tuple(sorted((+places).items())), tuple(dict.fromkeys(remaining)))
        if key:
            await self._answers.remember(scopes[0], key, meaning, forgot)
        return forgot

    async def of_owner(self, owner: str, scope: str, *, dry_run: bool) -> Forgot:
        """Forgets everything of an owner in a scope; whoever calls this has checked who asks for it.

        Without a fact store there are no facts: what waits to become one is forgotten.

        Raises:
            Refusal: CONTENTION, ENGINE_UNAVAILABLE; to be called again.
        """
        wanted = Wanted(all=True, owner=owner)
        places: Counter[str] = Counter()
        ids: list[str] = []
        remaining: list[str] = []
        if self._store.engine == NO_STORE:
            if dry_run:
                places["queue"] += len(await self._waiting.meant(scope, wanted))
            else:
                await self._forget_waiting(scope, wanted, places)
            return Forgot((), tuple(sorted((+places).items())), ())
        for _ in range(CALLS_MAX):
            selected = await self._select(scope, wanted)
            gone, left = await self._in_scope(scope, wanted, selected, places, dry_run=dry_run)
            ids += gone
            remaining += left
            # One round is about so many at most.
            if dry_run or max(len(selected.facts), len(selected.held)) < FOUND_MAX:
                break
        if not dry_run:
            await self.resume(scope)
        remaining += self._on_disk(ids)
        return Forgot(tuple(ids), tuple(sorted((+places).items())), tuple(dict.fromkeys(remaining)))

    async def sweep(self, scope: str) -> None:
        """Has what finished work of a scope said overwritten where the queue's file still has it."""
        await self._waiting.erase_finished((make_id(scope, digest("nobody"), IdKind.CANDIDATE),))

    def _on_disk(self, ids: Sequence[str]) -> list[str]:
        """Returns where words of facts stay that were removed, or would be."""
        return [ON_DISK[self._store.engine]] if ids and self._store.engine in ON_DISK else []

    async def _in_scope(
        self, scope: str, wanted: Wanted, selected: Selected, places: Counter[str], *, dry_run: bool
    ) -> tuple[list[str], tuple[str, ...]]:
        """Forgets in one scope; returns the facts, and what may still hold them. Counts by place."""
        if dry_run:
            whole = [note.id for note in selected.facts if wanted.is_whole(note)]
            whole += [note.id for note in selected.summaries]
            places["facts"] += len(whole)
            places["candidates"] += len(selected.held)
            places["queue"] += len(await self._waiting.meant(scope, wanted))
            places["sources"] += sum(
                sum(map(wanted.is_of, note.sources)) for note in selected.facts if not wanted.is_whole(note)
            )
            return whole, ()
        before_ms = self._ledger.now_ms
        if not wanted.fact_id:
            await self._forget_waiting(scope, wanted, places)
            # What was being decided meanwhile is a fact now, or never will be.
            selected = await self._select(scope, wanted)
        gone, counted, left = await self._forget_in(scope, wanted, selected)
        places.update(counted)
        if wanted.all:
            # Words of decisions that somebody was faster than; none of them can be committed any more.
            orphans = await Sweeper(self._ledger, self._store).of_owner(scope, wanted.owner, before_ms)
            places["index"] += await self._removal.drop(orphans) if orphans else 0
        return gone, left

    async def resume(self, scope: str) -> int:
        """Goes on with what a crash interrupted; returns how many facts that was about."""
        done = 0
        while True:
            page = await self._ledger.scan(scope, FORGOTTEN, limit=SOURCES_MAX)
            if not page.entries:
                return done
            gone = [msgspec.json.decode(entry.data, type=Forgotten) for entry in page.entries]
            await self._removal.words(scope, gone)
            done += len(gone)

    async def _scopes(self, call: Call, wanted: Wanted, scope: str) -> tuple[str, ...]:
        named = [bool(wanted.fact_id), bool(wanted.query), bool(wanted.producer), wanted.all]
        if sum(named) != 1:
            raise invalid("what", "exactly one of fact_id, query, producer and all is needed")
        if wanted.fact_id:
            own = scope_of(wanted.fact_id)
            if scope and scope != own:
                raise invalid("scope", f"{scope!r} is not that of the fact, {own!r}")
            require_write(self._core, call, own, own, Verb.DELETE)
            return (own,)
        if wanted.owner:
            own = scope_or_own(scope, wanted.owner)
            require_write(self._core, call, own, wanted.owner, Verb.DELETE)
            return (own,)
        if not wanted.producer:
            raise invalid("owner", "is needed: whose facts are to be forgotten")
        if scope:
            check_scope(scope)
            require_write(self._core, call, scope, scope, Verb.DELETE)
            return (scope,)
        if not operates(call, Verb.DELETE):
            raise Refusal(
                Reason.PERMISSION_DENIED,
                f"forgetting a producer in every scope is for the operator ({OPERATOR_PREFIX}…)",
            )
        return tuple([found async for found in self._ledger.scopes()])

    async def _select(self, scope: str, wanted: Wanted) -> Selected:
        selected = await select(self._ledger, self._store, self._fresh, scope, wanted)
        summaries = {note.id: note for note in selected.facts if _events_of(note)}
        facts = {note.id: note for note in selected.facts if note.id not in summaries}
        if wanted.fact_id:
            # Who names a summary means what it sums up.
            events = [id for note in summaries.values() for id in _events_of(note)]
            facts |= await self._ledger.facts(scope, events)
        # What sums up a forgotten event says the same.
        above = {note.superseded_by for note in facts.values()} - {"", *facts, *summaries}
        for note in (await self._ledger.facts(scope, sorted(above))).values():
            if not facts.keys().isdisjoint(_events_of(note)):
                summaries[note.id] = note
        return Selected(tuple(facts.values()), selected.held, tuple(summaries.values()))

    async def _forget_waiting(self, scope: str, wanted: Wanted, places: Counter[str]) -> None:
        """Has what nobody has decided about never become a fact."""
        if wanted.producer or wanted.all:
            await self._suppress_all_of(scope, wanted)
        jobs = await self._waiting.meant(scope, wanted)
        found = (candidate_in(job.body) for job in jobs)
        # Before they go, so that a call that was cut off finds them again.
        places.update(await self._removal.overwrite_said([candidate for candidate in found if candidate is not None]))
        await self._waiting.drop(scope, jobs)
        if not jobs and wanted.owner:
            # What extractions and decisions have read may stand in the queue's file, even if nothing came of it.
            await self.sweep(scope)
        places["queue"] += len(jobs)

    async def _forget_in(
        self, scope: str, wanted: Wanted, selected: Selected
    ) -> tuple[list[str], Counter[str], tuple[str, ...]]:
        places: Counter[str] = Counter()
        gone: list[Forgotten] = []
        victims: defaultdict[str, list[str]] = defaultdict(list)
        spared: set[str] = set()
        if wanted.producer or selected.summaries:
            async for other in self._ledger.all_facts(scope):
                if other.superseded_by:
                    victims[other.superseded_by].append(other.id)
                if wanted.producer:
                    # Of what a poisoned source named, that is not its own which others rest on.
                    spared.update(source.reference for source in other.sources if not wanted.is_of(source))
        for note in selected.facts:
            if wanted.producer:
                whole = await self._roll_back(scope, note.id, wanted.is_of, victims[note.id], spared, places)
                if whole is not None and note.superseded_by:
                    victims[note.superseded_by] += victims[note.id]
            else:
                whole = await self._forget_fact(scope, note.id)
            gone += [] if whole is None else [whole]
        for note in selected.summaries:
            # Events that it stands for and that stay speak for themselves again.
            whole = await self._roll_back(scope, note.id, lambda _: True, victims[note.id], spared, places)
            gone += [] if whole is None else [whole]
        places["facts"] += len(gone)
        remaining: set[str] = set()
        for start in range(0, len(gone), SOURCES_MAX):
            counted, left = await self._removal.words(scope, gone[start : start + SOURCES_MAX])
            places.update(counted)
            remaining.update(left)
        places.update(await self._removal.held(scope, selected.held))
        return [one.fact_id for one in gone], places, tuple(sorted(remaining))

    async def _forget_fact(self, scope: str, fact_id: str) -> Forgotten | None:
        """Has the ledger forget a fact; None if it is gone already."""
        for _ in range(ATTEMPTS_MAX):
            note = (await self._ledger.facts(scope, (fact_id,))).get(fact_id)
            if note is None:
                return None
            page = await self._ledger.read(scope, places_of(note), accepted=True)
            if page.get(fact_key(fact_id), FactNote) != note:
                continue
            # Who names a fact, its owner or a query means what it says, whoever else has proposed that.
            mutations = forget(page, note, self._entropy(SECRET_BYTES), with_twins=True)
            if await self._ledger.commit(scope, page.view, map(page.check, page.entries), mutations) is not None:
                return _gone(mutations, fact_id)
        raise contended(scope)

    async def _suppress_all_of(self, scope: str, wanted: Wanted) -> None:
        """Has what a producer or an owner submitted before now, and nobody has decided about, never become a fact."""

        def decide(page: Page) -> list[Mutation]:
            secret = page.get(SECRET, bytes) or self._entropy(SECRET_BYTES)
            key = producer_key(secret, wanted.producer) if wanted.producer else owner_key(secret, wanted.owner)
            return [put(SECRET, secret), put(key, Suppression(page.view.now_ms))]

        await self._ledger.change(scope, (SECRET,), decide)

    async def _roll_back(
        self,
        scope: str,
        fact_id: str,
        is_of: Callable[[SourceNote], bool],
        superseded: Sequence[str],
        spared: Collection[str],
        places: Counter[str],
    ) -> Forgotten | None:
        """Takes back what some sources said for a fact; returns what is gone if nobody else said it.

        Args:
            scope: where.
            fact_id: the fact.
            is_of: which sources.
            superseded: the facts that it had superseded.
            spared: references that stay as they are, and may teach again.
            places: counts what is done.
        """
        for _ in range(ATTEMPTS_MAX):
            note = (await self._ledger.facts(scope, (fact_id,))).get(fact_id)
            if note is None or not any(map(is_of, note.sources)):
                return None
            whole = rests_on(note, is_of)
            keys = (*places_of(note), *map(fact_key, superseded if whole else ()))
            page = await self._ledger.read(scope, keys, accepted=True)
            if page.get(fact_key(fact_id), FactNote) != note:
                continue
            found = [page.get(fact_key(id), FactNote) for id in superseded] if whole else []
            victims = [one for one in found if one is not None and one.superseded_by == fact_id]
            contents: list[FactContent] = []
            if whole:
                # What others said for it, though it was not enough, stays theirs.
                taken = msgspec.structs.replace(note, sources=tuple(filter(is_of, note.sources)))
                secret = page.get(SECRET, bytes) or self._entropy(SECRET_BYTES)
                mutations = _sparing(forget(page, taken, secret), secret, taken, spared)
                mutations += await self._revive(scope, page, note, victims, contents)
            else:
                mutations = await self._withdraw(scope, page, note, is_of, spared, contents)
            if contents:
                await self._store.write(contents)
                mutations.append(news([content.fact_id for content in contents], page.view.now_ms))
            # Of two changes of a record the later one was made from the earlier.
            mutations = list({mutation.key: mutation for mutation in mutations}.values())
            if await self._ledger.commit(scope, page.view, map(page.check, page.entries), mutations) is not None:
                if not whole:
                    places["sources"] += sum(map(is_of, note.sources))
                    return None
                places["revived"] += len(victims)
                return _gone(mutations, fact_id)
        raise contended(scope)

    async def _withdraw(
        self,
        scope: str,
        page: Page,
        note: FactNote,
        is_of: Callable[[SourceNote], bool],
        spared: Collection[str],
        contents: list[FactContent],
    ) -> list[Mutation]:
        left = withdraw(note, is_of)
        if left.trust != note.trust:
            (content,) = await self._store.read((content_key(scope, note.id, note.newest),))
            if content is not None:
                newest = note.newest
                left, content = rewritten(
                    left,
                    content,
                    page.view.now_ms,
                    valid_to_ms=newest.valid_to_ms,
                    recorded_ms=newest.recorded_ms,
                    replaces=True,
                )
                contents.append(content)
        secret = page.get(SECRET, bytes) or self._entropy(SECRET_BYTES)
        found = [put(SECRET, secret), put(fact_key(note.id), left)]
        for source in filter(is_of, note.sources):
            if source.reference not in spared:
                found.append(put(evidence_key(secret, note.owner, source.reference), Suppression(page.view.now_ms)))
        return found

    async def _revive(
        self, scope: str, page: Page, note: FactNote, victims: Sequence[FactNote], contents: list[FactContent]
    ) -> list[Mutation]:
        """Puts back what a rolled-back fact superseded; if that was superseded itself, by what came after."""
        found: list[Mutation] = []
        slot = [id for id in (page.get(SLOTS + note.slot, list) or []) if id != note.id] if note.slot else []
        for victim in victims:
            if note.state is not FactState.CURRENT:
                found.append(
                    put(fact_key(victim.id), msgspec.structs.replace(victim, superseded_by=note.superseded_by))
                )
                continue
            (content,) = await self._store.read((content_key(scope, victim.id, victim.newest),))
            if content is None:
                continue
            now_ms = page.view.now_ms
            again, text = rewritten(
                revived(victim), content, now_ms, valid_to_ms=NEVER_MS, recorded_ms=now_ms, replaces=False
            )
            contents.append(text)
            found.append(put(fact_key(victim.id), again))
            slot.append(victim.id)
        if note.slot and slot:
            found.append(put(SLOTS + note.slot, slot))
        return found


def _sparing(mutations: Sequence[Mutation], secret: bytes, note: FactNote, spared: Collection[str]) -> list[Mutation]:
    """Returns what forgets a fact, without suppressing some references, and without having them overwritten."""
    references = [source.reference for source in note.sources if source.reference in spared]
    if not references:
        return list(mutations)
    kept = {evidence_key(secret, note.owner, reference) for reference in references}
    gone = _gone(mutations, note.id)
    left = tuple(reference for reference in gone.references if reference not in spared)
    changed = put(forgotten_key(note.id), msgspec.structs.replace(gone, references=left))
    return [*(one for one in mutations if one.key not in kept and one.key != changed.key), changed]


def _events_of(note: FactNote) -> tuple[str, ...]:
    """Returns the ids of the events that a fact sums up; none of one that is no summary."""
    sources = (source.reference for source in note.sources)
    return tuple(name.removeprefix(FACT_REFERENCE) for name in sources if name.startswith(FACT_REFERENCE))


def _request_key(call: Call) -> str:
    """Returns where it is noted what a request was answered; empty if it has no id."""
    named = request_digest(call, "forget")
    return REQUESTS + named if named else ""


def _gone(mutations: Sequence[Mutation], fact_id: str) -> Forgotten:
    key = forgotten_key(fact_id)
    data = next(mutation.data for mutation in mutations if mutation.key == key)
    assert data is not None, "it was just written"
    return msgspec.json.decode(data, type=Forgotten)
