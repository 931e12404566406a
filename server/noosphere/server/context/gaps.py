"""Accounting for messages: each is in the window, or covered by a summary that is shown, or said to be missing."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ..sessions.types import Message
from . import entries
from .calls import standing_of
from .candidates import of_summary
from .outline import Outline, note_of_gap
from .rendering import Rendered
from .request import Coverage
from .types import WHY, Entry, Fate, SectionKind
from .units import UnitKind, is_gone


class Summaries(NamedTuple):
    """The summaries of a context.

    Attributes:
        settled: stands before the transcript; None if there is none.
        late: came since the current input, and stands where it came; None if there is none.
        shown: the ids of those that have room.
    """

    settled: Coverage | None
    late: Coverage | None
    shown: Set[str]

    def covered(self, coverage: Coverage | None, messages: tuple[Message, ...]) -> set[str]:
        """Returns the keys of the messages that a summary stands for, if it is shown."""
        if coverage is None or not self.has(coverage):
            return set()
        return {message.key for message in messages[: coverage.messages]}

    def has(self, coverage: Coverage) -> bool:
        """Tells whether a summary is shown."""
        return of_summary(coverage.summary).id in self.shown

    def reaches_back(self, coverage: Coverage | None) -> bool:
        """Tells whether a summary is shown that covers everything before the messages that were read."""
        return coverage is not None and coverage.before and self.has(coverage)


class Account(NamedTuple):
    """What became of every message.

    Attributes:
        entries: one for each.
        note: stands where messages are left out that no summary before it stands for; None if there are none.
        missing: whether no summary at all stands for some.
        uncovered: how many messages, the oldest first, a summary would have to cover so that none is missing.
    """

    entries: tuple[Entry, ...]
    note: Rendered | None
    missing: bool
    uncovered: int


def account(outline: Outline, begin: int, summaries: Summaries) -> Account:
    """Accounts for every message.

    Args:
        outline: the units.
        begin: the index of the unit with which the window begins.
        summaries: what is shown of them.
    """
    messages, more = outline.assembly.messages, outline.assembly.more_before
    settled = summaries.covered(summaries.settled, messages)
    covered = settled | summaries.covered(summaries.late, messages)
    lines: list[Entry] = []
    noted: list[Message] = []
    # What comes from aside during the turn is told, as it is shown, with the rest of the transcript.
    sections = {id(step.unit): SectionKind.TOOL_RESULTS for step in outline.steps}
    if outline.input_step is not None:
        sections[id(outline.input_step.unit)] = SectionKind.INPUT
    missing = more and not any(map(summaries.reaches_back, (summaries.settled, summaries.late)))
    states = outline.assembly.states
    for at, unit in enumerate(outline.units):
        inside = at >= begin or at in outline.kept
        section = sections.get(id(unit), SectionKind.TRANSCRIPT)
        for use in unit.first.tool_calls if unit.kind is UnitKind.CALL else ():
            state = states.get((unit.first.key, use.call_id))
            if state is not None:
                lines.append(entries.of_call(use.call_id, unit.first.author, section, state))
        for message in unit.messages:
            if inside:
                fate = Fate.SHORTENED if outline.renderer.shortened(unit) else Fate.INCLUDED
                why = WHY.required if at in outline.kept else WHY.in_window
                state = standing_of(states, message, message.tool_call_id)
                tokens = outline.renderer.tokens_of(unit, message)
                lines.append(entries.of_message(message, section, fate, why, tokens, state))
                continue
            why = WHY.covered_by_summary if message.key in covered else WHY.not_covered
            lines.append(entries.of_message(message, section, Fate.DROPPED, why, 0))
            missing |= message.key not in covered
            if message.key not in settled:
                noted.append(message)
    gone = (message for message in messages if is_gone(message))
    lines += [entries.of_message(one, SectionKind.TRANSCRIPT, Fate.DROPPED, WHY.retracted, 0) for one in gone]
    unknown = more and not summaries.reaches_back(summaries.settled)
    note = _note(outline, begin, noted, unknown=unknown) if noted or unknown else None
    keys = {message.key for message in noted}
    uncovered = max((at for at, one in enumerate(messages, start=1) if one.key in keys), default=0)
    return Account(tuple(lines), note, missing, uncovered)


def _note(outline: Outline, begin: int, noted: list[Message], *, unknown: bool) -> Rendered:
    turns = [message.turn for message in noted] or [outline.units[0].turn if outline.units else 0]
    if unknown:
        before = outline.units[begin].turn if begin < len(outline.units) else max(turns)
        return outline.renderer.data("note", note_of_gap(0, (0, before)))
    return outline.renderer.data("note", note_of_gap(len(noted), (min(turns), max(turns))))
