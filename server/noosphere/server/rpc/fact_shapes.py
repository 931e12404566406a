"""Facts: proto messages to domain values and back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from noosphere.consistency import NEVER_MS, Encoding, invalid
from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2

from ..facts.asked import SearchAsked
from ..facts.decisions import Known
from ..facts.extraction import Document, ExtractionNote, ExtractionState
from ..facts.extractions import ExtractAsked
from ..facts.hits import Hit, Scores
from ..facts.intake import Submission
from ..facts.selecting import Wanted
from ..facts.types import (
    Candidate,
    Cardinality,
    Channel,
    ConflictRule,
    Decision,
    Evidence,
    Fact,
    MemoryType,
    Policy,
    Status,
)
from . import decode
from .times import duration, duration_ms, timestamp, timestamp_ms

Word = TypeVar("Word", bound=StrEnum)

_MEMORY_TYPES: Mapping[int, MemoryType] = {
    pb.MEMORY_TYPE_UNSPECIFIED: MemoryType.SEMANTIC,
    pb.MEMORY_TYPE_WORKING: MemoryType.WORKING,
    pb.MEMORY_TYPE_EPISODIC: MemoryType.EPISODIC,
    pb.MEMORY_TYPE_SEMANTIC: MemoryType.SEMANTIC,
    pb.MEMORY_TYPE_PROCEDURAL: MemoryType.PROCEDURAL,
}
_CHANNELS: Mapping[int, Channel] = {
    pb.CHANNEL_UNSPECIFIED: Channel.AGENT,
    pb.CHANNEL_AGENT: Channel.AGENT,
    pb.CHANNEL_USER: Channel.USER,
    pb.CHANNEL_EXTERNAL: Channel.EXTERNAL,
    pb.CHANNEL_INTERNAL: Channel.INTERNAL,
}
_STATUSES: Mapping[int, Status] = {
    pb.CANDIDATE_STATUS_QUEUED: Status.QUEUED,
    pb.CANDIDATE_STATUS_WRITTEN: Status.WRITTEN,
    pb.CANDIDATE_STATUS_MERGED: Status.MERGED,
    pb.CANDIDATE_STATUS_SUPERSEDED: Status.SUPERSEDED,
    pb.CANDIDATE_STATUS_CONTESTED: Status.CONTESTED,
    pb.CANDIDATE_STATUS_REJECTED: Status.REJECTED,
    pb.CANDIDATE_STATUS_QUARANTINED: Status.QUARANTINED,
    pb.CANDIDATE_STATUS_SUPPRESSED: Status.SUPPRESSED,
    pb.CANDIDATE_STATUS_DEAD: Status.DEAD,
}
_EXTRACTION_STATES: Mapping[ExtractionState, pb.ExtractionState.ValueType] = {
    ExtractionState.QUEUED: pb.EXTRACTION_STATE_QUEUED,
    ExtractionState.DONE: pb.EXTRACTION_STATE_DONE,
    ExtractionState.FAILED: pb.EXTRACTION_STATE_FAILED,
    ExtractionState.SUPPRESSED: pb.EXTRACTION_STATE_SUPPRESSED,
}
_CARDINALITIES: Mapping[int, Cardinality] = {
    pb.CARDINALITY_UNSPECIFIED: Cardinality.UNKNOWN,
    pb.CARDINALITY_SINGLE: Cardinality.SINGLE,
    pb.CARDINALITY_MULTI: Cardinality.MULTI,
}
_CONFLICT_RULES: Mapping[int, ConflictRule] = {
    pb.CONFLICT_RULE_UNSPECIFIED: ConflictRule.NEWEST,
    pb.CONFLICT_RULE_NEWEST: ConflictRule.NEWEST,
    pb.CONFLICT_RULE_TRUST: ConflictRule.TRUST,
    pb.CONFLICT_RULE_KEEP_BOTH: ConflictRule.KEEP_BOTH,
}


def _word(field: str, table: Mapping[int, Word], number: int) -> Word:
    found = table.get(number)
    if found is None:
        names = ", ".join(dict.fromkeys(f"{value} = {word.name}" for value, word in table.items() if value))
        raise invalid(field, f"{number} is none of {names}")
    return found


def _number(table: Mapping[int, Word], word: Word) -> int:
    return next(value for value, known in reversed(tuple(table.items())) if known is word)


def memory_type(field: str, number: int) -> MemoryType:
    """Returns a memory type.

    Raises:
        Refusal: INVALID_FIELD.
    """
    return _word(field, _MEMORY_TYPES, number)


def status(field: str, number: int) -> Status:
    """Returns where a candidate stands.

    Raises:
        Refusal: INVALID_FIELD.
    """
    return _word(field, _STATUSES, number)


def submission(message: pb.Candidate, where: str) -> Submission:
    """Returns a candidate as it is submitted; limits are checked by the service.

    Raises:
        Refusal: INVALID_FIELD, naming the field of the candidate ``where``.
    """
    has = message.HasField
    expires_at_ms = NEVER_MS
    if has("expire_time"):
        expires_at_ms = timestamp_ms(f"{where}.expire_time", message.expire_time)
    return Submission(
        owner=message.owner,
        text=message.text,
        scope=message.scope,
        subject=message.subject,
        predicate=message.predicate,
        object=_object(f"{where}.object", message.object) if has("object") else "",
        memory_type=memory_type(f"{where}.memory_type", message.memory_type),
        evidence=tuple(Evidence(one.reference, one.content_hash, one.quote) for one in message.evidence),
        confidence=message.confidence if has("confidence") else None,
        importance=message.importance if has("importance") else None,
        channel=_word(f"{where}.channel", _CHANNELS, message.channel),
        claimed_trust=message.claimed_trust if has("claimed_trust") else None,
        producer=message.producer,
        valid_from_ms=timestamp_ms(f"{where}.valid_from", message.valid_from) if has("valid_from") else None,
        expires_at_ms=expires_at_ms,
        sensitivity=message.sensitivity,
        cardinality=_word(f"{where}.cardinality", _CARDINALITIES, message.cardinality),
        pinned=message.pinned,
        context_session=message.context_session_id,
    )


def _object(field: str, message: types_pb2.Value) -> str:
    data, encoding = decode.value(field, message)
    if encoding is not Encoding.JSON:
        raise invalid(f"{field}.encoding", "is not JSON (1), which the value of a predicate has to be")
    return data.decode()


def _json(text: str) -> types_pb2.Value | None:
    return types_pb2.Value(data=text.encode(), encoding=types_pb2.ENCODING_JSON) if text else None


def _evidence(evidence: tuple[Evidence, ...]) -> list[pb.FactEvidence]:
    return [
        pb.FactEvidence(reference=one.reference, content_hash=one.content_hash, quote=one.quote) for one in evidence
    ]


def candidate(value: Candidate) -> pb.Candidate:
    """Returns a candidate."""
    return pb.Candidate(
        id=value.id,
        text=value.text,
        subject=value.subject,
        predicate=value.predicate,
        object=_json(value.object),
        owner=value.owner,
        scope=value.scope,
        memory_type=_number(_MEMORY_TYPES, value.memory_type),  # type: ignore[arg-type] # a number of the enum
        evidence=_evidence(value.evidence),
        confidence=value.confidence,
        importance=value.importance,
        channel=_number(_CHANNELS, value.channel),  # type: ignore[arg-type] # a number of the enum
        producer=value.producer,
        valid_from=timestamp(value.valid_from_ms) if value.valid_from_ms else None,
        expire_time=timestamp(value.expires_at_ms) if value.expires_at_ms < NEVER_MS else None,
        sensitivity=value.sensitivity,
        cardinality=_number(_CARDINALITIES, value.cardinality),  # type: ignore[arg-type] # a number of the enum
        pinned=value.pinned,
        trust=value.trust,
        actor=value.actor,
        submit_time=timestamp(value.submitted_ms),
    )


def decision(value: Decision) -> pb.Decision:
    """Returns a decision."""
    return pb.Decision(
        candidate_id=value.candidate_id,
        status=_number(_STATUSES, value.status),  # type: ignore[arg-type] # a number of the enum
        reasons=[
            pb.DecisionReason(step=why.step, reason=why.reason, explanation=why.explanation) for why in value.reasons
        ],
        fact_id=value.fact_id,
        version=value.version,
        superseded=value.superseded,
        decide_time=timestamp(value.decided_ms) if value.decided_ms else None,
    )


def known(value: Known) -> pb.GetCandidateResponse:
    """Returns a candidate with what became of it."""
    return pb.GetCandidateResponse(candidate=candidate(value.candidate), decision=decision(value.decision))


def fact(value: Fact) -> pb.Fact:
    """Returns a version of a fact."""
    return pb.Fact(
        id=value.id,
        version=value.version,
        text=value.text,
        subject=value.subject,
        predicate=value.predicate,
        object=_json(value.object),
        owner=value.owner,
        scope=value.scope,
        memory_type=_number(_MEMORY_TYPES, value.memory_type),  # type: ignore[arg-type] # a number of the enum
        evidence=_evidence(value.evidence),
        source_count=value.source_count,
        confidence=value.confidence,
        importance=value.importance,
        trust=value.trust,
        producer=value.producer,
        valid_from=timestamp(value.valid_from_ms),
        valid_to=timestamp(value.valid_to_ms) if value.valid_to_ms < NEVER_MS else None,
        expire_time=timestamp(value.expires_at_ms) if value.expires_at_ms < NEVER_MS else None,
        record_time=timestamp(value.recorded_ms),
        superseded_by=value.superseded_by,
        contested_by=value.contested_by,
        pinned=value.pinned,
    )


def search(message: pb.SearchFactsRequest) -> SearchAsked:
    """Returns what is searched for; limits are checked by the service.

    Raises:
        Refusal: INVALID_FIELD.
    """
    has = message.HasField
    return SearchAsked(
        query=message.query,
        owners=tuple(message.owners),
        scopes=tuple(message.scopes),
        limit=message.limit,
        tokens_max=message.tokens_max,
        memory_types=tuple(
            memory_type(f"memory_types[{at}]", number) for at, number in enumerate(message.memory_types)
        ),
        trust_min=message.trust_min,
        subject=message.subject,
        predicate=message.predicate,
        valid_after_ms=timestamp_ms("valid_after", message.valid_after) if has("valid_after") else None,
        valid_before_ms=timestamp_ms("valid_before", message.valid_before) if has("valid_before") else None,
        as_of_ms=timestamp_ms("as_of", message.as_of) if has("as_of") else None,
        include_superseded=message.include_superseded,
        expand=message.expand,
        embed_ms_max=duration_ms("embed_timeout", message.embed_timeout) if has("embed_timeout") else None,
    )


def scores(value: Scores) -> pb.HitScores:
    """Returns why a hit stands where it stands."""
    return pb.HitScores(
        keyword=value.keyword, dense=value.dense, total=value.total, relevance=value.relevance, parts=value.parts
    )


def hit(value: Hit) -> pb.FactHit:
    """Returns a hit."""
    return pb.FactHit(fact=fact(value.fact), scores=scores(value.scores), tokens=value.tokens)


def extraction(message: pb.ExtractFactsRequest) -> ExtractAsked:
    """Returns what is to be extracted from."""
    document = Document(message.document.id, message.document.text) if message.HasField("document") else None
    return ExtractAsked(message.owner, message.scope, message.session_id, document)


def extraction_job(note: ExtractionNote) -> pb.ExtractionJob:
    """Returns an extraction."""
    return pb.ExtractionJob(
        id=note.id,
        state=_EXTRACTION_STATES[note.state],
        failure=note.failure,
        candidate_ids=note.candidate_ids,
        extractor=note.extractor,
        attempts=note.attempts,
        model_tokens=note.model_tokens,
    )


def wanted(message: pb.ForgetFactsRequest) -> Wanted:
    """Returns what is to be forgotten.

    Raises:
        Refusal: INVALID_FIELD, if nothing or an empty text says what.
    """
    what = message.WhichOneof("what")
    if what is None or not getattr(message, what):
        raise invalid(what or "what", "must not be empty: a fact's id, a query, a producer, or all of an owner")
    return Wanted(**{what: getattr(message, what)}, owner=message.owner)


def policy(message: pb.FactPolicy) -> Policy:
    """Returns the rules of a scope; limits are checked by the service.

    Raises:
        Refusal: INVALID_FIELD.
    """
    has, default = message.HasField, Policy()
    return Policy(
        memory_types=tuple(
            memory_type(f"policy.memory_types[{at}]", number) for at, number in enumerate(message.memory_types)
        ),
        writers=tuple(message.writers),
        importance_min=message.importance_min if has("importance_min") else default.importance_min,
        confidence_min=message.confidence_min if has("confidence_min") else default.confidence_min,
        trust_min=message.trust_min if has("trust_min") else default.trust_min,
        conflict_rule=_word("policy.conflict_rule", _CONFLICT_RULES, message.conflict_rule),
        single_valued=tuple(message.single_valued),
        aliases=dict(message.aliases),
        ttl_ms={name: duration_ms(f"policy.ttl[{name!r}]", span) for name, span in message.ttl.items()},
        half_life_ms={
            name: duration_ms(f"policy.half_life[{name!r}]", span) for name, span in message.half_life.items()
        },
    )


def policy_message(value: Policy) -> pb.FactPolicy:
    """Returns the rules of a scope, every field filled in."""
    return pb.FactPolicy(
        memory_types=[_number(_MEMORY_TYPES, kind) for kind in value.memory_types],  # type: ignore[misc] # numbers
        writers=value.writers,
        importance_min=value.importance_min,
        confidence_min=value.confidence_min,
        trust_min=value.trust_min,
        conflict_rule=_number(_CONFLICT_RULES, value.conflict_rule),  # type: ignore[arg-type] # a number of the enum
        single_valued=value.single_valued,
        aliases=dict(value.aliases),
        ttl={name: duration(span_ms) for name, span_ms in value.ttl_ms.items()},
        half_life={name: duration(span_ms) for name, span_ms in value.half_life_ms.items()},
    )
