"""What became of candidates: read, listed, waited for, watched, and reviewed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Refusal, invalid

from ..memory.access import OPERATOR_PREFIX
from ..memory.admission import require_writer
from ..memory.core import Core
from ..memory.reads import check_page_size
from ..memory.signals import Following, HeadSignals
from ..memory.types import Call
from ..ports.factqueue import FactQueue
from ..ports.factstore import NO_STORE, FactContent, FactKey, FactStore
from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.store import Mutation
from .awaited import POLL_SECONDS, WAIT_SECONDS_MAX, Awaited
from .candidate_jobs import decode_waiting, waiting_decision
from .contents import content_key, decode_body, decode_candidate, held_key, read_all
from .intake import Intake
from .ledger import (
    CANDIDATE_RETENTION_MS,
    DECISIONS,
    CandidateNote,
    FactNote,
    Ledger,
    Page,
    candidate_key,
    fact_key,
    put,
)
from .scopes import IdKind, check_scope, operates, require_read, require_write, scope_of
from .trust import USER_TRUST
from .types import Candidate, Decision, MemoryType, Status, Why

SCAN_PAGE = 256
SCANNED_MAX = 4_096
"""Most decisions that one page of a list looks at; a page may be short, and the next goes on from there."""


class Known(NamedTuple):
    """A candidate, as far as its words are still there, and what became of it."""

    candidate: Candidate
    decision: Decision


class KnownPage(NamedTuple):
    """Some candidates, the newest first; ``following`` is where the next page begins, None after the last one."""

    known: tuple[Known, ...]
    following: str | None


class Decided(NamedTuple):
    """A message of a watch: a decision, or None, and after which position to continue."""

    decision: Decision | None
    position: str


class Decisions:
    """Tells what became of candidates.

    Args:
        core: admits callers.
        ledger: where decisions stand.
        queue: where candidates wait.
        store: where words are.
        intake: takes candidates that a review has accepted.
        signals: tells when the process shuts down.
        clock: the source of time.
        waits_for: tells in words why nothing can be decided at present; empty if nothing is known to stand in the way.
    """

    def __init__(
        self,
        core: Core,
        ledger: Ledger,
        queue: FactQueue,
        store: FactStore,
        intake: Intake,
        signals: HeadSignals,
        clock: Clock,
        waits_for: Callable[[], str] = lambda: "",
    ) -> None:
        self._waits_for = waits_for
        self._core = core
        self._ledger = ledger
        self._queue = queue
        self._store = store
        self._intake = intake
        self._signals = signals
        self._clock = clock
        self._awaited: Awaited[Decision] = Awaited()
        self._nobody_decides = store.engine == NO_STORE

    def decided(self, decision: Decision) -> None:
        """Wakes whoever waits for a decision."""
        self._awaited.tell(decision.candidate_id, decision)

    async def wait(self, scope: str, ids: Sequence[str], seconds_max: float = WAIT_SECONDS_MAX) -> tuple[Decision, ...]:
        """Returns decisions about candidates, in order; what is not decided in time is reported as queued.

        Where there is no fact store nothing is decided, and so nothing is waited for.

        Args:
            scope: of all of them.
            ids: which candidates.
            seconds_max: how long to wait, at most 30 s.
        """
        futures = {id: self._awaited.future(id) for id in ids}
        until_ms = self._clock.monotonic_ms() + min(seconds_max, WAIT_SECONDS_MAX) * 1000
        while True:
            notes = await self._notes(scope, [id for id, future in futures.items() if not future.done()])
            for id, note in notes.items():
                self._awaited.tell(id, note.decision)
            left = next((future for future in futures.values() if not future.done()), None)
            seconds = (until_ms - self._clock.monotonic_ms()) / 1000
            if left is None or seconds <= 0 or self._nobody_decides or self._signals.draining:
                break
            await self._clock.wait(left, min(POLL_SECONDS, seconds))
        return tuple(futures[id].result() if futures[id].done() else self._waiting(id) for id in ids)

    async def get(self, call: Call, candidate_id: str) -> Known:
        """Returns a candidate and what became of it.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, ENTRY_NOT_FOUND, ACKED_WRITES_LOST.
        """
        scope = self._admit(call, scope_of(candidate_id, IdKind.CANDIDATE))
        notes = await self._notes(scope, (candidate_id,))
        if candidate_id in notes:
            return (await self._known(scope, [notes[candidate_id]]))[0]
        (waiting,) = await self._queue.find((candidate_id,))
        if waiting is None:
            # It may have been decided between the two looks.
            notes = await self._notes(scope, (candidate_id,))
            if candidate_id in notes:
                return (await self._known(scope, [notes[candidate_id]]))[0]
            await self._ledger.check_presented(call, scope)
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"there is no candidate {candidate_id!r}, or it was decided long ago")
        return Known(decode_candidate(bytes(decode_waiting(waiting.job.body).candidate)), self._waiting(candidate_id))

    async def known(self, scope: str, ids: Sequence[str]) -> tuple[Known, ...]:
        """Returns decided candidates that are still remembered, in the order asked for."""
        notes = await self._notes(scope, ids)
        return await self._known(scope, [notes[id] for id in ids if id in notes])

    async def list(
        self, call: Call, scope: str, *, statuses: Collection[Status], page_size: int, after: str
    ) -> KnownPage:
        """Lists decided candidates of a scope, the newest first.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED.
        """
        check_scope(scope)
        self._admit(call, scope)
        size = check_page_size(page_size)
        found: list[CandidateNote] = []
        bound: str | None = after or None
        looked_at = 0
        while True:
            page = await self._ledger.scan(scope, DECISIONS, after=bound, limit=SCAN_PAGE, reverse=True)
            ids = [msgspec.json.decode(entry.data, type=str) for entry in page.entries]
            notes = await self._notes(scope, ids)
            for entry, id in zip(page.entries, ids, strict=True):
                bound = entry.key
                looked_at += 1
                note = notes.get(id)
                if note is not None and (not statuses or note.decision.status in statuses) and note not in found:
                    found.append(note)
                if len(found) >= size:
                    return KnownPage(await self._known(scope, found), bound)
            if not page.more:
                return KnownPage(await self._known(scope, found), None)
            if looked_at >= SCANNED_MAX:
                return KnownPage(await self._known(scope, found), bound)

    async def watch(self, call: Call, scope: str, after: str | None) -> AsyncGenerator[Decided, None]:
        """Streams decisions as they are made, from now on or after a position.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, DRAINING.
        """
        check_scope(scope)
        self._admit(call, scope, Verb.WATCH)
        if after is None:
            newest = await self._ledger.scan(scope, DECISIONS, limit=1, reverse=True)
            after = newest.entries[0].key if newest.entries else DECISIONS
            yield Decided(None, after)
        async with Following(self._core.store) as following:
            while not self._signals.draining:
                ref = await self._ledger.locate(scope)
                await following.to(ref)
                moved = self._signals.next_move(ref.storage_id)
                page = await self._ledger.scan(scope, DECISIONS, after=after, limit=SCAN_PAGE)
                ids = [msgspec.json.decode(entry.data, type=str) for entry in page.entries]
                notes = await self._notes(scope, ids)
                for entry, id in zip(page.entries, ids, strict=True):
                    after = entry.key
                    note = notes.get(id)
                    yield Decided(None if note is None else note.decision, after)
                if not page.entries:
                    await self._clock.wait(moved, POLL_SECONDS)
        raise Refusal(Reason.DRAINING, "the server is shutting down; watch again, after the last position")

    async def review(self, call: Call, candidate_id: str, *, accept: bool) -> Decision:
        """Decides about a candidate that was kept apart; the operator's to do, since it makes it trusted.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, ENTRY_NOT_FOUND.
        """
        require_writer(call)
        agent = call.agent_id
        scope = scope_of(candidate_id, IdKind.CANDIDATE)
        if not operates(call, Verb.WRITE):
            raise Refusal(Reason.PERMISSION_DENIED, f"reviewing is for the operator ({OPERATOR_PREFIX}…)")
        known = await self.get(call, candidate_id)
        require_write(self._core, call, scope, known.candidate.owner)
        _check_refused(known.decision)
        if not accept:
            return await self._turn_down(scope, candidate_id, agent)
        if not known.candidate.text:
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"the words of {candidate_id!r} are no longer kept")
        accepted = msgspec.structs.replace(
            known.candidate, reviewed_by=agent, trust=max(known.candidate.trust, USER_TRUST)
        )
        (waiting,) = await self._queue.find((candidate_id,))
        if waiting is not None and not waiting.dead:
            # Decided about, and the queue is still to be told. Removing rewrites the queue's file, so only then.
            await self._queue.remove(ids=(candidate_id,))
        # From before it is queued on, so that no decision passes unheard.
        future = self._awaited.future(candidate_id)
        await self._intake.enqueue((accepted,), reopens_ms=known.decision.decided_ms)
        return await self._reconsidered(scope, known.decision, future)

    async def _reconsidered(self, scope: str, before: Decision, decided: asyncio.Future[Decision]) -> Decision:
        """Returns what became of a candidate that is decided about anew."""
        candidate_id = before.candidate_id
        until_ms = self._clock.monotonic_ms() + WAIT_SECONDS_MAX * 1000
        while not decided.done():
            note = (await self._notes(scope, (candidate_id,))).get(candidate_id)
            if note is not None and note.decision != before:
                # Another process was it.
                return note.decision
            if self._clock.monotonic_ms() >= until_ms or self._signals.draining:
                return self._waiting(candidate_id)
            await self._clock.wait(decided, POLL_SECONDS)
        return decided.result()

    async def _turn_down(self, scope: str, candidate_id: str, agent: str) -> Decision:
        """Makes a refusal final, and its words go."""
        key = candidate_key(candidate_id)
        made: list[tuple[CandidateNote, CandidateNote]] = []

        def decide(page: Page) -> tuple[Mutation, ...]:
            note = page.get(key, CandidateNote)
            if note is None:
                raise Refusal(Reason.ENTRY_NOT_FOUND, f"there is no candidate {candidate_id!r}")
            # Another review may have accepted it meanwhile.
            _check_refused(note.decision)
            now_ms = page.view.now_ms
            reasons = (*note.decision.reasons, Why("review", "turned_down", f"{agent} has turned it down."))
            decision = msgspec.structs.replace(
                note.decision, status=Status.REJECTED, reasons=reasons, decided_ms=now_ms
            )
            changed = msgspec.structs.replace(note, decision=decision, content=0)
            made[:] = [(note, changed)]
            until_ms = now_ms + CANDIDATE_RETENTION_MS
            return (
                put(key, changed, until_ms=until_ms),
                put(DECISIONS, candidate_id, until_ms=until_ms, rev_slot=True),
            )

        await self._ledger.change(scope, (key,), decide)
        ((before, after),) = made
        if before.content:
            await self._store.remove((held_key(scope, candidate_id, before.content),))
        self.decided(after.decision)
        return after.decision

    def _waiting(self, candidate_id: str) -> Decision:
        return waiting_decision(candidate_id, nobody_decides=self._nobody_decides, away=self._waits_for())

    def _admit(self, call: Call, scope: str, verb: Verb = Verb.READ) -> str:
        require_read(self._core, call, scope, verb)
        self._core.require_current(call)
        return scope

    async def _notes(self, scope: str, ids: Sequence[str]) -> dict[str, CandidateNote]:
        if not ids:
            return {}
        page = await self._ledger.read(scope, map(candidate_key, ids))
        notes = ((id, page.get(candidate_key(id), CandidateNote)) for id in ids)
        return {id: note for id, note in notes if note is not None}

    async def _known(self, scope: str, notes: Sequence[CandidateNote]) -> tuple[Known, ...]:
        """Puts words to notes, where there still are any."""
        held = {
            note.decision.candidate_id: held_key(scope, note.decision.candidate_id, note.content)
            for note in notes
            if note.content
        }
        facts = await self._ledger.read(
            scope, [fact_key(note.decision.fact_id) for note in notes if note.decision.fact_id and not note.content]
        )
        for note in notes:
            if note.decision.fact_id and not note.content:
                fact = facts.get(fact_key(note.decision.fact_id), FactNote)
                if fact is not None:
                    held[note.decision.candidate_id] = content_key(scope, fact.id, fact.newest)
        words = await self._words(held)
        known: list[Known] = []
        for note in notes:
            id = note.decision.candidate_id
            candidate = Candidate(
                id,
                scope,
                note.owner,
                "",
                actor=note.actor,
                producer=note.producer,
                trust=note.trust,
                submitted_ms=note.submitted_ms,
            )
            content = words.get(id)
            if content is not None and note.content:
                candidate = decode_candidate(content.body)
            elif content is not None:
                body = decode_body(content)
                candidate = msgspec.structs.replace(
                    candidate,
                    text=body.text,
                    subject=body.subject,
                    predicate=body.predicate,
                    object=body.object,
                    memory_type=MemoryType(content.memory_type),
                    evidence=body.evidence,
                    channel=body.channel,
                )
            known.append(Known(candidate, note.decision))
        return tuple(known)

    async def _words(self, keys: Mapping[str, FactKey]) -> dict[str, FactContent]:
        named = list(keys.items())
        contents = await read_all(self._store, [key for _, key in named])
        return {id: content for (id, _), content in zip(named, contents, strict=True) if content is not None}


def _check_refused(decision: Decision) -> None:
    """Checks that there is something to review.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if decision.status not in {Status.QUARANTINED, Status.REJECTED, Status.DEAD}:
        message = f"{decision.candidate_id!r} is {decision.status}; only what was refused can be reviewed"
        raise invalid("candidate_id", message)
