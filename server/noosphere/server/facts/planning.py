"""Finds what upkeep has to do in a scope, each change with what carries it out in one commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ..ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from ..ports.runtime import Clock
from ..ports.store import Mutation
from .contents import content_key
from .fresh import Fresh
from .ledger import KEYS, FactNote, Ledger, Page, digest, fact_key, put
from .likeness import Likeness
from .near import KnownClaims, Probe, find_near
from .policies import Policies
from .slots import predicate_form
from .sources import CONFIDENCE_MAX, distinct, joined
from .types import FactState, MemoryType, Policy
from .unlearning import leave, places_of

DECAY_MIN = 0.01
"""A smaller change of confidence is not worth a commit."""

COMPRESS_AGE_MS = 30 * 24 * 3600 * 1000
"""Events of a session that are older than this become one summary."""

COMPRESS_MIN = 8
"""With fewer events a summary saves nothing."""

COMPRESS_MAX = 64
"""Most events that one summary stands for."""

COMPARED_MAX = 1_000
"""Most new facts of one round that are compared with the others, the oldest; the rest waits for the next."""

STEPS_MAX = 10_000
"""Most facts of one round that end or decay; the others do so in the next."""

_MESSAGE = "msg:"


class Change(NamedTuple):
    """One change: of which fact, what (``decay``, ``merge``, ``expire``, ``compress``, ``sweep``), and why."""

    fact_id: str
    action: str
    explanation: str


class Step(Protocol):
    """Changes that happen together or not at all."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is changed."""
        ...

    async def carry_out(self) -> bool:
        """Makes the changes; returns False if they are no longer right."""
        ...


class Plan(NamedTuple):
    """What is to be done in a scope.

    Attributes:
        steps: what changes.
        looked_at: how many facts were looked at.
        fresh: whether any is new since the last round.
        compared_ms: store time before which everything has been compared once the steps are done.
    """

    steps: tuple[Step, ...]
    looked_at: int
    fresh: bool
    compared_ms: int


class Compressor(Protocol):
    """Makes one summary of several events."""

    def step(self, scope: str, session: str, notes: Sequence[FactNote]) -> Step:
        """Returns the step that replaces them by their summary."""
        ...


