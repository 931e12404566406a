"""Assembly: a pure function from what is known to what one model call gets to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from noosphere.consistency import LimitInfo, Refusal

from .budget import too_small
from .candidates import of_summary
from .draft import SUMMARY_MISSING, Draft
from .outline import Outline
from .request import Assembled, Assembly
from .types import SectionKind

_ATTEMPTS_MAX = 4
_SLACK_TOKENS = 8


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
    draft = Draft(outline, settled)
    if not summaries or settled is summaries[0] or SUMMARY_MISSING not in draft.assembled.warnings:
        return draft.assembled
    # The first that covers what is missing: later ones come as the turn goes on.
    enough = [one for one in summaries if one.before and one.messages >= draft.uncovered]
    newer = min(enough, key=lambda one: one.revision, default=summaries[0])
    return (Draft(outline, settled, newer) if outline.steps else Draft(outline, newer)).assembled
