"""Protobuf ⇄ policies, upkeep and extractions of facts. No I/O and no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import checked_text, shown
from ._context_wire import number, several
from ._errors import InvalidArgument
from ._facts_keeping_data import (
    ConflictRule,
    ExtractionJob,
    ExtractionState,
    FactPolicy,
    FactUpkeep,
    UpkeepChange,
    UpkeepRound,
    UpkeepRun,
)
from ._facts_wire import MEMORY_TYPES, texts
from ._session_wire import name_of, number_of, time_or_none
from ._wire import from_seconds, span_seconds, to_seconds

_RULES: Mapping[ConflictRule, pb.ConflictRule.ValueType] = {
    "newest": pb.CONFLICT_RULE_NEWEST,
    "trust": pb.CONFLICT_RULE_TRUST,
    "keep_both": pb.CONFLICT_RULE_KEEP_BOTH,
}
_JOBS: Mapping[ExtractionState, int] = {
    "queued": pb.EXTRACTION_STATE_QUEUED,
    "done": pb.EXTRACTION_STATE_DONE,
    "failed": pb.EXTRACTION_STATE_FAILED,
    "suppressed": pb.EXTRACTION_STATE_SUPPRESSED,
}


def to_job(job: pb.ExtractionJob) -> ExtractionJob:
    """Returns an extraction."""
    return ExtractionJob(
        job.id,
        name_of(job.state, _JOBS, "unknown"),
        job.failure,
        tuple(job.candidate_ids),
        job.extractor,
        job.attempts,
        job.model_tokens,
    )


def from_policy(policy: FactPolicy) -> pb.FactPolicy:
    """Returns the rules of a scope as sent; what is None keeps its default.

    Raises:
        InvalidArgument: they are none, or one is of the wrong kind.
    """
    if not isinstance(policy, FactPolicy):
        raise InvalidArgument(f"policy: {shown(policy)} is {type(policy).__name__}, not a FactPolicy")
    sent = pb.FactPolicy(
        memory_types=[
            number_of(f"policy.memory_types[{index}]", name, MEMORY_TYPES)
            for index, name in enumerate(several("policy.memory_types", policy.memory_types))
        ],
        writers=texts("policy.writers", policy.writers),
        single_valued=texts("policy.single_valued", policy.single_valued),
        conflict_rule=number_of("policy.conflict_rule", policy.conflict_rule, _RULES),
        aliases={
            checked_text("policy.aliases", word): checked_text(f"policy.aliases[{shown(word)}]", meaning)
            for word, meaning in _mapping("policy.aliases", policy.aliases).items()
        },
        ttl=_spans("policy.ttl", policy.ttl),
        half_life=_spans("policy.half_life", policy.half_life),
    )
    for name in ("importance_min", "confidence_min", "trust_min"):
        if (value := getattr(policy, name)) is not None:
            setattr(sent, name, number(f"policy.{name}", value))
    return sent


def to_policy(policy: pb.FactPolicy) -> FactPolicy:
    """Returns the rules in force."""
    return FactPolicy(
        memory_types=tuple(name_of(kind, MEMORY_TYPES, "semantic") for kind in policy.memory_types),
        writers=tuple(policy.writers),
        importance_min=policy.importance_min if policy.HasField("importance_min") else None,
        confidence_min=policy.confidence_min if policy.HasField("confidence_min") else None,
        trust_min=policy.trust_min if policy.HasField("trust_min") else None,
        conflict_rule=name_of(policy.conflict_rule, _RULES, "newest"),
        single_valued=tuple(policy.single_valued),
        aliases=dict(policy.aliases),
        # The contract has the names of memory types here, and a newer server may know more of them.
        ttl={name: _span(span) for name, span in policy.ttl.items()},  # type: ignore[misc]
        half_life={name: _span(span) for name, span in policy.half_life.items()},
    )


def to_run(reply: pb.RunFactUpkeepResponse) -> UpkeepRun:
    """Returns what a run of upkeep did."""
    changes = tuple(UpkeepChange(one.fact_id, one.action, one.explanation) for one in reply.changes)
    return UpkeepRun(changes, reply.looked_at)


def to_upkeep(reply: pb.GetFactUpkeepResponse) -> FactUpkeep:
    """Returns how the facts are kept."""
    rounds = tuple(
        UpkeepRound(
            one.scope,
            time_or_none(one.HasField("end_time"), one.end_time),
            one.looked_at,
            dict(one.changed),
            one.failure,
        )
        for one in reply.rounds
    )
    return FactUpkeep(rounds, reply.waiting, reply.leased, reply.dead)


def _mapping(field: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(mapping, Mapping):
        raise InvalidArgument(f"{field}: {shown(mapping)} is {type(mapping).__name__}, not a mapping")
    return mapping


def _spans(field: str, spans: Mapping[Any, timedelta | float]) -> dict[str, Duration]:
    return {
        checked_text(field, name): from_seconds(to_seconds(f"{field}[{shown(name)}]", span))
        for name, span in _mapping(field, spans).items()
    }


def _span(span: Duration) -> timedelta:
    return timedelta(seconds=span_seconds(span))
