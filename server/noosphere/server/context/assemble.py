"""Assembly: a pure function from what is known to what one model call gets to see.

Order of the messages, from stable to volatile: the system message; blocks of data before the transcript; a note of
what is missing; the window up to the current input; blocks of data after the transcript; the input; the steps that it
led to, each after what came from aside while it was the newest. The last message is the input or the newest result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import LimitInfo, Refusal

from ..sessions.types import Message, Role
from .blocks import Chosen, write_block
from .budget import Split, too_small
from .candidates import of_summary
from .counting import REPLY_TOKENS
from .current import Step
from .outline import Outline, note_of_gap
from .packing import Choice, pack
from .rendering import Rendered, distinct_ids, size_of
from .request import Assembled, Assembly, Coverage, SectionUse
from .shapes import Tool
from .types import TRUST_OUTSIDE, TRUST_OWN, TRUST_USER, WHY, Candidate, Entry, Fate, SectionKind, Variant
from .units import Unit, UnitKind, is_gone
from .window import Room, choose

_ATTEMPTS_MAX = 4
_SLACK_TOKENS = 8

SUMMARY_MISSING = "SUMMARY_MISSING"
"""Messages are left out that no summary stands for; a note says so in their place."""
TOOLS_DROPPED = "TOOLS_DROPPED"
"""Not all of the tools' schemas are in."""


class Planned(NamedTuple):
    """A split budget before anything is retrieved.

    Attributes:
        allowed: tokens that each section may take.
        wanted: tokens that it would take.
        outline: what is settled already.
    """

    allowed: Mapping[SectionKind, int]
    wanted: Mapping[SectionKind, int]
    outline: Outline

    def is_short(self, kind: SectionKind) -> bool:
        """Tells whether a section has more to show than it may."""
        return self.wanted.get(kind, 0) > self.allowed.get(kind, 0)


def plan(assembly: Assembly, unknown: frozenset[SectionKind]) -> Planned:
    """Splits the budget before anything is retrieved.

    Args:
        assembly: what is known so far.
        unknown: sections of which is not known yet how much they have to show.

    Raises:
        Refusal: INVALID_FIELD, BUDGET_TOO_SMALL.
    """
    outline = Outline(assembly, assembly.budget_tokens)
    summaries = [of_summary(coverage.summary) for coverage in assembly.coverages[:1]]
    return Planned(outline.split(summaries, unknown).allowed, outline.demand(summaries, unknown), outline)


def assemble(assembly: Assembly, planned: Planned | None = None) -> Assembled:
    """Assembles a context. The same values give the same bytes.

    Args:
        assembly: everything that is known.
        planned: the plan of an assembly that differs in its data only, which saves making it again.

    Raises:
        Refusal: INVALID_FIELD, if there is nothing to answer; BUDGET_TOO_SMALL.
    """
    slack = 0
    for _ in range(_ATTEMPTS_MAX):
        try:
            if planned is not None and not slack:
                outline = planned.outline.renewed(assembly)
            else:
                outline = Outline(assembly, assembly.budget_tokens - slack)
            assembled = _covered(outline)
        except Refusal as refusal:
            if slack and isinstance(refusal.detail, LimitInfo):
                # Say what the caller's budget lacks, not what is left of it here.
                raise too_small(refusal.detail.actual + slack, assembly.budget_tokens) from None
            raise
        over = assembled.tokens_used - assembly.budget_tokens
        if over <= 0:
            return assembled
        # Texts that are counted apart are, now and then, a token shorter than what they make together.
        slack += over + _SLACK_TOKENS
    raise too_small(assembled.tokens_used, assembly.budget_tokens)


