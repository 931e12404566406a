"""Protobuf ⇄ candidates, decisions, facts and hits. No I/O and no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noosphere.consistency import Encoding
from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import checked_text, shown
from ._context_wire import number
from ._errors import InvalidArgument
from ._facts_data import (
    Candidate,
    CandidateState,
    CandidateStatus,
    Cardinality,
    DecisionReason,
    Fact,
    FactDecision,
    FactEvidence,
    FactExplanation,
    FactHit,
    FactHits,
    HitScores,
    MemoryType,
    SaidBy,
    Sensitivity,
    evidence_of,
)
from ._session_wire import name_of, number_of, time_or_none
from ._values import JSON
from ._wire import from_payload, from_time, to_payload

MEMORY_TYPES: Mapping[MemoryType, pb.MemoryType.ValueType] = {
    "working": pb.MEMORY_TYPE_WORKING,
    "episodic": pb.MEMORY_TYPE_EPISODIC,
    "semantic": pb.MEMORY_TYPE_SEMANTIC,
    "procedural": pb.MEMORY_TYPE_PROCEDURAL,
}
CHANNELS: Mapping[SaidBy, pb.Channel.ValueType] = {
    "agent": pb.CHANNEL_AGENT,
    "user": pb.CHANNEL_USER,
    "external": pb.CHANNEL_EXTERNAL,
    "internal": pb.CHANNEL_INTERNAL,
}
STATUSES: Mapping[CandidateStatus, pb.CandidateStatus.ValueType] = {
    "queued": pb.CANDIDATE_STATUS_QUEUED,
    "written": pb.CANDIDATE_STATUS_WRITTEN,
    "merged": pb.CANDIDATE_STATUS_MERGED,
    "superseded": pb.CANDIDATE_STATUS_SUPERSEDED,
    "contested": pb.CANDIDATE_STATUS_CONTESTED,
    "rejected": pb.CANDIDATE_STATUS_REJECTED,
    "quarantined": pb.CANDIDATE_STATUS_QUARANTINED,
    "suppressed": pb.CANDIDATE_STATUS_SUPPRESSED,
    "dead": pb.CANDIDATE_STATUS_DEAD,
}
CARDINALITIES: Mapping[Cardinality, pb.Cardinality.ValueType] = {
    "single": pb.CARDINALITY_SINGLE,
    "multi": pb.CARDINALITY_MULTI,
}
_SENSITIVITIES: tuple[Sensitivity, ...] = ("", "personal", "secret")


def to_evidence(evidence: Iterable[pb.FactEvidence]) -> tuple[FactEvidence, ...]:
    """Returns what supports a claim."""
    return tuple(FactEvidence(one.reference, one.quote, one.content_hash) for one in evidence)


def from_evidence(field: str, evidence: FactEvidence) -> pb.FactEvidence:
    """Returns what supports a claim as sent.

    Raises:
        InvalidArgument: a part of it is of the wrong kind.
    """
    if not isinstance(evidence.content_hash, bytes):
        raise InvalidArgument(f"{field}.content_hash: {shown(evidence.content_hash)} is not bytes")
    return pb.FactEvidence(
        reference=checked_text(f"{field}.reference", evidence.reference),
        quote=checked_text(f"{field}.quote", evidence.quote),
        content_hash=evidence.content_hash,
    )


def to_candidate(candidate: pb.Candidate) -> Candidate:
    """Returns a candidate as the server has it."""
    return Candidate(
        candidate.text,
        candidate.owner,
        subject=candidate.subject,
        predicate=candidate.predicate,
        object=_object(candidate),
        scope=candidate.scope,
        memory_type=name_of(candidate.memory_type, MEMORY_TYPES, "semantic"),
        said_by=name_of(candidate.channel, CHANNELS, "agent"),
        evidence=to_evidence(candidate.evidence),
        confidence=candidate.confidence if candidate.HasField("confidence") else None,
        importance=candidate.importance if candidate.HasField("importance") else None,
        claimed_trust=candidate.claimed_trust if candidate.HasField("claimed_trust") else None,
        producer=candidate.producer,
        valid_from=time_or_none(candidate.HasField("valid_from"), candidate.valid_from),
        expires_at=time_or_none(candidate.HasField("expire_time"), candidate.expire_time),
        sensitivity=_sensitivity(candidate.sensitivity),
        cardinality=next((n for n, value in CARDINALITIES.items() if value == candidate.cardinality), None),
        pinned=candidate.pinned,
        session_id=candidate.context_session_id,
        id=candidate.id,
        trust=candidate.trust,
        actor=candidate.actor,
        time=time_or_none(candidate.HasField("submit_time"), candidate.submit_time),
    )


def from_candidate(field: str, candidate: Candidate, owner: str) -> pb.Candidate:
    """Returns a candidate as sent.

    Args:
        field: what it is, for errors.
        candidate: the candidate; what the server sets is left out.
        owner: whose fact it is, if it does not say so itself.

    Raises:
        InvalidArgument: a part of it is of the wrong kind.
    """
    sent = pb.Candidate(
        memory_type=number_of(f"{field}memory_type", candidate.memory_type, MEMORY_TYPES),
        channel=number_of(f"{field}said_by", candidate.said_by, CHANNELS),
        pinned=bool(candidate.pinned),
        evidence=[
            from_evidence(f"{field}evidence[{index}]", evidence)
            for index, evidence in enumerate(evidence_of(f"{field}evidence", candidate.evidence, candidate.session_id))
        ],
        owner=checked_text(f"{field}owner", candidate.owner) or owner,
        sensitivity=checked_sensitivity(f"{field}sensitivity", candidate.sensitivity),
        context_session_id=checked_text(f"{field}session_id", candidate.session_id),
    )
    for name in ("text", "subject", "predicate", "scope", "producer"):
        setattr(sent, name, checked_text(f"{field}{name}", getattr(candidate, name)))
    for name in ("confidence", "importance", "claimed_trust"):
        if (value := getattr(candidate, name)) is not None:
            setattr(sent, name, number(f"{field}{name}", value))
    if candidate.object is not None:
        payload = JSON.encode(candidate.object, f"{field}object")
        if payload.encoding is not Encoding.JSON:
            raise InvalidArgument(f"{field}object: bytes are not JSON")
        sent.object.CopyFrom(from_payload(payload))
    if candidate.valid_from is not None:
        sent.valid_from.CopyFrom(from_time(f"{field}valid_from", candidate.valid_from))
    if candidate.expires_at is not None:
        sent.expire_time.CopyFrom(from_time(f"{field}expires_at", candidate.expires_at))
    if candidate.cardinality is not None:
        sent.cardinality = number_of(f"{field}cardinality", candidate.cardinality, CARDINALITIES)
    return sent


def checked_sensitivity(field: str, sensitivity: Sensitivity) -> Sensitivity:
    """Returns ``sensitivity``.

    Raises:
        InvalidArgument: there is no such word.
    """
    if sensitivity not in _SENSITIVITIES:
        raise InvalidArgument(f"{field}: {shown(sensitivity)} is not one of personal, secret, nor empty")
    return sensitivity


def to_decision(decision: pb.Decision) -> FactDecision:
    """Returns what became of a candidate."""
    return FactDecision(
        decision.candidate_id,
        name_of(decision.status, STATUSES, "unknown"),
        tuple(DecisionReason(why.step, why.reason, why.explanation) for why in decision.reasons),
        decision.fact_id,
        decision.version,
        tuple(decision.superseded),
        time_or_none(decision.HasField("decide_time"), decision.decide_time),
    )


def to_state(found: pb.GetCandidateResponse) -> CandidateState:
    """Returns a candidate with what became of it."""
    return CandidateState(to_candidate(found.candidate), to_decision(found.decision))


def to_fact(fact: pb.Fact) -> Fact:
    """Returns one version of a fact."""
    return Fact(
        fact.id,
        fact.version,
        fact.text,
        fact.subject,
        fact.predicate,
        _object(fact),
        fact.owner,
        fact.scope,
        name_of(fact.memory_type, MEMORY_TYPES, "semantic"),
        to_evidence(fact.evidence),
        fact.source_count,
        fact.confidence,
        fact.importance,
        fact.trust,
        fact.producer,
        time_or_none(fact.HasField("valid_from"), fact.valid_from),
        time_or_none(fact.HasField("valid_to"), fact.valid_to),
        time_or_none(fact.HasField("expire_time"), fact.expire_time),
        time_or_none(fact.HasField("record_time"), fact.record_time),
        fact.superseded_by,
        tuple(fact.contested_by),
        fact.pinned,
    )


def to_hits(reply: pb.SearchFactsResponse) -> FactHits:
    """Returns what a search found."""
    hits = tuple(FactHit(to_fact(hit.fact), to_scores(hit.scores), hit.tokens) for hit in reply.hits)
    return FactHits(hits, tuple(reply.warnings))


def to_scores(scores: pb.HitScores) -> HitScores:
    """Returns why a hit stands where it stands."""
    return HitScores(scores.keyword, scores.dense, scores.total, scores.relevance, dict(scores.parts))


def to_explanation(reply: pb.ExplainFactResponse) -> FactExplanation:
    """Returns the path of a fact."""
    return FactExplanation(
        to_fact(reply.fact),
        tuple(map(to_state, reply.candidates)),
        reply.rank or None,
        to_scores(reply.scores) if reply.rank else None,
    )


def texts(field: str, values: Iterable[str]) -> list[str]:
    """Returns several texts.

    Raises:
        InvalidArgument: it is one, or one of them is no text.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{field}: {shown(values)} is {type(values).__name__}, not several texts")
    return [checked_text(f"{field}[{index}]", value) for index, value in enumerate(values)]


def _object(holder: pb.Candidate | pb.Fact) -> Any:
    return JSON.decode(to_payload(holder.object)) if holder.HasField("object") else None


def _sensitivity(text: str) -> Sensitivity:
    # A word that only a newer server knows is no less than personal.
    return next((known for known in _SENSITIVITIES if known == text), "personal")
