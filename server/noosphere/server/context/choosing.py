"""Choosing what goes into a section: the highest value that its tokens can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..facts.ranking import Choice, pack
from . import entries
from .blocks import Chosen
from .outline import Outline
from .shapes import Tool
from .types import WHY, Candidate, Entry, Fate, SectionKind, Variant
from .units import UnitKind


class Filled(NamedTuple):
    """A section of data: what was chosen, its tokens with the fence, and what became of each candidate."""

    chosen: tuple[Chosen, ...]
    used: int
    entries: tuple[Entry, ...]


class FilledTools(NamedTuple):
    """The tools' schemas that are in, their tokens, and what became of each."""

    tools: tuple[Tool, ...]
    used: int
    entries: tuple[Entry, ...]


def fill(outline: Outline, kind: SectionKind, candidates: Sequence[Candidate], allowed: int | None) -> Filled:
    """Chooses from a section's candidates.

    Args:
        outline: counts.
        kind: the section.
        candidates: what may enter it.
        allowed: its tokens; None if the recipe has no such section.
    """
    if allowed is None:
        left_out = (entries.of_candidate(one, Fate.DROPPED, WHY.not_in_recipe, 0, 0) for one in candidates)
        return Filled((), 0, tuple(left_out))
    fence = outline.fence_tokens(kind)
    room = allowed - fence
    ways = _ways(outline, candidates, room)
    choices = [Choice(one.value, *_sizes_and_worths(variants)) for one, variants in zip(candidates, ways, strict=True)]
    chosen: list[Chosen] = []
    lines: list[Entry] = []
    used = 0
    for one, variants, pick in zip(candidates, ways, pack(choices, max(0, room)), strict=True):
        full = variants[0].tokens
        if pick < 0:
            why = WHY.too_large if variants[-1].tokens > room else WHY.no_room
            lines.append(entries.of_candidate(one, Fate.DROPPED, why, 0, full))
            continue
        taken = variants[pick]
        chosen.append(Chosen(one, taken.text))
        used += taken.tokens
        fate, why = (Fate.SHORTENED, WHY.no_room) if pick else (Fate.INCLUDED, WHY.fits)
        lines.append(entries.of_candidate(one, fate, why, taken.tokens, full))
    return Filled(tuple(chosen), used + fence if chosen else 0, tuple(lines))


def _ways(outline: Outline, candidates: Sequence[Candidate], room: int) -> list[tuple[Variant, ...]]:
    full = [outline.full_tokens(one) for one in candidates]
    if sum(full) <= room:
        return [(Variant(one.text, tokens),) for one, tokens in zip(candidates, full, strict=True)]
    return [outline.variants(one) for one in candidates]


def _sizes_and_worths(variants: Sequence[Variant]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return tuple(one.tokens for one in variants), tuple(one.worth for one in variants)


def fill_tools(outline: Outline, allowed: int) -> FilledTools:
    """Chooses tools: those that were called first, which the provider must know, and then in the order given."""
    tools = outline.assembly.tools
    called = {use.name for unit in outline.units if unit.kind is UnitKind.CALL for use in unit.first.tool_calls}
    sizes = [outline.tool_tokens(tool) for tool in tools]
    choices = [
        Choice((2.0 if tool.name in called else 1.0) - at / (2 * len(tools)), (size,), (1.0,))
        for at, (tool, size) in enumerate(zip(tools, sizes, strict=True))
    ]
    sized = [(tool, size, pick == 0) for tool, size, pick in zip(tools, sizes, pack(choices, allowed), strict=True)]
    return FilledTools(
        tuple(tool for tool, _, inside in sized if inside),
        sum(size for _, size, inside in sized if inside),
        tuple(entries.of_tool(tool.name, size, inside=inside) for tool, size, inside in sized),
    )
