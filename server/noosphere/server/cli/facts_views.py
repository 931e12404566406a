"""Turns what the client tells of facts into the documents and cells that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .facts_shapes import (
    CandidateShape,
    ExtractionShape,
    FactDecisionShape,
    FactEvidenceShape,
    FactHitShape,
    FactPathShape,
    FactPolicyShape,
    FactSearchShape,
    FactShape,
    FactUpkeepShape,
    ForgottenShape,
    HitScoresShape,
    UpkeepRunShape,
)
from .output import compact
from .session_views import cell
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import (
        CandidateState,
        ExtractionJob,
        Fact,
        FactDecision,
        FactEvidence,
        FactExplanation,
        FactHit,
        FactHits,
        FactPolicy,
        FactUpkeep,
        ForgetReport,
        HitScores,
        UpkeepRun,
    )


def fact_data(fact: Fact) -> FactShape:
    """Returns one version of a fact."""
    return {
        "id": fact.id,
        "version": fact.version,
        "text": fact.text,
        "subject": fact.subject or None,
        "predicate": fact.predicate or None,
        "object": fact.object,
        "owner": fact.owner,
        "scope": fact.scope,
        "memory_type": fact.memory_type,
        "evidence": _evidence_data(fact.evidence),
        "source_count": fact.source_count,
        "confidence": fact.confidence,
        "importance": fact.importance,
        "trust": fact.trust,
        "producer": fact.producer or None,
        "valid_from": time_text(fact.valid_from),
        "valid_to": time_text(fact.valid_to),
        "expire_time": time_text(fact.expires_at),
        "record_time": time_text(fact.recorded_at),
        "superseded_by": fact.superseded_by or None,
        "contested_by": list(fact.contested_by),
        "pinned": fact.pinned,
    }


def search_data(hits: FactHits) -> FactSearchShape:
    """Returns what a search found."""
    return {"hits": [_hit_data(hit) for hit in hits], "warnings": list(hits.warnings)}


def decision_data(decision: FactDecision) -> FactDecisionShape:
    """Returns what became of a candidate."""
    return {
        "candidate": decision.candidate_id,
        "status": decision.status,
        "reasons": [
            {"step": why.step, "reason": why.reason, "explanation": why.explanation} for why in decision.reasons
        ],
        "fact": decision.fact_id or None,
        "version": decision.version,
        "superseded": list(decision.superseded),
        "decide_time": time_text(decision.time),
    }


def candidate_data(state: CandidateState) -> CandidateShape:
    """Returns a candidate and what became of it."""
    candidate = state.candidate
    return {
        "id": candidate.id,
        "text": candidate.text or None,
        "subject": candidate.subject or None,
        "predicate": candidate.predicate or None,
        "object": candidate.object,
        "owner": candidate.owner,
        "scope": candidate.scope,
        "memory_type": candidate.memory_type,
        "said_by": candidate.said_by,
        "evidence": _evidence_data(candidate.sources),
        "trust": candidate.trust,
        "producer": candidate.producer or None,
        "actor": candidate.actor or None,
        "submit_time": time_text(candidate.time),
        "decision": decision_data(state.decision),
    }


CANDIDATE_COLUMNS = ("DECIDED", "STATUS", "CANDIDATE", "TRUST", "TEXT", "WHY")

_WORDS_CHARS_MAX = 60


def candidate_row(state: CandidateState) -> tuple[str, ...]:
    """Returns a candidate as a row of a table with ``CANDIDATE_COLUMNS``."""
    return (
        time_text(state.decision.time) or "-",
        state.decision.status,
        state.decision.candidate_id,
        f"{state.candidate.trust:.2f}",
        cell(state.candidate.text or "-", _WORDS_CHARS_MAX),
        cell(last_reason(state.decision), _WORDS_CHARS_MAX),
    )


def path_data(path: FactExplanation) -> FactPathShape:
    """Returns the path of a fact."""
    return {
        "fact": fact_data(path.fact),
        "candidates": [candidate_data(state) for state in path.candidates],
        "rank": path.rank,
        "scores": None if path.scores is None else _scores_data(path.scores),
    }


def forgotten_data(report: ForgetReport) -> ForgottenShape:
    """Returns what was forgotten."""
    return {
        "facts": list(report.fact_ids),
        "places": dict(report.places),
        "remaining": list(report.remaining),
        "dry_run": report.dry_run,
    }


def extraction_data(job: ExtractionJob) -> ExtractionShape:
    """Returns an extraction."""
    return {
        "id": job.id,
        "state": job.state,
        "failure": job.failure or None,
        "candidates": list(job.candidate_ids),
        "extractor": job.extractor or None,
        "attempts": job.attempts,
        "model_tokens": job.model_tokens,
    }


def policy_data(policy: FactPolicy) -> FactPolicyShape:
    """Returns the rules of a scope."""
    return {
        "memory_types": list(policy.memory_types),
        "writers": list(policy.writers),
        "importance_min": policy.importance_min,
        "confidence_min": policy.confidence_min,
        "trust_min": policy.trust_min,
        "conflict_rule": policy.conflict_rule,
        "single_valued": list(policy.single_valued),
        "aliases": dict(policy.aliases),
        "ttl": _seconds(policy.ttl),
        "half_life": _seconds(policy.half_life),
    }


def run_data(run: UpkeepRun, *, dry_run: bool) -> UpkeepRunShape:
    """Returns what a run of upkeep did."""
    return {
        "changes": [{"fact": one.fact_id, "action": one.action, "explanation": one.explanation} for one in run.changes],
        "looked_at": run.looked_at,
        "dry_run": dry_run,
    }


def upkeep_data(upkeep: FactUpkeep) -> FactUpkeepShape:
    """Returns how facts are kept."""
    return {
        "rounds": [
            {
                "scope": one.scope,
                "end_time": time_text(one.time),
                "looked_at": one.looked_at,
                "changed": dict(one.changed),
                "failure": one.failure or None,
            }
            for one in upkeep.rounds
        ],
        "waiting": upkeep.waiting,
        "leased": upkeep.leased,
        "dead": upkeep.dead,
    }


def claim_text(fact: Fact) -> str:
    """Returns what a fact says as a property, e.g. ``user · units = "metric"``; ``-`` if it is text alone."""
    named = " · ".join(part for part in (fact.subject, fact.predicate) if part)
    value = "" if fact.object is None else compact(fact.object)
    return " = ".join(part for part in (named, value) if part) or "-"


def standing_text(fact: Fact) -> str:
    """Returns where a fact stands, in a word or with the facts that it has to do with."""
    if fact.superseded_by:
        return f"superseded by {fact.superseded_by}"
    if fact.valid_to is not None:
        return f"ended {time_text(fact.valid_to)}"
    return f"contested by {', '.join(fact.contested_by)}" if fact.contested_by else "current"


def parts_text(scores: HitScores) -> str:
    """Returns what each signal adds to a hit's score, the greatest first."""
    parts = sorted(scores.parts.items(), key=lambda part: (-abs(part[1]), part[0]))
    return ", ".join(f"{name} {value:+.2f}" for name, value in parts) or "-"


def last_reason(decision: FactDecision) -> str:
    """Returns the reason that settled what became of a candidate, in a sentence."""
    return decision.reasons[-1].explanation if decision.reasons else "-"


def _hit_data(hit: FactHit) -> FactHitShape:
    return {"fact": fact_data(hit.fact), "scores": _scores_data(hit.scores), "tokens": hit.tokens}


def _scores_data(scores: HitScores) -> HitScoresShape:
    return {
        "keyword": scores.keyword,
        "dense": scores.dense,
        "total": scores.total,
        "relevance": scores.relevance,
        "parts": dict(scores.parts),
    }


def _evidence_data(evidence: Iterable[FactEvidence]) -> list[FactEvidenceShape]:
    return [
        {"reference": one.reference, "quote": one.quote or None, "content_hash": one.content_hash.hex() or None}
        for one in evidence
    ]


def _seconds(spans: Mapping[Any, timedelta | float]) -> dict[str, float]:
    return {name: span.total_seconds() if isinstance(span, timedelta) else float(span) for name, span in spans.items()}
