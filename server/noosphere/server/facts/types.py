"""The vocabulary of long-term facts: candidates, decisions, facts and their versions. Plain values, no I/O, no gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from noosphere.consistency import NEVER_MS

SENSITIVITIES = ("personal", "secret")
"""How sensitive a fact may be called; most are not."""


class MemoryType(StrEnum):
    """What kind of memory a fact is."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"


class Channel(StrEnum):
    """How a candidate came in, which decides the trust that it is given."""

    AGENT = "agent"
    USER = "user"
    EXTERNAL = "external"
    INTERNAL = "internal"


class Status(StrEnum):
    """Where a candidate stands."""

    QUEUED = "queued"
    WRITTEN = "written"
    MERGED = "merged"
    SUPERSEDED = "superseded"
    CONTESTED = "contested"
    REJECTED = "rejected"
    QUARANTINED = "quarantined"
    SUPPRESSED = "suppressed"
    DEAD = "dead"


BECAME_FACT = frozenset({Status.WRITTEN, Status.MERGED, Status.SUPERSEDED, Status.CONTESTED})


class Cardinality(StrEnum):
    """How the values of a predicate relate."""

    UNKNOWN = ""
    SINGLE = "single"
    MULTI = "multi"


class ConflictRule(StrEnum):
    """What becomes of two claims that contradict each other."""

    NEWEST = "newest"
    TRUST = "trust"
    KEEP_BOTH = "keep_both"


class FactState(StrEnum):
    """Where a fact stands."""

    CURRENT = "current"
    SUPERSEDED = "superseded"


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What supports a claim.

    Attributes:
        reference: ``msg:<session>/<message id>``, ``tool:<session>/<call id>``, ``doc:<id>``, ``url:<address>``.
        content_hash: SHA-256 of the content, where it is known.
        quote: the words that support the claim.
    """

    reference: str
    content_hash: bytes = b""
    quote: str = ""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody proposes to remember.

    Attributes:
        id: its id.
        scope: where it is valid.
        owner: whose it is.
        text: the claim in words.
        subject: what it is about; empty if not said.
        predicate: which property of it; empty if not said.
        object: the property's value, as JSON text; empty if not said.
        memory_type: what kind of memory.
        evidence: what supports it.
        confidence: 0 to 1.
        importance: 0 to 1.
        channel: how it came in.
        trust: 0 to 1, assigned by the server.
        producer: what produced it.
        actor: who submitted it, as ``agent#incarnation``; empty for the server itself.
        valid_from_ms: since when it is so in the world.
        expires_at_ms: when it ends.
        sensitivity: empty, ``personal`` or ``secret``.
        cardinality: how the predicate's values relate.
        pinned: whether it belongs to the owner's profile.
        submitted_ms: store time at which it was submitted.
        reviewed_by: who has accepted it in a review; empty if nobody did.
    """

    id: str
    scope: str
    owner: str
    text: str
    subject: str = ""
    predicate: str = ""
    object: str = ""
    memory_type: MemoryType = MemoryType.SEMANTIC
    evidence: tuple[Evidence, ...] = ()
    confidence: float = 0.0
    importance: float = 0.0
    channel: Channel = Channel.AGENT
    trust: float = 0.0
    producer: str = ""
    actor: str = ""
    valid_from_ms: int = 0
    expires_at_ms: int = NEVER_MS
    sensitivity: str = ""
    cardinality: Cardinality = Cardinality.UNKNOWN
    pinned: bool = False
    submitted_ms: int = 0
    reviewed_by: str = ""

    @property
    def agent(self) -> str:
        """The agent that submitted it, whatever its incarnation; empty for the server itself."""
        return self.actor.rpartition("#")[0]


