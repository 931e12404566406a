"""ContextService: assembles contexts, plans them, explains them, and hears what of them was used."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from noosphere.consistency import invalid

from ..memory.foreground import Foreground
from ..memory.types import Call
from ..ports.facts import FactRecall
from ..ports.models import Tokenizer, Tokenizers
from ..ports.runtime import Clock
from ..sessions.scribe import Scribe
from ..sessions.types import Item, Role
from ..text import distinct_terms
from .asked import Asked, check_asked
from .assemble import Planned, assemble, plan
from .book import ContextBook
from .budget import Budget, choose_budget
from .candidates import of_evidence, of_facts
from .draft import SUMMARY_MISSING
from .evidence import of_given
from .fence import Fence
from .gathering import Gathered, Gatherer, speakers
from .item_cache import ItemCache
from .manifests import Manifest, SectionTokens, limited
from .model_windows import window_of
from .observing import ContextObserver
from .reading import ITEM, fitted
from .recalling import Recaller, Wanted, drop
from .relevance import relevances
from .replies import ContextReply, PlanReply, UsageReply, shaped
from .request import Assembled, Assembly
from .types import Candidate, Entry, Fate, SectionKind
from .units import Readers
from .usage import ContextUsage
from .window import Limits

TOKENIZER_FALLBACK = "TOKENIZER_FALLBACK"
OVERLOAD = "OVERLOAD"
OVERLOAD_SHARE = 0.9
_QUERY_CHARS_MAX = 4_000
_INLINE_TOKENS_MAX = 60_000
_INLINE_UNITS_MAX = 200

T = TypeVar("T")


class _Basis(NamedTuple):
    """What is known before anything is retrieved."""

    asked: Asked
    author: str
    gathered: Gathered
    budget: Budget
    assembly: Assembly
    warnings: tuple[str, ...]
    refused: tuple[Entry, ...]

    def newest_words(self) -> str:
        """The newest user's message: what an input is about that the transcript holds."""
        users = self.assembly.readers.users
        spoken = (m for m in reversed(self.gathered.messages) if m.role is Role.USER and m.author in users)
        return next((message.text for message in spoken), "")


