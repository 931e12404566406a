"""One context in the making: chosen, placed, rendered.

Order of the messages, from stable to volatile: the system message; blocks of data before the transcript; a note of
what is missing; the window up to the current input; blocks of data after the transcript; the input; the steps that it
led to, each after what came from aside while it was the newest. The last message is the input or the newest result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..sessions.types import Role
from . import entries
from .blocks import Chosen, write_block
from .budget import Split
from .candidates import of_summary
from .choosing import FilledTools, fill, fill_tools
from .counting import REPLY_TOKENS
from .gaps import Account, Summaries, account
from .outline import Outline
from .rendering import Rendered, distinct_ids, size_of
from .request import Assembled, Coverage, SectionUse
from .types import WHY, Entry, Fate, SectionKind
from .units import Unit
from .window import Room, choose

SUMMARY_MISSING = "SUMMARY_MISSING"
"""Messages are left out that no summary stands for; a note says so in their place."""
TOOLS_DROPPED = "TOOLS_DROPPED"
"""Not all of the tools' schemas are in."""


class _Placed(NamedTuple):
    section: SectionKind
    message: Rendered


class _Shown(NamedTuple):
    """A step that is shown: its index among all steps, what came from aside, and itself."""

    at: int
    asides: tuple[Unit, ...]
    unit: Unit


