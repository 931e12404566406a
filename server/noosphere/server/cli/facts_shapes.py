"""The documents that commands about facts print with ``--json``, and that ``facts import`` reads; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict


class FactEvidenceShape(TypedDict):
    """What supports a claim."""

    reference: Annotated[str, "`msg:<session>/<message id>`, `tool:<session>/<call id>`, `doc:<id>`, `url:<address>`."]
    quote: Annotated[str | None, "The words that support the claim."]
    content_hash: Annotated[str | None, "SHA-256 of the content, in hexadecimal digits."]


class FactShape(TypedDict):
    """One version of a fact. `facts export` writes a line for each fact, and `facts import` reads them."""

    id: Annotated[str, "Its id: `<scope>#` and 24 hexadecimal digits."]
    version: Annotated[int, "Its version, which grows with every change."]
    text: Annotated[str, "The claim in words."]
    subject: Annotated[str | None, "What it is about."]
    predicate: Annotated[str | None, "Which property of it."]
    object: Annotated[Any, "The property's value."]
    owner: Annotated[str, "Whose fact it is."]
    scope: Annotated[str, "Where it is valid."]
    memory_type: Annotated[str, "`working`, `episodic`, `semantic` or `procedural`."]
    evidence: Annotated[list[FactEvidenceShape], "What supports it, the newest first."]
    source_count: Annotated[int, "How many distinct sources support it."]
    confidence: Annotated[float, "How sure it is, 0 to 1."]
    importance: Annotated[float, "How much it matters, 0 to 1."]
    trust: Annotated[float, "How far it is trusted, 0 to 1."]
    producer: Annotated[str | None, "What produced it."]
    valid_from: Annotated[str | None, "Since when it is so in the world."]
    valid_to: Annotated[str | None, "Until when it was so; null while it is."]
    expire_time: Annotated[str | None, "When it ends."]
    record_time: Annotated[str | None, "When this version was recorded."]
    superseded_by: Annotated[str | None, "The fact that superseded it."]
    contested_by: Annotated[list[str], "Facts that contradict it and are kept beside it."]
    pinned: Annotated[bool, "Whether it belongs to the owner's profile."]


class HitScoresShape(TypedDict):
    """Why a hit stands where it stands."""

    keyword: Annotated[float, "By keywords, 0 to 1."]
    dense: Annotated[float, "By meaning, 0 to 1; 0 if the query was not embedded."]
    total: Annotated[float, "Fused, with recency, confidence and trust."]
    relevance: Annotated[float, "How likely it helps, 0 to 1."]
    parts: Annotated[dict[str, float], "What each signal of the ranking adds to the total."]


class FactHitShape(TypedDict):
    """A fact that a search found."""

    fact: Annotated[FactShape, "The fact."]
    scores: Annotated[HitScoresShape, "Why it stands here."]
    tokens: Annotated[int, "Its size in tokens."]


class FactSearchShape(TypedDict):
    """What a search found."""

    hits: Annotated[list[FactHitShape], "The hits, the best first."]
    warnings: Annotated[list[str], "`DENSE_SKIPPED`, `INDEX_BEHIND`."]


class DecisionReasonShape(TypedDict):
    """One reason of a decision."""

    step: Annotated[str, "Which step of the pipeline."]
    reason: Annotated[str, "Why, as a word."]
    explanation: Annotated[str, "Why, in a sentence."]


class FactDecisionShape(TypedDict):
    """What became of a candidate."""

    candidate: Annotated[str, "The candidate's id."]
    status: Annotated[
        str,
        "`queued`, `written`, `merged`, `superseded`, `contested`, `rejected`, `quarantined`, `suppressed`, `dead` or "
        "`unknown`.",
    ]
    reasons: Annotated[list[DecisionReasonShape], "Why, in the order of the pipeline."]
    fact: Annotated[str | None, "The fact that it became or was merged into."]
    version: Annotated[int, "That fact's version; 0 if none."]
    superseded: Annotated[list[str], "Facts that it superseded."]
    decide_time: Annotated[str | None, "When it was decided."]


class CandidateShape(TypedDict):
    """A candidate and what became of it."""

    id: Annotated[str, "Its id: `<scope>#c` and 24 hexadecimal digits."]
    text: Annotated[str | None, "The claim in words; null if they are no longer kept."]
    subject: Annotated[str | None, "What it is about."]
    predicate: Annotated[str | None, "Which property of it."]
    object: Annotated[Any, "The property's value."]
    owner: Annotated[str, "Whose fact it would be."]
    scope: Annotated[str, "Where it would be valid."]
    memory_type: Annotated[str, "What kind of memory."]
    said_by: Annotated[str, "How it came in: `agent`, `user`, `external` or `internal`."]
    evidence: Annotated[list[FactEvidenceShape], "What supports it."]
    trust: Annotated[float, "The trust that the server assigned."]
    producer: Annotated[str | None, "What produced it."]
    actor: Annotated[str | None, "Who submitted it, as agent#incarnation; null for the server itself."]
    submit_time: Annotated[str | None, "When it was submitted."]
    decision: Annotated[FactDecisionShape, "What became of it."]


class FactPathShape(TypedDict):
    """The path of a fact from its evidence to its rank, or of a candidate that became none."""

    fact: Annotated[FactShape | None, "The fact, with its evidence; null if the candidate became none."]
    candidates: Annotated[list[CandidateShape], "The candidates that it came from."]
    rank: Annotated[int | None, "Its rank for the query, from 1."]
    scores: Annotated[HitScoresShape | None, "Why it stands there."]


class ForgottenShape(TypedDict):
    """What was forgotten, or would be."""

    facts: Annotated[list[str], "The facts, at most 1,000 ids."]
    places: Annotated[
        dict[str, int],
        "How many entries were removed where: `facts`, `index`, `candidates`, `queue`, `messages`, `tool_results`, "
        "`summaries`, `checkpoints`, `outbox`, `replies`, `log`.",
    ]
    remaining: Annotated[list[str], "What may still hold it."]
    dry_run: Annotated[bool, "Whether nothing was done."]


class ExtractionShape(TypedDict):
    """An extraction of candidates from a session or a document."""

    id: Annotated[str, "Its id: `<scope>#j` and 24 hexadecimal digits."]
    state: Annotated[str, "`queued`, `done`, `failed`, `suppressed` or `unknown`."]
    failure: Annotated[str | None, "Why it failed."]
    candidates: Annotated[list[str], "The candidates that it submitted."]
    extractor: Annotated[str | None, "What extracted, with its version."]
    attempts: Annotated[int, "How often it was tried."]
    model_tokens: Annotated[int, "Tokens that models were asked to read and write for it."]


class FactPolicyShape(TypedDict):
    """The rules of a scope. Spans are in seconds."""

    memory_types: Annotated[list[str], "Which memory types may be written; empty means all."]
    writers: Annotated[list[str], "Which agents may submit, by name or by a prefix that ends in `*`; empty means all."]
    importance_min: Annotated[float | None, "Below this importance a candidate is rejected."]
    confidence_min: Annotated[float | None, "Below this confidence a candidate is rejected."]
    trust_min: Annotated[float | None, "Below this trust a candidate is rejected."]
    conflict_rule: Annotated[str, "What becomes of contradictions: `newest`, `trust` or `keep_both`."]
    single_valued: Annotated[list[str], "Predicates with one value at a time, beside the known ones."]
    aliases: Annotated[dict[str, str], "Other words for the same."]
    ttl: Annotated[dict[str, float], "How long facts live, by memory type or sensitivity."]
    half_life: Annotated[dict[str, float], "Half-life of confidence, by predicate."]


class UpkeepChangeShape(TypedDict):
    """One change that upkeep makes."""

    fact: Annotated[str, "The fact's id."]
    action: Annotated[str, "`decay`, `merge`, `expire`, `compress` or `sweep`."]
    explanation: Annotated[str, "Why, in a sentence."]


class UpkeepRunShape(TypedDict):
    """What a run of upkeep did, or would do."""

    changes: Annotated[list[UpkeepChangeShape], "The changes, at most 1,000."]
    looked_at: Annotated[int, "How many facts were looked at."]
    dry_run: Annotated[bool, "Whether nothing was done."]


class UpkeepRoundShape(TypedDict):
    """The newest round of upkeep in a scope."""

    scope: Annotated[str, "The scope."]
    end_time: Annotated[str | None, "When it ended."]
    looked_at: Annotated[int, "How many facts were looked at."]
    changed: Annotated[dict[str, int], "How many changes were made, by action."]
    failure: Annotated[str | None, "Why it failed; a round that fails changes nothing."]


class FactUpkeepShape(TypedDict):
    """How facts are kept."""

    rounds: Annotated[list[UpkeepRoundShape], "The newest round of each scope."]
    waiting: Annotated[int, "How many candidates and jobs wait."]
    leased: Annotated[int, "How many are being decided."]
    dead: Annotated[int, "How many were given up."]


class ImportedShape(TypedDict):
    """What became of the lines of an import."""

    read: Annotated[int, "Facts that were read."]
    skipped: Annotated[int, "Of these, what was superseded already and is not imported."]
    statuses: Annotated[dict[str, int], "How many candidates came to stand where."]
    refused: Annotated[list[FactDecisionShape], "What became no fact, and why."]


class ReindexedShape(TypedDict):
    """What a new index of facts holds."""

    version_count: Annotated[int, "Versions of facts, those kept apart for a review too."]
    vector_count: Annotated[int, "How many of them have a vector."]
    model: Annotated[str | None, "The embedder that made the vectors; null if there is none."]
    model_before: Annotated[str | None, "The one that made those of the old index; null if there was none."]


class AdoptedShape(TypedDict):
    """Which collection of facts was given up."""

    collection_before: Annotated[str | None, "Under which name it was noted; null if none was."]
    id_before: Annotated[str | None, "Its id."]
    held_facts: Annotated[bool, "Whether a fact was ever written there."]
