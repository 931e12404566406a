"""What the fact store keeps of facts: their words, and those of candidates that are kept apart for a review."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from noosphere.consistency import NEVER_MS

from ..ports.factstore import BATCH_MAX, TERMS_MAX, FactContent, FactKey, FactStore
from ..text import terms
from ..together import each
from .ledger import SOURCES_LISTED_MAX, FactNote, VersionNote
from .types import Candidate, Channel, Claim, Evidence, Fact

HELD = "held/"
"""Before the scope of a candidate that is kept apart. No scope that is searched begins so."""

PARTS_AT_ONCE = 4
"""So many reads of contents are under way at once, which may be large."""

NAMED_CHARS_MAX = 128
"""A longer value is no name of anything."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """The words of one version of a fact.

    Attributes:
        text: the claim.
        subject: what it is about.
        predicate: which property of it.
        object: the property's value, as JSON text.
        evidence: what its first candidate named, with quotes.
        producer: what produced that.
        channel: how that came in.
        sensitivity: empty, ``personal`` or ``secret``.
    """

    text: str
    subject: str = ""
    predicate: str = ""
    object: str = ""
    evidence: tuple[Evidence, ...] = ()
    producer: str = ""
    channel: Channel = Channel.AGENT
    sensitivity: str = ""


_bodies = msgspec.json.Decoder(Body)
_candidates = msgspec.json.Decoder(Candidate)


def decode_body(content: FactContent) -> Body:
    """Returns the words of a fact's content."""
    return _bodies.decode(content.body)


def encode_candidate(candidate: Candidate) -> bytes:
    """Returns a candidate as it waits in the queue."""
    return msgspec.json.encode(candidate)


def decode_candidate(data: bytes) -> Candidate:
    """Returns a candidate that waited in the queue."""
    return _candidates.decode(data)


def content_key(scope: str, fact_id: str, version: VersionNote) -> FactKey:
    """Names the content of a version."""
    return FactKey(scope, fact_id, version.content)


def search_terms(text: str, subject: str, predicate: str, object: str) -> tuple[str, ...]:
    """Returns the terms by which a claim is found: its own, and those of its subject, predicate and value it lacks.

    Of a value that is long or a structure only what the claim says in words.
    """
    own = terms(text, singles=True)
    known = set(own)
    value = object if len(object) <= NAMED_CHARS_MAX and object[:1] not in ("{", "[") else ""
    named = [term for term in (*terms(subject), *terms(predicate), *terms(value)) if term not in known]
    return (*own, *dict.fromkeys(named))[:TERMS_MAX]


def content_of(
    scope: str, note: FactNote, version: VersionNote, body: Body, vector: Sequence[float] | None, *, now_ms: int
) -> FactContent:
    """Returns what to store of a version of a fact, as written at a store time."""
    return FactContent(
        fact_id=note.id,
        version=version.content,
        scope=scope,
        owner=note.owner,
        memory_type=note.memory_type.value,
        trust=note.trust,
        valid_from_ms=version.valid_from_ms,
        valid_to_ms=version.valid_to_ms,
        expires_at_ms=note.expires_at_ms,
        recorded_ms=now_ms,
        subject=body.subject,
        predicate=body.predicate,
        terms=search_terms(body.text, body.subject, body.predicate, body.object),
        body=msgspec.json.encode(body),
        vector=None if vector is None else tuple(vector),
    )


def held_content(candidate: Candidate, number: int, *, now_ms: int, until_ms: int) -> FactContent:
    """Returns what to store of a candidate that is kept apart; nothing of it can be searched."""
    return FactContent(
        fact_id=candidate.id,
        version=number,
        scope=HELD + candidate.scope,
        owner=candidate.owner,
        memory_type=candidate.memory_type.value,
        trust=candidate.trust,
        valid_from_ms=candidate.valid_from_ms,
        valid_to_ms=NEVER_MS,
        expires_at_ms=until_ms,
        recorded_ms=now_ms,
        subject="",
        predicate="",
        terms=(),
        body=encode_candidate(candidate),
    )


def held_key(scope: str, candidate_id: str, number: int) -> FactKey:
    """Names the words of a candidate that is kept apart."""
    return FactKey(HELD + scope, candidate_id, number)


async def read_all(store: FactStore, keys: Sequence[FactKey]) -> list[FactContent | None]:
    """Reads contents in the order asked for, however many: a thousand side by side."""
    found: list[FactContent | None] = []
    for start in range(0, len(keys), PARTS_AT_ONCE * BATCH_MAX):
        many = keys[start : start + PARTS_AT_ONCE * BATCH_MAX]
        parts = (many[first : first + BATCH_MAX] for first in range(0, len(many), BATCH_MAX))
        for part in await each(map(store.read, parts)):
            found += part
    return found


async def versions_by_parts(store: FactStore, place: str) -> AsyncIterator[list[FactKey]]:
    """Streams what names the contents of a place, as many at once as can be read at once."""
    part: list[FactKey] = []
    async for key in store.versions(place):
        part.append(key)
        if len(part) == BATCH_MAX:
            yield part
            part = []
    if part:
        yield part


def fact_of(scope: str, note: FactNote, version: VersionNote, content: FactContent) -> Fact:
    """Returns a version of a fact as callers see it."""
    body = decode_body(content)
    quoted = {evidence.reference: evidence for evidence in body.evidence}
    newest = version.number == note.newest.number
    return Fact(
        id=note.id,
        version=version.number,
        scope=scope,
        owner=note.owner,
        text=body.text,
        subject=body.subject,
        predicate=body.predicate,
        object=body.object,
        memory_type=note.memory_type,
        evidence=tuple(
            quoted.get(source.reference) or Evidence(source.reference, source.content_hash)
            for source in reversed(note.sources[-SOURCES_LISTED_MAX:])
            if not source.reference.startswith(OWN_WORD)
        ),
        source_count=note.source_count,
        confidence=note.confidence,
        importance=note.importance,
        trust=note.trust,
        producer=body.producer,
        valid_from_ms=version.valid_from_ms,
        valid_to_ms=version.valid_to_ms,
        expires_at_ms=note.expires_at_ms,
        recorded_ms=version.recorded_ms,
        superseded_by=note.superseded_by if newest else "",
        contested_by=note.contested_by if newest else (),
        pinned=note.pinned,
        candidates=tuple(dict.fromkeys(source.candidate for source in reversed(note.sources[-SOURCES_LISTED_MAX:]))),
    )


OWN_WORD = "candidate:"
"""Before the id of a candidate without evidence, whose only source is its producer's word."""


def claim_body(candidate: Candidate, claim: Claim) -> Body:
    """Returns the words that a candidate's fact has: the claim's as they were said, in canonical slots."""
    return Body(
        text=candidate.text,
        subject=claim.subject,
        predicate=claim.predicate,
        object=claim.object,
        evidence=candidate.evidence,
        producer=candidate.producer,
        channel=candidate.channel,
        sensitivity=candidate.sensitivity,
    )