class Why(msgspec.Struct, frozen=True):
    """One reason of a decision: which step of the pipeline, why as a word, and why in a sentence."""

    step: str
    reason: str
    explanation: str


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a candidate.

    Attributes:
        candidate_id: the candidate's id.
        status: where it stands.
        reasons: why, in the order of the pipeline.
        fact_id: the fact that it became or was merged into.
        version: that fact's version.
        superseded: facts that it superseded.
        decided_ms: store time of the decision; 0 while it waits.
    """

    candidate_id: str
    status: Status
    reasons: tuple[Why, ...] = ()
    fact_id: str = ""
    version: int = 0
    superseded: tuple[str, ...] = ()
    decided_ms: int = 0


class Fact(NamedTuple):
    """One version of one fact, as callers see it.

    Attributes:
        id: its id.
        version: its version, from 1.
        scope: where it is valid.
        owner: whose it is.
        text: the claim in words.
        subject: what it is about; empty if unknown.
        predicate: which property of it; empty if unknown.
        object: the property's value, as JSON text; empty if unknown.
        memory_type: what kind of memory.
        evidence: what supports it, the newest first.
        source_count: how many distinct sources support it.
        confidence: 0 to 1.
        importance: 0 to 1.
        trust: 0 to 1.
        producer: what produced it.
        valid_from_ms: since when it is so in the world.
        valid_to_ms: until when it was so; ``NEVER_MS`` while it is.
        expires_at_ms: when it ends.
        recorded_ms: store time at which this version was recorded.
        superseded_by: the fact that superseded it.
        contested_by: facts that contradict it and are kept beside it.
        pinned: whether it belongs to the owner's profile.
        candidates: the candidates that it came from, the newest first.
    """

    id: str
    version: int
    scope: str
    owner: str
    text: str
    subject: str
    predicate: str
    object: str
    memory_type: MemoryType
    evidence: tuple[Evidence, ...]
    source_count: int
    confidence: float
    importance: float
    trust: float
    producer: str
    valid_from_ms: int
    valid_to_ms: int
    expires_at_ms: int
    recorded_ms: int
    superseded_by: str
    contested_by: tuple[str, ...]
    pinned: bool
    candidates: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of a scope.

    Attributes:
        memory_types: which may be written; empty means all.
        writers: which agents may submit, by id or prefix ending in ``*``; empty means all.
        importance_min: below it a candidate is rejected.
        confidence_min: the same.
        trust_min: the same.
        conflict_rule: what becomes of contradictions.
        single_valued: predicates with one value at a time, beside the known ones.
        aliases: other words for the same.
        ttl_ms: how long facts live, by memory type or sensitivity; of two the shorter one counts.
        half_life_ms: half-life of confidence, by predicate.
    """

    memory_types: tuple[MemoryType, ...] = ()
    writers: tuple[str, ...] = ()
    importance_min: float = 0.6
    confidence_min: float = 0.7
    trust_min: float = 0.5
    conflict_rule: ConflictRule = ConflictRule.NEWEST
    single_valued: tuple[str, ...] = ()
    aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    ttl_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    half_life_ms: Mapping[str, int] = msgspec.field(default_factory=dict)


class Claim(NamedTuple):
    """A claim in canonical form, as all rules of the pipeline compare it.

    Attributes:
        text: the words, normalised, aliases replaced.
        subject: canonical subject, as said or as found in the words; empty if unknown.
        predicate: canonical predicate; empty if unknown.
        value: canonical value, as text for comparison; empty if unknown.
        object: the value as JSON text; empty if unknown.
        cardinality: how the predicate's values relate.
        key: hex digest; equal keys mean equal claims of one owner in one scope.
        slot: hex digest of owner, scope, subject and predicate; empty if these are unknown.
    """

    text: str
    subject: str
    predicate: str
    value: str
    object: str
    cardinality: Cardinality
    key: str
    slot: str


class Contender(NamedTuple):
    """A claim in a slot, as conflicts are settled between them.

    Attributes:
        id: the fact's id; the candidate's for the new one.
        value: canonical value.
        trust: 0 to 1.
        valid_from_ms: since when it is so in the world.
        recorded_ms: store time at which it was recorded.
    """

    id: str
    value: str
    trust: float
    valid_from_ms: int
    recorded_ms: int