class Planner:
    """Looks at the facts of a scope.

    Args:
        ledger: where decisions stand.
        store: where words stand.
        policies: the rules of scopes.
        claims: what known facts claim.
        compressor: makes summaries of events.
        clock: paces.
        dropped: told of contents that are gone.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        policies: Policies,
        claims: KnownClaims,
        compressor: Compressor,
        *,
        clock: Clock,
        dropped: Callable[[Sequence[FactKey]], None],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._policies = policies
        self._claims = claims
        self._fresh = Fresh(ledger, store)
        self._compressor = compressor
        self._clock = clock
        self._dropped = dropped

    async def plan(self, scope: str, *, since_ms: int) -> Plan:
        """Plans a round.

        Args:
            scope: where.
            since_ms: store time before which everything has been compared already.
        """
        policy = await self._policies.get(scope)
        # What the store does not find yet is compared again later.
        found_ms = min(self._ledger.now_ms, await self._fresh.watermark_ms())
        half_lives = {digest(predicate_form(name)): span_ms for name, span_ms in policy.half_life_ms.items()}
        now_ms = self._ledger.now_ms
        steps: list[Step] = []
        fresh: list[FactNote] = []
        events: defaultdict[tuple[str, str], list[FactNote]] = defaultdict(list)
        looked_at = 0
        async for note in self._ledger.all_facts(scope):
            looked_at += 1
            if looked_at % BATCH_MAX == 0:
                await self._clock.sleep(0)
            if note.expires_at_ms <= now_ms:
                if len(steps) < STEPS_MAX:
                    steps.append(_Expiry(self._ledger, self._store, self._dropped, scope, note))
                continue
            if note.state is not FactState.CURRENT:
                continue
            decayed = _decayed(note, half_lives.get(note.predicate), now_ms)
            if decayed is not None and len(steps) < STEPS_MAX:
                steps.append(_Decay(self._ledger, scope, note, decayed))
            elif note.memory_type is MemoryType.EPISODIC and note.newest.recorded_ms <= now_ms - COMPRESS_AGE_MS:
                session = "" if note.pinned else _session_of(note)
                if session and len(alike := events[note.owner, session]) < COMPRESS_MAX:
                    alike.append(note)
            elif note.newest.recorded_ms >= since_ms:
                fresh.append(note)
                if len(fresh) > 2 * COMPARED_MAX:
                    fresh = _oldest(fresh)
        for (_, session), notes in events.items():
            if len(notes) >= COMPRESS_MIN:
                steps.append(self._compressor.step(scope, session, notes))
        fresh = _oldest(fresh)
        steps += await self._duplicates(scope, policy, fresh[:COMPARED_MAX], now_ms)
        # Where one millisecond had more than are compared at once, what is left of them is passed over.
        compared_ms = max(since_ms + 1, fresh[-1].newest.recorded_ms) if len(fresh) > COMPARED_MAX else found_ms
        return Plan(tuple(steps), looked_at, bool(fresh), compared_ms)

    async def _duplicates(self, scope: str, policy: Policy, fresh: Sequence[FactNote], now_ms: int) -> list[Step]:
        """Finds new facts that say what an older one says; those that came at the same moment were not compared."""
        steps: list[Step] = []
        taken: set[str] = set()
        for start in range(0, len(fresh), BATCH_MAX):
            part = fresh[start : start + BATCH_MAX]
            contents = await self._store.read([content_key(scope, note.id, note.newest) for note in part])
            for note, content in zip(part, contents, strict=True):
                if content is None or note.id in taken:
                    continue
                older = await self._older_like(scope, policy, note, content, now_ms)
                if older is not None and older.id not in taken:
                    steps.append(_Merge(self._ledger, self._store, self._dropped, scope, older, note))
                    taken |= {older.id, note.id}
                await self._clock.sleep(0)
        return steps

    async def _older_like(
        self, scope: str, policy: Policy, note: FactNote, content: FactContent, now_ms: int
    ) -> FactNote | None:
        claim = self._claims.of(content, policy)
        probe = Probe(scope, note.owner, claim.text, claim, content.vector)
        ids = [
            near.fact_id
            for near in await find_near(self._store, self._fresh, self._claims, probe, policy, now_ms)
            if near.likeness is Likeness.SAME and near.fact_id != note.id
        ]
        known = await self._ledger.facts(scope, ids)
        older = [
            other
            for other in known.values()
            if other.state is FactState.CURRENT and _age(other) < _age(note) and other.expires_at_ms > now_ms
        ]
        return min(older, key=_age, default=None)


class _Expiry:
    """Removes a fact that has ended, with its words."""

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        dropped: Callable[[Sequence[FactKey]], None],
        scope: str,
        note: FactNote,
    ) -> None:
        self._ledger, self._store, self._dropped, self._scope, self._note = ledger, store, dropped, scope, note

    @property
    def changes(self) -> tuple[Change, ...]:
        """The one fact."""
        return (Change(self._note.id, "expire", "Its time has come."),)

    async def carry_out(self) -> bool:
        """Removes it."""
        note = self._note
        if not await unchanged(self._ledger, self._scope, (note,), lambda page: leave(page, note)):
            return False
        self._dropped(await drop(self._store, self._scope, note))
        return True


class _Decay:
    """Makes a fact less sure."""

    def __init__(self, ledger: Ledger, scope: str, note: FactNote, decayed: FactNote) -> None:
        self._ledger, self._scope, self._note, self._decayed = ledger, scope, note, decayed

    @property
    def changes(self) -> tuple[Change, ...]:
        """The one fact."""
        before, after = self._note.confidence, self._decayed.confidence
        return (Change(self._note.id, "decay", f"What its predicate says changes: {before:.2f} becomes {after:.2f}."),)

    async def carry_out(self) -> bool:
        """Writes it."""
        decayed = self._decayed
        return await unchanged(
            self._ledger, self._scope, (self._note,), lambda _: (put(fact_key(decayed.id), decayed),)
        )


class _Merge:
    """Makes one fact of two that say the same: the older one stays, with the evidence of both."""

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        dropped: Callable[[Sequence[FactKey]], None],
        scope: str,
        older: FactNote,
        newer: FactNote,
    ) -> None:
        self._ledger, self._store, self._dropped, self._scope = ledger, store, dropped, scope
        self._older, self._newer = older, newer

    @property
    def changes(self) -> tuple[Change, ...]:
        """The one that goes."""
        return (Change(self._newer.id, "merge", f"It says what {self._older.id} says."),)

    async def carry_out(self) -> bool:
        """Merges them."""
        older, newer = self._older, self._newer
        fresh = distinct(older.sources, newer.sources)
        surer = min(CONFIDENCE_MAX, 1 - (1 - older.confidence) * (1 - newer.confidence))
        merged = msgspec.structs.replace(
            older,
            versions=(
                *older.versions[:-1],
                msgspec.structs.replace(older.newest, number=older.newest.number + 1),
            ),
            sources=joined(older.sources, newer.sources),
            source_count=older.source_count + len(fresh),
            confidence=max(older.confidence, surer) if fresh else older.confidence,
            importance=max(older.importance, newer.importance),
        )

        def decide(page: Page) -> Iterable[Mutation]:
            # Whoever says the newer one again adds to the older.
            return (*leave(page, newer), put(fact_key(older.id), merged), put(KEYS + newer.key, older.id))

        if not await unchanged(self._ledger, self._scope, (older, newer), decide):
            return False
        self._dropped(await drop(self._store, self._scope, newer))
        return True


async def unchanged(
    ledger: Ledger, scope: str, notes: Sequence[FactNote], decide: Callable[[Page], Iterable[Mutation]]
) -> bool:
    """Commits a change of facts if they are as they were planned for; returns whether they were.

    Args:
        ledger: where they stand.
        scope: whose ledger.
        notes: the facts.
        decide: returns what to write; of two mutations of a record the later one counts.
    """
    page = await ledger.read(scope, [key for note in notes for key in places_of(note)], accepted=True)
    if any(page.get(fact_key(note.id), FactNote) != note for note in notes):
        return False
    mutations: Mapping[str, Mutation] = {mutation.key: mutation for mutation in decide(page)}
    checks = map(page.check, page.entries)
    return await ledger.commit(scope, page.view, checks, list(mutations.values())) is not None


async def drop(store: FactStore, scope: str, note: FactNote) -> list[FactKey]:
    """Removes all words of a fact that is gone; returns what named them."""
    keys = [content_key(scope, note.id, version) for version in note.versions]
    await store.remove(keys)
    return keys


def _decayed(note: FactNote, half_life_ms: int | None, now_ms: int) -> FactNote | None:
    """Returns a fact as sure as it is now, None if that makes no difference."""
    if half_life_ms is None:
        return None
    confidence = note.confidence * 0.5 ** (max(0, now_ms - note.decayed_ms) / half_life_ms)
    if note.confidence - confidence < DECAY_MIN:
        return None
    return msgspec.structs.replace(note, confidence=confidence, decayed_ms=now_ms)


def _session_of(note: FactNote) -> str:
    """Returns the session that an event is from; empty if that is not known."""
    for source in note.sources:
        if source.reference.startswith(_MESSAGE):
            return source.reference.removeprefix(_MESSAGE).partition("/")[0]
    return ""


def _oldest(notes: Sequence[FactNote]) -> list[FactNote]:
    """Returns those of some facts that are compared first, and the next one."""
    return sorted(notes, key=lambda note: note.newest.recorded_ms)[: COMPARED_MAX + 1]


def _age(note: FactNote) -> tuple[int, str]:
    return note.versions[0].recorded_ms, note.id
