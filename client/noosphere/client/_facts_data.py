"""What is known of long-term facts, as plain values: candidates and their fate, facts, hits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast, overload

from ._arguments import shown
from ._errors import InvalidArgument
from ._messages import Message

MemoryType = Literal["working", "episodic", "semantic", "procedural"]
"""What kind of memory a fact is: state of work under way; what happened; what is so; how something is done."""

SaidBy = Literal["agent", "user", "external", "internal"]
"""How a claim came in, from which the server assigns its trust: an agent's memory tool; a user, in a message that the
server holds; external content; an operator, as an import does."""

CandidateStatus = Literal[
    "queued", "written", "merged", "superseded", "contested", "rejected", "quarantined", "suppressed", "dead", "unknown"
]
"""Where a candidate stands: it waits; became a new fact; its evidence was added to a known one; became a fact and
superseded another; became one beside another that contradicts it; was refused; is kept apart for a review; was
forgotten, or had been before it came; could not be decided; or something that a newer server knows."""

Cardinality = Literal["single", "multi"]
"""How the values of a predicate relate: a new one supersedes the old; or they stand side by side."""

Sensitivity = Literal["", "personal", "secret"]

BECAME_FACT: frozenset[CandidateStatus] = frozenset({"written", "merged", "superseded", "contested"})


class FactEvidence(NamedTuple):
    """What supports a claim.

    Attributes:
        reference: what it is: ``msg:<session>/<message id>``, ``tool:<session>/<call id>``, ``doc:<id>``,
            ``url:<address>``.
        quote: the words that support the claim, at most 1 KiB.
        content_hash: SHA-256 of the content, where its producer has it; else empty.
    """

    reference: str
    quote: str = ""
    content_hash: bytes = b""


EvidenceLike = FactEvidence | Message | str
"""Evidence, or the reference alone; or a message of the session in which its producer works, as appended."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What somebody proposes to remember.

    Attributes:
        text: the claim in words, at most 4 KiB; empty of one that was forgotten.
        owner: whose fact it is, e.g. ``user/42``; empty for the agent's own, ``agent/<its name>``.
        subject: what it is about.
        predicate: which property of it.
        object: the property's value, any JSON value; None if it is not said.
        scope: where it is valid; empty for the owner's own.
        memory_type: what kind of memory.
        said_by: how it came in.
        evidence: what supports it, at most 32; a candidate that is read has :class:`FactEvidence` here.
        confidence: how sure its producer is, 0 to 1; None for the channel's default.
        importance: how much it matters, 0 to 1; None for the channel's default.
        claimed_trust: the trust that its producer claims, 0 to 1; more than the server assigns is refused. None
            claims none.
        producer: what produced it, e.g. a tool's name and version.
        valid_from: since when it is so in the world; None for since it was submitted.
        expires_at: when it ends; None for never.
        sensitivity: how sensitive it is.
        cardinality: how the predicate's values relate; None if it is not said.
        pinned: whether it belongs to the owner's profile, which every context shows.
        session_id: the session in which its producer works. Without evidence, its trust is that of what was seen
            there.
        id: set by the server.
        trust: set by the server.
        actor: who submitted it, as ``agent#incarnation``; set by the server.
        time: store time at which it was submitted; set by the server.
    """

    text: str
    owner: str = ""
    _: KW_ONLY
    subject: str = ""
    predicate: str = ""
    object: Any = None
    scope: str = ""
    memory_type: MemoryType = "semantic"
    said_by: SaidBy = "agent"
    evidence: Sequence[EvidenceLike] = ()
    confidence: float | None = None
    importance: float | None = None
    claimed_trust: float | None = None
    producer: str = ""
    valid_from: datetime | None = None
    expires_at: datetime | None = None
    sensitivity: Sensitivity = ""
    cardinality: Cardinality | None = None
    pinned: bool = False
    session_id: str = ""
    id: str = ""
    trust: float = 0.0
    actor: str = ""
    time: datetime | None = None

    @property
    def sources(self) -> tuple[FactEvidence, ...]:
        """The evidence as :class:`FactEvidence`, whatever it was given as.

        Raises:
            InvalidArgument: one is none, or a message that was not appended or whose session is not said.
        """
        return evidence_of("evidence", self.evidence, self.session_id)


class DecisionReason(NamedTuple):
    """One reason of a decision.

    Attributes:
        step: which step of the pipeline.
        reason: why, as a word, e.g. ``low_trust``, ``duplicate``, ``newer_known``.
        explanation: why, in a sentence.
    """

    step: str
    reason: str
    explanation: str

    def __str__(self) -> str:
        # Reasons stand one after the other in one line, and a full stop before a semicolon reads badly.
        return f"{self.step}: {self.explanation.removesuffix('.') or self.reason}"


@dataclass(frozen=True, slots=True)
class FactDecision:
    """What became of a candidate.

    Attributes:
        candidate_id: the candidate's id.
        status: where it stands.
        reasons: why, in the order of the pipeline.
        fact_id: the fact that it became or was merged into; empty if none.
        version: that fact's version; 0 if none.
        superseded: ids of facts that it superseded.
        time: store time of the decision; None while the candidate waits.
    """

    candidate_id: str
    status: CandidateStatus
    reasons: tuple[DecisionReason, ...]
    fact_id: str
    version: int
    superseded: tuple[str, ...]
    time: datetime | None

    @property
    def known(self) -> bool:
        """Whether what was claimed is a fact now."""
        return self.status in BECAME_FACT

    def explain(self) -> str:
        """Returns what became of it and why, in one line."""
        why = "; ".join(map(str, self.reasons))
        return f"{self.status} ({why})" if why else self.status


class CandidateState(NamedTuple):
    """A candidate with what became of it.

    Attributes:
        candidate: the candidate; without words if it was forgotten.
        decision: what became of it.
    """

    candidate: Candidate
    decision: FactDecision


@dataclass(frozen=True, slots=True)
class Fact:
    """One version of a fact.

    Attributes:
        id: its id.
        version: its version, which grows with every change.
        text: the claim in words.
        subject: what it is about; empty if unknown.
        predicate: which property of it; empty if unknown.
        object: the property's value, a JSON value; None if unknown.
        owner: whose fact it is.
        scope: where it is valid.
        memory_type: what kind of memory.
        evidence: what supports it, at most 32, the newest first.
        source_count: how many distinct sources support it.
        confidence: how sure it is, 0 to 1.
        importance: how much it matters, 0 to 1.
        trust: how far it is trusted, 0 to 1.
        producer: what produced it.
        valid_from: since when it is so in the world.
        valid_to: until when it was so; None while it is.
        expires_at: when it ends; None for never.
        recorded_at: store time at which this version was recorded.
        superseded_by: the fact that superseded it; empty while it is current.
        contested_by: ids of facts that contradict it and are kept beside it.
        pinned: whether it belongs to the owner's profile.
    """

    id: str
    version: int
    text: str
    subject: str
    predicate: str
    object: Any
    owner: str
    scope: str
    memory_type: MemoryType
    evidence: tuple[FactEvidence, ...]
    source_count: int
    confidence: float
    importance: float
    trust: float
    producer: str
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    recorded_at: datetime | None
    superseded_by: str
    contested_by: tuple[str, ...]
    pinned: bool


@dataclass(frozen=True, slots=True)
class HitScores:
    """Why a hit stands where it stands.

    Attributes:
        keyword: by keywords, 0 to 1.
        dense: by meaning, 0 to 1; 0 if the query was not embedded.
        total: both fused, with recency, confidence and trust.
        relevance: how likely the fact helps, 0 to 1.
        parts: what each signal of the ranking adds to the total; zeros are left out.
    """

    keyword: float
    dense: float
    total: float
    relevance: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FactHit:
    """One fact that a search found.

    Attributes:
        fact: the fact.
        scores: why it stands here.
        tokens: its size in tokens.
    """

    fact: Fact
    scores: HitScores
    tokens: int

    @property
    def id(self) -> str:
        """The fact's id."""
        return self.fact.id

    @property
    def version(self) -> int:
        """The fact's version."""
        return self.fact.version

    @property
    def text(self) -> str:
        """The claim in words."""
        return self.fact.text

    @property
    def trust(self) -> float:
        """How far it is trusted, 0 to 1."""
        return self.fact.trust

    @property
    def evidence(self) -> tuple[FactEvidence, ...]:
        """What supports it, the newest first."""
        return self.fact.evidence

    @property
    def relevance(self) -> float:
        """How likely it helps, 0 to 1."""
        return self.scores.relevance

    def why(self) -> str:
        """Returns why it stands here, in one line: its relevance, and what each signal adds, the most first."""
        parts = sorted(self.scores.parts.items(), key=lambda part: (-abs(part[1]), part[0]))
        shown = ", ".join(f"{name} {value:+.2f}" for name, value in parts)
        return f"relevance {self.scores.relevance:.2f}" + (f": {shown}" if shown else "")