class Draft:
    """One context.

    Args:
        outline: what is settled.
        coverage: the summary that stands before the transcript; None if there is none.
        late: a newer one, which came since the current input; None if there is none.

    Attributes:
        assembled: the context.
        uncovered: how many messages, the oldest first, a summary would have to cover so that none is missing.
    """

    def __init__(self, outline: Outline, coverage: Coverage | None, late: Coverage | None = None) -> None:
        self._outline = outline
        self._assembly = outline.assembly
        self._late = late
        self._late_id = "" if late is None else of_summary(late.summary).id
        self._placed: list[_Placed] = []
        summaries = tuple(of_summary(one.summary) for one in (late, coverage) if one is not None)
        split = outline.split(summaries)
        left = split.spare
        chosen: dict[SectionKind, Sequence[Chosen]] = {}
        lines: list[Entry] = []
        for kind, candidates in sorted({**self._assembly.data, SectionKind.SUMMARY: summaries}.items()):
            filled = fill(outline, kind, candidates, split.allowed.get(kind))
            chosen[kind] = filled.chosen
            lines += filled.entries
            left += split.allowed.get(kind, 0) - filled.used
        tools = fill_tools(outline, split.allowed.get(SectionKind.TOOLS, 0))
        left += split.allowed.get(SectionKind.TOOLS, 0) - tools.used
        begin = self._window(split, left)
        has_room = {one.candidate.id for one in chosen[SectionKind.SUMMARY]}
        told = account(outline, begin, Summaries(coverage, late, has_room))
        self.uncovered = told.uncovered
        self._place(chosen, begin, told.note)
        lines = [*self._spoken(), *lines, *tools.entries, *told.entries, *self._assembly.refused]
        self.assembled = self._finished(split, tools, told, tuple(lines))

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

    def _place(self, chosen: Mapping[SectionKind, Sequence[Chosen]], begin: int, note: Rendered | None) -> None:
        outline, recipe = self._outline, self._assembly.recipe
        steps = self._steps(begin)
        fresh = self._fresh(chosen) if steps else {}
        self._add(SectionKind.SYSTEM, outline.system)
        for kind in recipe.before_transcript():
            self._block(kind, [one for one in chosen.get(kind, ()) if one.candidate.id not in fresh])
        start, kept = outline.current.start, outline.kept
        # Between the input and the steps only if steps are left out there: without any, the input is the last.
        within = begin > start and bool(steps)
        if note is not None and not within:
            self._add(SectionKind.TRANSCRIPT, note)
        for at, unit in enumerate(outline.units[:start]):
            if at >= begin or at in kept:
                self._unit(SectionKind.TRANSCRIPT, unit)
        for kind in recipe.after_transcript():
            self._block(kind, [one for one in chosen.get(kind, ()) if one.candidate.id not in fresh])
        self._place_input(begin, note if within else None, has_steps=bool(steps))
        self._place_steps(steps, list(fresh.values()))

    def _steps(self, begin: int) -> list[_Shown]:
        outline = self._outline
        inside = {id(unit) for at, unit in enumerate(outline.units) if at >= begin or at in outline.kept}
        shown: list[_Shown] = []
        carried: tuple[Unit, ...] = ()
        for at, step in enumerate(outline.steps):
            asides = (*carried, *(unit for unit in step.asides if id(unit) in inside))
            if id(step.unit) in inside:
                shown.append(_Shown(at, asides, step.unit))
                carried = ()
            else:
                # Its step is not shown any more, but it is itself.
                carried = asides
        return shown

    def _fresh(self, chosen: Mapping[SectionKind, Sequence[Chosen]]) -> dict[str, Chosen]:
        """Returns what changed since the current input, by id."""
        many = (one for found in chosen.values() for one in found)
        return {one.candidate.id: one for one in many if self._step_of(one) is not None}

    def _step_of(self, chosen: Chosen) -> int | None:
        if self._late is not None and chosen.candidate.id == self._late_id:
            return self._outline.step_at(self._late.revision) or 0
        return self._outline.step_of(chosen.candidate)

    def _place_input(self, begin: int, note: Rendered | None, *, has_steps: bool) -> None:
        outline = self._outline
        shown = {id(unit) for unit in outline.units[begin:]}
        asides = outline.input_step.asides if outline.input_step is not None else outline.asides
        if outline.input is None and not has_steps:
            self._notes()
        for aside in asides:
            if id(aside) in shown:
                self._unit(SectionKind.TRANSCRIPT, aside)
        if outline.input is not None:
            if not has_steps:
                self._notes()
            self._add(SectionKind.INPUT, outline.input)
        if note is not None:
            self._add(SectionKind.TRANSCRIPT, note)

    def _place_steps(self, steps: Sequence[_Shown], fresh: Sequence[Chosen]) -> None:
        waiting = list(fresh)
        for step in steps:
            last = step is steps[-1]
            # What changed before a step that is not shown any more stands before the first one that is.
            here = [one for one in waiting if last or (self._step_of(one) or 0) <= step.at]
            waiting = [one for one in waiting if one not in here]
            for kind in (SectionKind.SUMMARY, *self._assembly.recipe.after_transcript()):
                self._block(kind, [one for one in here if one.candidate.section is kind], fresh=True)
            for aside in step.asides:
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

    # -- the end

    def _finished(self, split: Split, tools: FilledTools, told: Account, lines: tuple[Entry, ...]) -> Assembled:
        assembly = self._assembly
        renamed = distinct_ids([placed.message for placed in self._placed])
        count = assembly.tokenizer.count
        messages = tuple(
            new if new is old.message else new._replace(tokens=size_of(new, count))
            for new, old in zip(renamed, self._placed, strict=True)
        )
        uses: dict[SectionKind, int] = {SectionKind.TOOLS: tools.used}
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
        warnings = [TOOLS_DROPPED] if len(tools.tools) < len(assembly.tools) else []
        warnings += [SUMMARY_MISSING] if told.missing else []
        used = REPLY_TOKENS + tools.used + sum(message.tokens for message in messages)
        return Assembled(messages, tools.tools, sections, lines, tuple(warnings), used, assembly.budget_tokens)

    def _spoken(self) -> Iterable[Entry]:
        """What the caller and the operator say."""
        outline = self._outline
        for message in outline.instructions:
            yield entries.of_message(message, SectionKind.SYSTEM, Fate.INCLUDED, WHY.required, 0)
        if self._assembly.system:
            yield entries.required("system:caller", SectionKind.SYSTEM, outline.system.tokens)
        if outline.current.given and outline.input is not None:
            yield entries.required("input:caller", SectionKind.INPUT, outline.input.tokens)
        for at, note in enumerate(outline.notes, start=1):
            yield entries.required(f"note:{at}", SectionKind.INPUT, note.tokens)