class ContextService:
    """Assembles contexts.

    Args:
        scribe: reads sessions.
        tokenizers: knows the vocabularies.
        facts: recalls long-term facts; None if there are none.
        clock: measures time limits.
        observers: hear of contexts and of the use of items.
        rng: makes ids.
        entropy: makes secrets of so many bytes.
        foreground: is told of contexts under way, which go before what nobody waits for.
        shared: whether other processes serve the same sessions.
    """

    def __init__(
        self,
        scribe: Scribe,
        *,
        tokenizers: Tokenizers,
        facts: FactRecall | None,
        clock: Clock,
        rng: random.Random,
        entropy: Callable[[int], bytes],
        observers: Sequence[ContextObserver] = (),
        foreground: Foreground | None = None,
        shared: bool = False,
    ) -> None:
        self._foreground = foreground or Foreground()
        self.book = ContextBook(scribe, clock, shared=shared)
        self._usage = ContextUsage(self.book, observers)
        self._gatherer = Gatherer(scribe, entropy)
        self._items = ItemCache()
        self._recaller = Recaller(facts, clock)
        self._tokenizers = tokenizers
        self._rng = rng
        self._newest = (0, 0)

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Begins to keep manifests; the caller cancels the tasks in the end."""
        return (asyncio.create_task(self.book.run(), name="context manifests"),)

    def forget(self, session_id: str) -> None:
        """Drops what is in memory of a session that is gone."""
        self.book.forget(session_id)
        self._items.forget(session_id)

    def forget_all(self) -> None:
        """Drops what is in memory of sessions and can be read or made again."""
        self.book.forget_all()
        self._items.forget_all()

    async def assemble(self, call: Call, asked: Asked) -> ContextReply:
        """Assembles a context for one model call.

        Args:
            call: who calls; the context is made for this agent.
            asked: what it should hold.

        Raises:
            Refusal: BUDGET_TOO_SMALL, INVALID_FIELD, VALUE_TOO_LARGE, SESSION_NOT_FOUND, or a reason that concerns the
                caller.
        """
        with self._foreground:
            return await self._assemble(call, asked)

    async def _assemble(self, call: Call, asked: Asked) -> ContextReply:
        given = asked.fact_query or asked.input
        embedding = self._recaller.embed(given[:_QUERY_CHARS_MAX], asked.fact_owners)
        try:
            basis = await self._basis(call, asked)
            query = (given or basis.newest_words())[:_QUERY_CHARS_MAX]
            if not given:
                embedding = self._recaller.embed(query, asked.fact_owners)
            planned = await _apart(basis.assembly, partial(plan, basis.assembly, _recalled(asked)))
            await asyncio.sleep(0)
            recipe, allowed = asked.recipe, planned.allowed
            wanted = Wanted(
                basis.author,
                asked.fact_owners,
                query,
                recipe.facts_max,
                allowed.get(SectionKind.PROFILE, 0),
                allowed.get(SectionKind.FACTS, 0),
            )
            recalled = await self._recaller.recall(wanted, embedding)
        finally:
            drop(embedding)
        now_ms = basis.gathered.now_ms
        admitted = partial(of_facts, trust_min=recipe.trust_min, count_max=recipe.facts_max, now_ms=now_ms)
        pinned, not_pinned = admitted(recalled.pinned, SectionKind.PROFILE)
        found, not_found = admitted(recalled.found, SectionKind.FACTS)
        tokens = call.tokens
        base = tokens.read_set if tokens is not None and tokens.record else None
        valued = fitted(basis.gathered.read, asked, base, await self._valued(basis, planned))
        data = dict(valued.data)
        known = {one.id for one in pinned}
        data[SectionKind.PROFILE] = (*data.get(SectionKind.PROFILE, ()), *pinned)
        data[SectionKind.FACTS] = tuple(one for one in found if one.id not in known)
        refused = (*not_pinned, *not_found, *basis.refused, *valued.refused)
        assembly = replace(basis.assembly, data=data, refused=refused)
        assembled = await _apart(assembly, partial(assemble, assembly, planned))
        await asyncio.sleep(0)
        shapes = shaped(assembled)
        manifest = self._manifest(basis, assembly, assembled, (*basis.warnings, *recalled.warnings))
        await self._usage.kept(manifest)
        read_set = valued.reading.read_set(_shown(basis.gathered.items, assembled.entries))
        return ContextReply(assembled, shapes, manifest, basis.gathered.read.head, read_set)

    async def plan(self, call: Call, asked: Asked) -> PlanReply:
        """Splits the budget and tells what each section may hold, so that evidence is fetched to size.

        Raises:
            Refusal: as for :meth:`assemble`.
        """
        basis = await self._basis(call, asked)
        unknown = _recalled(asked) if asked.evidence else _recalled(asked) | {SectionKind.EVIDENCE}
        split = await _apart(basis.assembly, partial(plan, basis.assembly, unknown))
        sections = tuple((rule.kind, split.allowed.get(rule.kind, 0)) for rule in asked.recipe.rules)
        return PlanReply(sections, basis.budget.tokens)

    async def explain(self, call: Call, session_id: str, context_id: str) -> Manifest:
        """Returns the manifest of a context; see :meth:`~.usage.ContextUsage.explain`."""
        return await self._usage.explain(call, session_id, context_id)

    async def report(
        self, call: Call, session_id: str, context_id: str, used: tuple[str, ...], reply: str
    ) -> UsageReply:
        """Notes what of a context was used; see :meth:`~.usage.ContextUsage.report`."""
        return await self._usage.report(call, session_id, context_id, used, reply)

    # -- parts

    async def _basis(self, call: Call, asked: Asked) -> _Basis:
        if call.incarnation is None:
            raise invalid("call.actor", "is required: a context is made for one agent")
        check_asked(asked)
        author = call.incarnation.agent_id
        gathered = await self._gatherer.gather(call, asked, author)
        tokenizer, warnings = self._tokenizer(asked, gathered)
        window = asked.window_tokens or window_of(asked.model)
        budget = choose_budget(asked.tokens, window, asked.reserve_output_tokens)
        settings = gathered.info.settings
        trusted = speakers(gathered.info, author)
        evidence, refused = of_given(asked.evidence, stays_at=gathered.read.head if asked.evidence_stays else 0)
        assembly = Assembly(
            budget_tokens=budget.tokens,
            tokenizer=tokenizer,
            fence=Fence(gathered.secret, asked.session_id),
            readers=Readers(author, trusted, trusted),
            recipe=asked.recipe,
            system=asked.system,
            instructions=gathered.instructions,
            given=asked.input,
            messages=gathered.messages,
            more_before=gathered.more_before,
            limits=Limits(settings.window_turns, settings.window_steps),
            coverages=gathered.coverages,
            data=self._data(gathered.items, evidence, asked),
            tools=asked.tools,
            notes=asked.notes,
            states=gathered.states,
        )
        warnings = (*budget.warnings, *warnings, *gathered.warnings)
        return _Basis(asked, author, gathered, budget, assembly, warnings, refused)

    def _tokenizer(self, asked: Asked, gathered: Gathered) -> tuple[Tokenizer, tuple[str, ...]]:
        if asked.tokenizer:
            return self._tokenizers.named(asked.tokenizer), ()
        if not asked.model:
            return self._tokenizers.named(gathered.info.settings.tokenizer), ()
        chosen = self._tokenizers.for_model(asked.model)
        return chosen.tokenizer, (TOKENIZER_FALLBACK,) if chosen.fallback else ()

    def _data(
        self, items: Sequence[Item], evidence: tuple[Candidate, ...], asked: Asked
    ) -> dict[SectionKind, tuple[Candidate, ...]]:
        data = self._items.candidates(asked.session_id, items, asked.recipe)
        if evidence:
            data[SectionKind.EVIDENCE] = evidence
        if asked.subagents:
            data[SectionKind.SUBAGENTS] = tuple(of_evidence(one, SectionKind.SUBAGENTS) for one in asked.subagents)
        return data

    async def _valued(self, basis: _Basis, planned: Planned) -> Mapping[SectionKind, tuple[Candidate, ...]]:
        """Returns the candidates, with their relevance to the question where not all of them have room."""
        data = dict(basis.assembly.data)
        short = [kind for kind, candidates in data.items() if candidates and planned.is_short(kind)]
        if not short:
            return data
        question = distinct_terms((basis.asked.input or basis.newest_words())[:_QUERY_CHARS_MAX])
        for kind in short:
            words = await self._items.terms(basis.asked.session_id, data[kind])
            chances = relevances(question, words)
            data[kind] = tuple(one.weighed(chance) for one, chance in zip(data[kind], chances, strict=True))
        return data

    def _manifest(self, basis: _Basis, assembly: Assembly, assembled: Assembled, warnings: tuple[str, ...]) -> Manifest:
        gathered, asked = basis.gathered, basis.asked
        overload = (OVERLOAD,) if assembled.tokens_used > OVERLOAD_SHARE * assembled.tokens_max else ()
        manifest = Manifest(
            context_id=self._context_id(gathered.now_ms),
            session_id=asked.session_id,
            created_ms=gathered.now_ms,
            author=basis.author,
            turn=gathered.turn,
            recipe=asked.recipe.name,
            tokenizer=assembly.tokenizer.name,
            exact=assembly.tokenizer.exact,
            tokens_max=assembled.tokens_max,
            tokens_used=assembled.tokens_used,
            sections=tuple(SectionTokens(one.kind, one.tokens_used, one.tokens_max) for one in assembled.sections),
            entries=limited(assembled.entries),
            warnings=tuple(dict.fromkeys((*warnings, *assembled.warnings, *overload))),
            revision=gathered.read.head,
        )
        self._usage.note(manifest, _texts(assembly, assembled.entries))
        if SUMMARY_MISSING in assembled.warnings:
            self._usage.missing(asked.session_id)
        return manifest

    def _context_id(self, now_ms: int) -> str:
        """Returns an id that is greater than those before, and nobody else's."""
        newest_ms, count = self._newest
        self._newest = (now_ms, 0) if now_ms > newest_ms else (newest_ms, count + 1)
        return f"{self._newest[0]:011x}{self._newest[1]:04x}{self._rng.getrandbits(24):06x}"


