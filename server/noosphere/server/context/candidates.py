"""What may enter the sections of data, and what each of it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from noosphere.consistency import Scalar, split_actor

from ..ports.facts import RecalledFact
from ..sessions.keys import GOALS, PROFILE, RESULTS, TASK
from ..sessions.summary_text import summary_text
from ..sessions.types import Item, Summary
from .fence import one_line
from .forms import shorten, write
from .types import (
    TRUST_OUTSIDE,
    TRUST_USER,
    WHY,
    Candidate,
    Entry,
    Fate,
    Form,
    SectionKind,
    either,
)

IMPORTANCE_DEFAULT = 0.3
_GOAL_VALUE = 0.95
_TASK_VALUE = 0.8
_PRIORITIES: Mapping[Scalar, float] = {"critical": 0.9, "high": 0.6, "medium": 0.3, "low": 0.0}
_CLOSED = frozenset({"done", "closed"})
_CLOSED_VALUE = 0.1
_UNKNOWN_RELEVANCE = 0.3
_SHORT_FACT_CHARS = 400
_SHORTEST_CHARS = 120
_SHORT_TEXT_CHARS = 600


class Evidence(NamedTuple):
    """Something that the caller gives to a context.

    Attributes:
        id: the caller's id for it.
        text: the text.
        source: where it comes from, for people and models.
        trust: 0 to 1.
        relevance: 0 to 1; 0 is unknown.
        carried_from: the context for which it was first given; empty for what is given for this one.
        carried_revision: the revision of that context.
    """

    id: str
    text: str
    source: str = ""
    trust: float = TRUST_OUTSIDE
    relevance: float = 0.0
    carried_from: str = ""
    carried_revision: int = 0


def section_of(key: str) -> SectionKind:
    """Returns the section for an item."""
    if key.startswith((GOALS, TASK)):
        return SectionKind.TASK
    return SectionKind.PROFILE if key.startswith(PROFILE) else SectionKind.WORKING


def prior_of(item: Item) -> float:
    """Returns how likely an item helps, whatever the question."""
    attributes = dict(item.attributes)
    if attributes.get("pinned") is True:
        return 1.0
    if attributes.get("status") in _CLOSED:
        return _CLOSED_VALUE
    importance = attributes.get("importance")
    known = isinstance(importance, (int, float)) and not isinstance(importance, bool) and 0 <= importance <= 1
    worth = float(importance) if known and importance is not None else IMPORTANCE_DEFAULT
    kind = _GOAL_VALUE if item.key.startswith(GOALS) else _TASK_VALUE if item.key.startswith(TASK) else 0.0
    return either(worth, kind, _PRIORITIES.get(attributes.get("priority", ""), 0.0))


def of_item(item: Item, form: Form) -> Candidate:
    """Returns an item as a candidate.

    Args:
        item: the item.
        form: of its section.
    """
    text = write(item.data, item.is_json, form)
    agent = split_actor(item.actor)[0] if item.actor else "unknown"
    tool = item.key.startswith(RESULTS)
    return Candidate(
        id=f"item:{item.key}",
        section=section_of(item.key),
        source=f"result of a tool, by {agent}" if tool else f"by {agent}",
        version=item.version,
        trust=TRUST_OUTSIDE if tool else TRUST_USER,
        value=prior_of(item),
        text=text,
        shorter=partial(_shorter_item, item, text),
    )


def _shorter_item(item: Item, text: str) -> tuple[str, ...]:
    brief = write(item.data, item.is_json, Form.SUMMARY)
    outlines = (brief, shorten(" ".join(brief.split()), _SHORTEST_CHARS))
    return tuple(dict.fromkeys(one for one in outlines if len(one) < len(text)))


def _cut(text: str, chars_max: int) -> tuple[str, ...]:
    return (shorten(text, chars_max),) if len(text) > chars_max else ()


def of_facts(
    facts: Sequence[RecalledFact],
    section: SectionKind,
    *,
    trust_min: float,
    count_max: int,
    now_ms: int,
) -> tuple[list[Candidate], list[Entry]]:
    """Returns facts as candidates, and those that may not enter.

    The search filters too; what decides over what a model sees does not rely on it.
    """
    candidates: list[Candidate] = []
    refused: list[Entry] = []
    for fact in facts:
        why = ""
        if not fact.trust >= trust_min:
            why = WHY.below_trust
        elif fact.expires_at_ms <= now_ms:
            why = WHY.expired
        elif any(candidate.id == f"fact:{fact.id}" for candidate in candidates):
            why = WHY.duplicate
        elif len(candidates) == count_max:
            why = WHY.over_count
        if why:
            refused.append(
                Entry(
                    f"fact:{fact.id}", section, Fate.DROPPED, why, one_line(fact.source), fact.version, trust=fact.trust
                )
            )
            continue
        candidates.append(
            Candidate(
                id=f"fact:{fact.id}",
                section=section,
                source=fact.source,
                version=fact.version,
                trust=fact.trust,
                value=min(1.0, max(0.0, fact.score)),
                text=fact.text,
                shorter=partial(_cut, fact.text, _SHORT_FACT_CHARS),
                scored=True,
            )
        )
    return candidates, refused


def of_evidence(evidence: Evidence, section: SectionKind) -> Candidate:
    """Returns a piece of evidence, or a sub-agent's summary, as a candidate."""
    kind = "evidence" if section is SectionKind.EVIDENCE else "subagent"
    return Candidate(
        id=f"{kind}:{evidence.id}",
        section=section,
        source=evidence.source or "given by the caller",
        version=0,
        trust=evidence.trust,
        value=evidence.relevance or _UNKNOWN_RELEVANCE,
        text=evidence.text,
        shorter=partial(_cut, evidence.text, _SHORT_TEXT_CHARS),
        scored=evidence.relevance > 0,
        since=evidence.carried_revision,
        carried_from=evidence.carried_from,
    )


def of_summary(summary: Summary) -> Candidate:
    """Returns a rolling summary as a candidate: names and narrative are the first to go."""
    return Candidate(
        id=f"summary:{summary.key}",
        section=SectionKind.SUMMARY,
        source=f"made of {summary.messages} messages by {summary.producer or 'unknown'}",
        version=0,
        trust=TRUST_USER,
        value=1.0,
        text=summary_text(summary),
        shorter=partial(_shorter_summary, summary),
    )


def _shorter_summary(summary: Summary) -> tuple[str, ...]:
    bare = summary._replace(entities=())
    texts = (
        summary_text(bare),
        summary_text(bare._replace(narrative=shorten(summary.narrative, 400))),
        summary_text(bare._replace(narrative="")),
        shorten(summary_text(bare._replace(narrative=shorten(summary.narrative, 200))), 400),
    )
    found = [summary_text(summary)]
    for text in texts:
        if text and len(text) < len(found[-1]):
            found.append(text)
    return tuple(found[1:])