@dataclass(frozen=True, slots=True)
class FactHits(Sequence[FactHit]):
    """What a search found: a sequence of hits, the best first.

    Attributes:
        hits: the hits.
        warnings: words of warning: ``DENSE_SKIPPED``, the query was not embedded in time; ``INDEX_BEHIND``.
    """

    hits: tuple[FactHit, ...]
    warnings: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> FactHit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FactHit, ...]: ...
    def __getitem__(self, index: int | slice) -> FactHit | tuple[FactHit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[FactHit]:
        return iter(self.hits)

    @property
    def tokens(self) -> int:
        """The size of all texts together, in tokens."""
        return sum(hit.tokens for hit in self.hits)


@dataclass(frozen=True, slots=True)
class FactExplanation:
    """The whole path of a fact, from its evidence to its rank.

    Attributes:
        fact: the fact, with its evidence.
        candidates: the candidates that it came from, with their decisions.
        rank: its rank for the query, from 1; None if there was no query, or it was not found.
        scores: why it stands there; None without a rank.
    """

    fact: Fact
    candidates: tuple[CandidateState, ...]
    rank: int | None
    scores: HitScores | None


def evidence_of(
    field: str, evidence: EvidenceLike | Sequence[EvidenceLike], session_id: str = ""
) -> tuple[FactEvidence, ...]:
    """Returns evidence in its one form.

    Args:
        field: what it is, for errors.
        evidence: one or several.
        session_id: the session of messages among them.

    Raises:
        InvalidArgument: one is none, or a message that was not appended or whose session is not said.
    """
    if isinstance(evidence, FactEvidence):
        return (evidence,)
    if isinstance(evidence, (Message, str)):
        return (_one(field, evidence, session_id),)
    if not isinstance(evidence, Sequence):
        raise InvalidArgument(f"{field}: {shown(evidence)} is {type(evidence).__name__}, not evidence")
    # A named tuple is a sequence of its fields, too, for all that type checkers know.
    several = cast("Sequence[EvidenceLike]", evidence)
    return tuple(_one(f"{field}[{index}]", one, session_id) for index, one in enumerate(several))


def _one(field: str, evidence: EvidenceLike, session_id: str) -> FactEvidence:
    match evidence:
        case FactEvidence():
            return evidence
        case str():
            return FactEvidence(evidence)
        case Message() if not evidence.id:
            raise InvalidArgument(f"{field}: the message has no id: give it as `append` has returned it")
        case Message() if not session_id:
            raise InvalidArgument(f"{field}: a message is evidence together with its session, which is not said")
        case Message():
            return FactEvidence(f"msg:{session_id}/{evidence.id}")
    raise InvalidArgument(f"{field}: {shown(evidence)} is {type(evidence).__name__}, not evidence")