async def _apart(assembly: Assembly, work: Callable[[], T]) -> T:
    """Does a part of the work at once; in a thread, if it would hold up the event loop."""
    units = sum(message.role is not Role.TOOL for message in assembly.messages)
    chars = len(assembly.system) + len(assembly.given)
    chars += sum(len(one.text) for many in assembly.data.values() for one in many)
    tokens = chars // 4 + sum(message.tokens for message in assembly.messages)
    if tokens <= _INLINE_TOKENS_MAX and units <= _INLINE_UNITS_MAX:
        return work()
    return await asyncio.to_thread(work)


def _recalled(asked: Asked) -> frozenset[SectionKind]:
    """The sections of which is not known yet what they have to show."""
    return frozenset({SectionKind.FACTS, SectionKind.PROFILE}) if asked.fact_owners else frozenset()


def _shown(items: Sequence[Item], entries: Sequence[Entry]) -> list[Item]:
    inside = {entry.id for entry in entries if entry.fate is not Fate.DROPPED}
    return [item for item in items if ITEM + item.key in inside]


def _texts(assembly: Assembly, entries: Sequence[Entry]) -> dict[str, str]:
    inside = {entry.id for entry in entries if entry.fate is not Fate.DROPPED}
    return {one.id: one.text for many in assembly.data.values() for one in many if one.id in inside}
