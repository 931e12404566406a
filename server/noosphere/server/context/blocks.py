"""Blocks of data: the entries of one section between one pair of fences.

Each entry names what it is, its source and how far that is trusted, at the margin of a line; its text is on the same
line, or indented below. So no text can pass for another entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import Refusal

from .fence import Fence, indented, one_line, trusted
from .forms import as_yaml, json_line
from .json_text import read_json
from .types import Candidate, Form, SectionKind

LABELS: Mapping[SectionKind, str] = {
    SectionKind.PROFILE: "profile",
    SectionKind.TASK: "goals and task state",
    SectionKind.SUMMARY: "summary of earlier messages",
    SectionKind.SUBAGENTS: "summaries by sub-agents",
    SectionKind.WORKING: "working memory",
    SectionKind.FACTS: "recalled facts",
    SectionKind.EVIDENCE: "evidence",
}


class Chosen(NamedTuple):
    """A candidate that is in, and the text with which it is."""

    candidate: Candidate
    text: str


def name_of(candidate: Candidate) -> str:
    """Returns what a model is told to call a candidate: its id without the kind."""
    return one_line(candidate.id.partition(":")[2])


def write_entry(candidate: Candidate, text: str, form: Form) -> str:
    """Returns one entry of a block."""
    source = one_line(candidate.source)
    if form is Form.JSON:
        return json_line(_fields(candidate, source, text))
    if form is Form.YAML:
        return as_yaml([_fields(candidate, source, text)])
    version = f" v{candidate.version}" if candidate.version else ""
    head = f"- {name_of(candidate)}{version} ({source}, {trusted(candidate.trust)}):"
    # `splitlines` knows more ends of lines than "\n", and so may a model.
    lines = text.splitlines()
    return f"{head} {''.join(lines)}" if len(lines) <= 1 else f"{head}\n{indented(text)}"


def _fields(candidate: Candidate, source: str, text: str) -> dict[str, object]:
    value: object = text
    if text[:1] in ("{", "["):
        try:
            value = read_json("text", text)
        except Refusal:
            value = text
    fields: dict[str, object] = {"id": name_of(candidate)}
    if candidate.version:
        fields["version"] = candidate.version
    return fields | {"source": source, "trust": round(candidate.trust, 2), "value": value}


def ordered(chosen: Sequence[Chosen]) -> list[Chosen]:
    """Returns entries by trust, the most trusted first, and then by age, so that news is added at the end.

    Recalled facts are then as they were found: their versions tell nothing of their age, and of those that contradict
    each other the newest came first.
    """
    return sorted(chosen, key=_place)


def _place(one: Chosen) -> tuple[float, int, str]:
    candidate = one.candidate
    if candidate.section is SectionKind.FACTS:
        return (-candidate.trust, 0, "")
    return (-candidate.trust, candidate.version, candidate.id)


def write_block(fence: Fence, label: str, chosen: Sequence[Chosen], form: Form) -> str:
    """Returns a block."""
    return fence.wrap(label, "\n".join(write_entry(one.candidate, one.text, form) for one in ordered(chosen)))