def _covered(outline: Outline) -> Assembled:
    """Takes the summary that was there when the current input came, so that a newer one changes nothing half way.

    If messages are missing without it, the newest one is shown as well: among the steps, where it came, if there are
    any, so that what was sent before keeps its bytes.
    """
    summaries, start = outline.assembly.coverages, outline.current.start
    begun = outline.units[start].revision if start < len(outline.units) else 0
    settled = next((one for one in summaries if not begun or one.revision < begun), None)
    draft = _Draft(outline, settled)
    assembled = draft.assembled()
    if not summaries or settled is summaries[0] or SUMMARY_MISSING not in assembled.warnings:
        return assembled
    # The first that covers what is missing: later ones come as the turn goes on.
    enough = [one for one in summaries if one.before and one.messages >= draft.uncovered]
    newer = min(enough, key=lambda one: one.revision, default=summaries[0])
    return (_Draft(outline, settled, newer) if outline.steps else _Draft(outline, newer)).assembled()


class _Placed(NamedTuple):
    section: SectionKind
    message: Rendered


class _Draft:
    """One context in the making.

    Args:
        outline: what is settled.
        coverage: the summary that stands before the transcript.
        late: a newer one, which came during the steps.
    """

    def __init__(self, outline: Outline, coverage: Coverage | None, late: Coverage | None = None) -> None:
        self._outline = outline
        self._assembly = outline.assembly
        self._coverage = coverage
        self._late = late
        self.uncovered = 0
        """How many messages, the oldest first, a summary would have to cover so that none is missing."""
        self._late_id = "" if late is None else of_summary(late.summary).id
        self._entries: list[Entry] = []
        self._warnings: list[str] = []
        self._placed: list[_Placed] = []

    def assembled(self) -> Assembled:
        outline, assembly = self._outline, self._assembly
        summaries = [of_summary(one.summary) for one in (self._late, self._coverage) if one is not None]
        split = outline.split(summaries)
        data = {**assembly.data, SectionKind.SUMMARY: tuple(summaries)}
        left = split.spare
        chosen: dict[SectionKind, list[Chosen]] = {}
        for kind, candidates in sorted(data.items()):
            chosen[kind], used = self._fill(kind, candidates, split.allowed.get(kind))
            left += split.allowed.get(kind, 0) - used
        tools, used = self._tools(split.allowed.get(SectionKind.TOOLS, 0))
        left += split.allowed.get(SectionKind.TOOLS, 0) - used
        window = self._window(split, left)
        self._place(chosen, window)
        return self._finished(split, tools, used)

    # -- choosing

    def _fill(
        self, kind: SectionKind, candidates: Sequence[Candidate], allowed: int | None
    ) -> tuple[list[Chosen], int]:
        """Chooses from a section's candidates; returns them and the tokens that they take with their fence."""
        outline = self._outline
        if allowed is None:
            self._entries += [_dropped(one, WHY.not_in_recipe, 0) for one in candidates]
            return [], 0
        fence = outline.fence_tokens(kind)
        full = [outline.full_tokens(one) for one in candidates]
        room = allowed - fence
        if sum(full) <= room:
            variants: list[tuple[Variant, ...]] = [
                (Variant(one.text, tokens),) for one, tokens in zip(candidates, full, strict=True)
            ]
        else:
            variants = [outline.variants(one) for one in candidates]
        choices = [
            Choice(one.value, tuple(v.tokens for v in ways), tuple(v.worth for v in ways))
            for one, ways in zip(candidates, variants, strict=True)
        ]
        chosen: list[Chosen] = []
        used = 0
        for one, ways, pick in zip(candidates, variants, pack(choices, max(0, room)), strict=True):
            if pick < 0:
                self._entries.append(
                    _dropped(one, WHY.too_large if ways[-1].tokens > room else WHY.no_room, ways[0].tokens)
                )
                continue
            chosen.append(Chosen(one, ways[pick].text))
            used += ways[pick].tokens
            fate = Fate.SHORTENED if pick else Fate.INCLUDED
            self._entries.append(
                _entry(one, fate, WHY.fits if not pick else WHY.no_room, ways[pick].tokens, ways[0].tokens)
            )
        return chosen, used + fence if chosen else 0

    def _tools(self, allowed: int) -> tuple[tuple[Tool, ...], int]:
        outline, tools = self._outline, self._assembly.tools
        called = {use.name for unit in outline.units if unit.kind is UnitKind.CALL for use in unit.first.tool_calls}
        sizes = [outline.tool_tokens(tool) for tool in tools]
        # The given order is the order of importance; a tool that was called must be known to the provider.
        choices = [
            Choice((2.0 if tool.name in called else 1.0) - at / (2 * len(tools)), (size,), (1.0,))
            for at, (tool, size) in enumerate(zip(tools, sizes, strict=True))
        ]
        kept, used = [], 0
        for tool, size, pick in zip(tools, sizes, pack(choices, allowed), strict=True):
            fate, why = (Fate.INCLUDED, WHY.fits) if pick == 0 else (Fate.DROPPED, WHY.no_room)
            took = size if pick == 0 else 0
            self._entries.append(
                Entry(
                    f"tool:{tool.name}", SectionKind.TOOLS, fate, why, "given by the caller", 0, took, size, TRUST_OWN
                )
            )
            if pick == 0:
                kept.append(tool)
                used += size
        if len(kept) < len(tools):
            self._warnings.append(TOOLS_DROPPED)
        return tuple(kept), used

    def _window(self, split: Split, left: int) -> int:
        """Returns the index of the unit with which the window begins."""
        outline = self._outline
        steps, older = (
            max(0, split.allowed.get(kind, 0) - outline.required.get(kind, 0))
            for kind in (SectionKind.TOOL_RESULTS, SectionKind.TRANSCRIPT)
        )
        older += left
        return choose(
            outline.units,
            start=outline.current.start,
            oldest=outline.oldest,
            kept=outline.kept,
            room=Room(older, older + steps),
            cost=outline.renderer.cost,
        )

    # -- placing

    def _place(self, chosen: dict[SectionKind, list[Chosen]], begin: int) -> None:
        outline, recipe = self._outline, self._assembly.recipe
        self._add(SectionKind.SYSTEM, outline.system)
        steps = self._steps(begin)
        fresh = self._fresh(chosen, [step for step, _ in steps])
        for kind in recipe.before_transcript():
            self._block(kind, [one for one in chosen.get(kind, ()) if one.candidate.id not in fresh])
        gap = self._gap(begin, {one.candidate.id for one in chosen.get(SectionKind.SUMMARY, ())})
        start = outline.current.start
        if gap is not None and begin <= start:
            self._add(SectionKind.TRANSCRIPT, gap)
        kept = outline.kept
        for at, unit in enumerate(outline.units[:start]):
            if at >= begin or at in kept:
                self._unit(SectionKind.TRANSCRIPT, unit)
        for kind in recipe.after_transcript():
            self._block(kind, [one for one in chosen.get(kind, ()) if one.candidate.id not in fresh])
        self._place_tail(steps, list(fresh.values()), gap if begin > start else None, begin)

    def _steps(self, begin: int) -> list[tuple[Step, int]]:
        """Returns the steps that are shown, with their indexes among all steps."""
        outline = self._outline
        shown = {id(unit) for at, unit in enumerate(outline.units) if at >= begin or at in outline.kept}
        return [(step, at) for at, step in enumerate(outline.steps) if id(step.unit) in shown]

    def _fresh(self, chosen: dict[SectionKind, list[Chosen]], steps: Sequence[Step]) -> dict[str, Chosen]:
        if not steps:
            return {}
        many = (one for found in chosen.values() for one in found)
        return {one.candidate.id: one for one in many if self._step_of(one) is not None}

    def _step_of(self, chosen: Chosen) -> int | None:
        if self._late is not None and chosen.candidate.id == self._late_id:
            return self._outline.step_at(self._late.revision) or 0
        return self._outline.step_of(chosen.candidate)

    def _place_tail(
        self, steps: Sequence[tuple[Step, int]], fresh: Sequence[Chosen], gap: Rendered | None, begin: int
    ) -> None:
        outline = self._outline
        shown = {id(unit) for unit in outline.units[begin:]}
        if outline.input is None and not steps:
            self._notes()
        for aside in outline.input_step.asides if outline.input_step is not None else outline.asides:
            if id(aside) in shown:
                self._unit(SectionKind.TRANSCRIPT, aside)
        if outline.input is not None and not steps:
            self._notes()
        if outline.input is not None:
            self._add(SectionKind.INPUT, outline.input)
        if gap is not None:
            self._add(SectionKind.TRANSCRIPT, gap)
        waiting = list(fresh)
        for position, (step, at) in enumerate(steps):
            last = position == len(steps) - 1
            # What changed before a step that is not shown any more stands before the first one that is.
            here = [one for one in waiting if last or (self._step_of(one) or 0) <= at]
            waiting = [one for one in waiting if one not in here]
            for kind in (SectionKind.SUMMARY, *self._assembly.recipe.after_transcript()):
                self._block(kind, [one for one in here if one.candidate.section is kind], fresh=True)
            for aside in step.asides:
                if id(aside) in shown:
                    self._unit(SectionKind.TRANSCRIPT, aside)
            if last:
                self._notes()
            self._unit(SectionKind.TOOL_RESULTS, step.unit)

    def _notes(self) -> None:
        for note in self._outline.notes:
            self._add(SectionKind.INPUT, note)

    def _block(self, kind: SectionKind, chosen: Sequence[Chosen], *, fresh: bool = False) -> None:
        if chosen:
            outline = self._outline
            text = write_block(self._assembly.fence, outline.label(kind, fresh=fresh), chosen, outline.form(kind))
            message = Rendered(Role.USER, text)
            self._add(kind, message._replace(tokens=size_of(message, self._assembly.tokenizer.count)))

    def _unit(self, section: SectionKind, unit: Unit) -> None:
        for message in self._outline.renderer.unit(unit):
            self._add(section, message)

    def _add(self, section: SectionKind, message: Rendered) -> None:
        if message.role is Role.ASSISTANT and len(self._placed) == 1:
            self._placed.append(_Placed(section, self._outline.begins))
        self._placed.append(_Placed(section, message))

    # -- what is missing

    def _gap(self, begin: int, summaries: set[str]) -> Rendered | None:
        """Records what became of every message; returns the note of those that no summary before it stands for."""
        outline, assembly = self._outline, self._assembly
        settled = self._covered_by(self._coverage, summaries)
        covered = settled | self._covered_by(self._late, summaries)
        noted: list[Message] = []
        missing = False
        for at, unit in enumerate(outline.units):
            inside = at >= begin or at in outline.kept
            section = SectionKind.TOOL_RESULTS if at >= outline.current.start else SectionKind.TRANSCRIPT
            for message in unit.messages:
                tokens = outline.renderer.tokens_of(unit, message) if inside else 0
                if inside:
                    fate = Fate.SHORTENED if outline.renderer.shortened(unit) else Fate.INCLUDED
                    why = WHY.required if at in outline.kept else WHY.in_window
                else:
                    fate, why = Fate.DROPPED, WHY.covered_by_summary if message.key in covered else WHY.not_covered
                    missing |= message.key not in covered
                    noted += [message] if message.key not in settled else []
                self._entries.append(_of_message(message, section, fate, why, tokens))
        self._entries += [
            _of_message(message, SectionKind.TRANSCRIPT, Fate.DROPPED, WHY.retracted, 0)
            for message in assembly.messages
            if is_gone(message)
        ]
        before = [one.before for one in (self._coverage, self._late) if one is not None and _shown(one, summaries)]
        if missing or (assembly.more_before and not any(before)):
            self._warnings.append(SUMMARY_MISSING)
        unknown = assembly.more_before and not (settled and self._coverage is not None and self._coverage.before)
        if not noted and not unknown:
            return None
        gone = {message.key for message in noted}
        self.uncovered = max((at for at, one in enumerate(assembly.messages, start=1) if one.key in gone), default=0)
        turns = [message.turn for message in noted] or [outline.units[0].turn if outline.units else 0]
        if unknown:
            text = note_of_gap(0, (0, outline.units[begin].turn if begin < len(outline.units) else max(turns)))
        else:
            text = note_of_gap(len(noted), (min(turns), max(turns)))
        return outline.renderer.data("note", text)

    def _covered_by(self, coverage: Coverage | None, summaries: set[str]) -> set[str]:
        """Returns the keys of the messages that a summary stands for, if it is shown."""
        if coverage is None or not _shown(coverage, summaries):
            return set()
        return {message.key for message in self._assembly.messages[: coverage.messages]}

    # -- the end

    def _finished(self, split: Split, tools: tuple[Tool, ...], tool_tokens: int) -> Assembled:
        assembly = self._assembly
        renamed = distinct_ids([placed.message for placed in self._placed])
        count = assembly.tokenizer.count
        messages = tuple(
            new if new is old.message else new._replace(tokens=size_of(new, count))
            for new, old in zip(renamed, self._placed, strict=True)
        )
        uses: dict[SectionKind, int] = {SectionKind.TOOLS: tool_tokens}
        texts: dict[SectionKind, list[str]] = {}
        for placed, message in zip(self._placed, messages, strict=True):
            uses[placed.section] = uses.get(placed.section, 0) + message.tokens
            texts.setdefault(placed.section, []).append(message.text)
        sections = tuple(
            SectionUse(
                rule.kind,
                uses.get(rule.kind, 0),
                max(split.allowed.get(rule.kind, 0), uses.get(rule.kind, 0)),
                "\n\n".join(texts.get(rule.kind, ())),
            )
            for rule in assembly.recipe.rules
        )
        used = REPLY_TOKENS + tool_tokens + sum(message.tokens for message in messages)
        entries = (*self._spoken(), *self._entries, *assembly.refused)
        warnings = tuple(dict.fromkeys(self._warnings))
        return Assembled(messages, tools, sections, entries, warnings, used, assembly.budget_tokens)

    def _spoken(self) -> Iterable[Entry]:
        """What the caller and the operator say."""
        outline = self._outline
        for message in outline.instructions:
            yield _of_message(message, SectionKind.SYSTEM, Fate.INCLUDED, WHY.required, 0)
        if self._assembly.system:
            yield _required("system:caller", SectionKind.SYSTEM, outline.system.tokens)
        if outline.current.given and outline.input is not None:
            yield _required("input:caller", SectionKind.INPUT, outline.input.tokens)
        for at, note in enumerate(outline.notes, start=1):
            yield _required(f"note:{at}", SectionKind.INPUT, note.tokens)


def _shown(coverage: Coverage, summaries: set[str]) -> bool:
    return of_summary(coverage.summary).id in summaries


def _required(name: str, section: SectionKind, tokens: int) -> Entry:
    return Entry(name, section, Fate.INCLUDED, WHY.required, "given by the caller", 0, tokens, tokens, TRUST_OWN, 1.0)


def _entry(candidate: Candidate, fate: Fate, why: str, tokens: int, full: int) -> Entry:
    return Entry(
        candidate.id,
        candidate.section,
        fate,
        why,
        candidate.source,
        candidate.version,
        tokens,
        full,
        candidate.trust,
        round(candidate.value, 4),
    )


def _dropped(candidate: Candidate, why: str, full: int) -> Entry:
    return _entry(candidate, Fate.DROPPED, why, 0, full)


def _of_message(message: Message, section: SectionKind, fate: Fate, why: str, tokens: int) -> Entry:
    trust = {Role.SYSTEM: TRUST_OWN, Role.TOOL: TRUST_OUTSIDE}.get(message.role, TRUST_USER)
    full = max(tokens, message.tokens)
    return Entry(f"message:{message.id}", section, fate, why, message.author, 0, tokens, full, trust)
