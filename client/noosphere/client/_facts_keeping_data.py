"""What keeps facts, as plain values: policies, upkeep, extractions, and what was forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from ._facts_data import MemoryType, Sensitivity

ConflictRule = Literal["newest", "trust", "keep_both"]
"""What becomes of two claims that contradict each other: the newest wins; the more trusted one does; both are kept."""

ExtractionState = Literal["queued", "done", "failed", "suppressed", "unknown"]
"""Where an extraction stands: it waits for a worker; its candidates are submitted; it was given up, its sources
untouched; what it was to read was forgotten; or something that a newer server knows."""


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What was forgotten, or would be.

    Attributes:
        fact_ids: the facts, at most 1,000.
        places: how many entries were removed from each place: ``facts``, ``index``, ``candidates``, ``queue``,
            ``messages``, ``tool_results``, ``summaries``, ``checkpoints``, ``outbox``, ``replies``, ``log``. Also
            ``sources``: what a producer had said for facts that others say, too; and ``revived``: facts that are
            current again, since what had superseded them is gone.
        remaining: what may still hold it, for people: e.g. backups made before.
        dry_run: whether nothing was done.
    """

    fact_ids: tuple[str, ...]
    places: Mapping[str, int]
    remaining: tuple[str, ...]
    dry_run: bool

    def explain(self) -> str:
        """Returns what was removed where, or would be, and what may still hold it, in one line."""
        count = len(self.fact_ids)
        done = f"{count} {'fact' if count == 1 else 'facts'} {'would be forgotten' if self.dry_run else 'forgotten'}"
        places = ", ".join(f"{place} {entries}" for place, entries in self.places.items() if entries)
        remaining = f"; may still hold it: {', '.join(self.remaining)}" if self.remaining else ""
        return done + (f" ({places})" if places else "") + remaining


class SourceDocument(NamedTuple):
    """A document to extract facts from; they have the trust of external content.

    Attributes:
        id: its id, by which it is their evidence: ``doc:<id>``.
        text: its text, at most 512 KiB.
    """

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ExtractionJob:
    """An extraction of candidates from sources.

    Attributes:
        id: its id.
        state: where it stands.
        failure: why it failed; empty if it did not.
        candidate_ids: the candidates that it submitted, at most 1,000.
        extractor: what extracted, with its version.
        attempts: how often it was tried.
        model_tokens: tokens that models were asked to read and write for it.
    """

    id: str
    state: ExtractionState
    failure: str
    candidate_ids: tuple[str, ...]
    extractor: str
    attempts: int
    model_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPolicy:
    """The rules of a scope. To be set, None stands for the default; what is read has all defaults filled in.

    Attributes:
        memory_types: which memory types may be written; empty means all.
        writers: which agents may submit, by name or by a prefix that ends in ``*``; empty means all.
        importance_min: below this importance a candidate is rejected (0.6).
        confidence_min: below this confidence (0.7).
        trust_min: below this trust (0.5).
        conflict_rule: what becomes of contradictions.
        single_valued: predicates with one value at a time, beside the known ones; at most 256.
        aliases: other words for the same, e.g. ``{"乌班图": "Ubuntu"}``; at most 1,024.
        ttl: how long facts live, by memory type or sensitivity, in seconds or as spans. Of two the shorter one
            counts; what is not named lives for ever.
        half_life: half-life of confidence, by predicate, likewise; the others do not decay.
    """

    memory_types: Sequence[MemoryType] = ()
    writers: Sequence[str] = ()
    importance_min: float | None = None
    confidence_min: float | None = None
    trust_min: float | None = None
    conflict_rule: ConflictRule = "newest"
    single_valued: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    ttl: Mapping[MemoryType | Sensitivity, timedelta | float] = field(default_factory=dict)
    half_life: Mapping[str, timedelta | float] = field(default_factory=dict)


class UpkeepChange(NamedTuple):
    """One change that upkeep makes.

    Attributes:
        fact_id: the fact's id.
        action: what: ``decay``, ``merge``, ``expire``, ``compress``, ``sweep``.
        explanation: why, in a sentence.
    """

    fact_id: str
    action: str
    explanation: str


class UpkeepRun(NamedTuple):
    """What a run of upkeep did, or would do.

    Attributes:
        changes: the changes, at most 1,000.
        looked_at: how many facts were looked at.
    """

    changes: tuple[UpkeepChange, ...]
    looked_at: int


class UpkeepRound(NamedTuple):
    """One round of upkeep.

    Attributes:
        scope: the scope.
        time: store time at which it ended.
        looked_at: how many facts were looked at.
        changed: how many changes were made, by action.
        failure: why it failed; empty if it did not. Each change is made whole or not at all; ``changed`` has those
            made before.
    """

    scope: str
    time: datetime | None
    looked_at: int
    changed: Mapping[str, int]
    failure: str


class FactUpkeep(NamedTuple):
    """How the facts are kept.

    Attributes:
        rounds: the newest round of each scope, at most 1,000.
        waiting: how many candidates and jobs wait.
        leased: how many are being decided.
        dead: how many were given up.
    """

    rounds: tuple[UpkeepRound, ...]
    waiting: int
    leased: int
    dead: int
