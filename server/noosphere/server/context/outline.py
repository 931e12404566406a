"""The outline of a context: its units, its current input, what must be shown, and how the budget is split."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property

from ..sessions.types import Role
from .blocks import LABELS, write_entry
from .budget import UNLIMITED, Split, split_budget, too_small
from .counting import MESSAGE_TOKENS, REPLY_TOKENS, TOOL_TOKENS
from .current import Current, Step, in_steps, locate
from .recipe import SectionRule
from .rendering import Rendered, Renderer, safe_name, sized
from .request import Assembly
from .shapes import Tool
from .types import Candidate, Form, SectionKind, Variant
from .units import Unit, UnitKind, group
from .window import reach

_ASIDE_SHARE = 16
"""What one message of another agent may take: a sixteenth of the budget, at least the figure below."""
_ASIDE_TOKENS_MIN = 64
_BEGINS = "The conversation begins here."
_FRESH = "changed since the current input"
_ARRIVED = "given since the current input"
_LATE_SUMMARY = "summary of messages left out above"
_SHORTENED_MIN = 64
"""What has fewer tokens is in or out: shortening it would save hardly any."""
_LINE = 1
"""The line break after an entry."""


def note_of_gap(messages: int, turns: tuple[int, int]) -> str:
    """Returns what stands where messages are left out: how many, 0 if that is not known, and of which turns."""
    first, last = turns
    if not messages:
        return f"Messages before turn {last} are left out here. The session's transcript holds them."
    these = f"{messages} message{'s are' if messages > 1 else ' is'}"
    turns_said = f"turns {first} to {last}" if last > first else f"turn {last}"
    return f"{these} left out here, of {turns_said}. The session's transcript holds them."


class Outline:
    """What is settled about a context before anything is chosen.

    Raises:
        Refusal: INVALID_FIELD, if there is nothing to answer; BUDGET_TOO_SMALL.
    """

    def __init__(self, assembly: Assembly, tokens_max: int) -> None:
        self.assembly = assembly
        self.tokens_max = tokens_max
        count = assembly.tokenizer.count
        self._count = count
        self._entry_sizes: dict[tuple[str, str], int] = {}
        self._forms = {rule.kind: rule.written for rule in assembly.recipe.rules}
        self.renderer = Renderer(
            assembly.fence,
            count,
            aside_tokens_max=max(_ASIDE_TOKENS_MIN, assembly.budget_tokens // _ASIDE_SHARE),
            states=assembly.states,
        )
        grouped = group(assembly.messages, assembly.readers)
        self.units = [unit for unit in grouped if unit.kind is not UnitKind.SYSTEM]
        self.instructions = [*assembly.instructions, *(u.first for u in grouped if u.kind is UnitKind.SYSTEM)]
        self.current: Current = locate(self.units, assembly.given)
        steps, self.asides = in_steps(self.units[self.current.start :])
        self.input_step: Step | None = steps.pop(0) if self.current.in_place else None
        self.steps = steps
        self._step_revisions = [step.unit.revision for step in steps]
        after = frozenset(assembly.recipe.after_transcript())
        self._volatile = after & {SectionKind.TASK, SectionKind.WORKING}
        self._arriving = after & {SectionKind.EVIDENCE}
        self.system = sized(Rendered(Role.SYSTEM, self._system()), count)
        self.input: Rendered | None = self._input()
        self.notes = tuple(self.renderer.data(f"note {at}", note) for at, note in enumerate(assembly.notes, start=1))
        self.oldest = reach(self.units, assembly.limits)
        self.frame = REPLY_TOKENS + self._note_tokens()
        self.room = tokens_max - self.frame
        self.required = self._required()
        if (needed := sum(self.required.values())) > self.room:
            raise too_small(needed + self.frame, tokens_max)

    def _system(self) -> str:
        parts = [*(message.text for message in self.instructions), self.assembly.system]
        fence = self.assembly.fence
        return "\n\n".join([*(fence.clean(part) for part in parts if part.strip()), fence.rule])

    def _input(self) -> Rendered | None:
        if self.input_step is not None:
            return self.renderer.unit(self.input_step.unit)[0]
        if not self.current.given:
            return None
        text = self.assembly.fence.clean(self.current.given)
        return sized(Rendered(Role.USER, text if text.strip() else "(empty)"), self._count)

    def _note_tokens(self) -> int:
        """What the notes about gaps can take at most, if there can be any."""
        if not self.units and not self.assembly.more_before:
            return 0
        gap = self.renderer.data("note", note_of_gap(100_000, (1_000_000, 1_000_000))).tokens
        return gap + self.renderer.data("note", _BEGINS).tokens

    @property
    def begins(self) -> Rendered:
        """What stands before an assistant's message that would be the first."""
        return self.renderer.data("note", _BEGINS)

    @cached_property
    def newest(self) -> Unit | None:
        """The newest unit of the thread, which every context shows; None if that is the input, or there is none."""
        if self.steps:
            return self.steps[-1].unit
        return None if self.input_step is not None or not self.units else self.units[-1]

    @cached_property
    def kept(self) -> frozenset[int]:
        """Indexes of the units that are shown in any case."""
        shown = [self.newest, self.input_step.unit if self.input_step is not None else None]
        return frozenset(at for at, unit in enumerate(self.units) if any(unit is one for one in shown))

    def _required(self) -> Mapping[SectionKind, int]:
        required = {
            SectionKind.SYSTEM: self.system.tokens,
            SectionKind.INPUT: sum(note.tokens for note in self.notes) + (self.input.tokens if self.input else 0),
        }
        if self.newest is not None:
            kind = SectionKind.TOOL_RESULTS if self.steps else SectionKind.TRANSCRIPT
            required[kind] = self.renderer.cost(self.newest)
        return required

    def renewed(self, assembly: Assembly) -> Outline:
        """Returns the outline of an assembly that differs in its data only."""
        other = copy.copy(self)
        other.assembly = assembly
        return other

    # -- the sections of data

    def form(self, kind: SectionKind) -> Form:
        """Returns the form of a section."""
        return self._forms.get(kind, Form.FULL)

    def label(self, kind: SectionKind, *, fresh: bool = False) -> str:
        """Returns what a block is called."""
        if fresh and kind is SectionKind.SUMMARY:
            return _LATE_SUMMARY
        if fresh and kind is SectionKind.EVIDENCE:
            return f"{LABELS[kind]}, {_ARRIVED}"
        return f"{LABELS[kind]}, {_FRESH}" if fresh else LABELS[kind]

    def fence_tokens(self, kind: SectionKind, *, fresh: bool = False) -> int:
        """Returns what a block takes beside its entries, at most."""
        return self._count(self.assembly.fence.wrap(self.label(kind, fresh=fresh), "")) + MESSAGE_TOKENS

    def variants(self, candidate: Candidate) -> tuple[Variant, ...]:
        """Returns the ways to write a candidate, the fullest first, with their tokens as entries."""
        full = self.full_tokens(candidate)
        found = [Variant(candidate.text, full)]
        if full < _SHORTENED_MIN:
            return tuple(found)
        for text in candidate.shorter():
            tokens = self._entry_tokens(candidate, text)
            if tokens < found[-1].tokens:
                # What is left out of a text is rarely its best part: half of it keeps more than half of the value.
                found.append(Variant(text, tokens, (tokens / full) ** 0.5))
        return tuple(found)

    def full_tokens(self, candidate: Candidate) -> int:
        """Returns what a candidate takes in full."""
        return self._entry_tokens(candidate, candidate.text)

    def _entry_tokens(self, candidate: Candidate, text: str) -> int:
        key = (candidate.id, text)
        tokens = self._entry_sizes.get(key)
        if tokens is None:
            tokens = self._count(write_entry(candidate, text, self.form(candidate.section))) + _LINE
            if self.step_of(candidate) is not None:
                tokens += self.fence_tokens(candidate.section, fresh=True)
            self._entry_sizes[key] = tokens
        return tokens

    def step_of(self, candidate: Candidate) -> int | None:
        """Returns the step before which stands what changed, or was given to stay, since the current input; else None.

        What was written during a step stands before it, so that the bytes before that step stay as they are.
        """
        if candidate.section in self._arriving:
            return self.step_at(candidate.since)
        return self.step_at(candidate.version) if candidate.section in self._volatile else None

    def step_at(self, revision: int) -> int | None:
        """Returns the step that was the newest at a revision, None if there was none or 0 is given."""
        begun = [at for at, began in enumerate(self._step_revisions) if 0 < began <= revision]
        return begun[-1] if begun else None

    # -- the split

    def demand(self, summaries: Sequence[Candidate], unknown: frozenset[SectionKind]) -> dict[SectionKind, int]:
        """Returns what each section could show."""
        demand = dict(self.required)
        for kind, candidates in (*self.assembly.data.items(), (SectionKind.SUMMARY, summaries)):
            wanted = sum(self.full_tokens(candidate) for candidate in candidates)
            demand[kind] = wanted + self.fence_tokens(kind) if candidates else 0
        demand |= dict.fromkeys(unknown, UNLIMITED)
        demand[SectionKind.TOOLS] = sum(self.tool_tokens(tool) for tool in self.assembly.tools)
        older = demand.get(SectionKind.TRANSCRIPT, 0)
        for unit in reversed(self.units[self.oldest : self.current.start]):
            if older > self.room:
                break
            older += 0 if unit is self.newest else self.renderer.cost(unit)
        demand[SectionKind.TRANSCRIPT] = older
        return demand

    def split(self, summaries: Sequence[Candidate], unknown: frozenset[SectionKind] = frozenset()) -> Split:
        """Splits the budget.

        The steps since the current input have their share held for them, and nobody else gets it: as they grow, what
        was sent before them keeps its room, and so its bytes. If the newest step alone needs more, the window gives
        way first.

        Args:
            summaries: those that are to be shown.
            unknown: sections of which is not known yet how much they have to show.
        """
        required = dict(self.required)
        tail = required.pop(SectionKind.TOOL_RESULTS, 0)
        known = {rule.kind for rule in self.assembly.recipe.rules}
        # What a recipe leaves out is shown as far as it is required.
        outside = sum(tokens for kind, tokens in required.items() if kind not in known)
        split = split_budget(
            self.room - outside,
            self.assembly.recipe,
            required=required,
            demand=self.demand(summaries, unknown),
            held=frozenset({SectionKind.TOOL_RESULTS}),
        )
        allowed, spare = dict(split.allowed), split.spare
        missing = tail - allowed.get(SectionKind.TOOL_RESULTS, 0)
        if missing > 0:
            allowed[SectionKind.TOOL_RESULTS] = tail
            spare, missing = max(0, spare - missing), max(0, missing - spare)
            for rule in sorted(self.assembly.recipe.rules, key=_gives_way):
                if rule.kind is not SectionKind.TOOL_RESULTS:
                    taken = min(missing, allowed[rule.kind] - required.get(rule.kind, 0))
                    allowed[rule.kind] -= taken
                    missing -= taken
        return Split(allowed, spare)

    def tool_tokens(self, tool: Tool) -> int:
        """Returns what a tool's schema takes."""
        return TOOL_TOKENS + sum(map(self._count, (safe_name(tool.name), tool.description, tool.parameters)))


def _gives_way(rule: SectionRule) -> tuple[bool, int]:
    """The order in which sections give up room: the window, and then the last to be given any."""
    return rule.kind is not SectionKind.TRANSCRIPT, -rule.priority
