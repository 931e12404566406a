"""What was forgotten is not learnt again from the same evidence; new evidence teaches it again.

A ledger keeps a keyed hash of each piece of evidence of what was forgotten, so that nobody can tell from it what that
was. A late job that still holds the old evidence is refused by it. A candidate without evidence is its own evidence: it
is refused if it was submitted before its claim was forgotten.
"""

from __future__ import annotations

import hashlib

from .contents import OWN_WORD
from .ledger import SECRET, SUPPRESSED, Page, Suppression
from .types import Candidate, Claim, Why

SECRET_BYTES = 32

EXTRACTOR = "extractor/"
"""Before the name of the extractor that produced a candidate."""


def evidence_key(secret: bytes, owner: str, reference: str) -> str:
    """Returns where it is noted that something resting on this evidence was forgotten."""
    return _key(secret, "evidence", owner, reference)


def claim_keys(secret: bytes, key: str, slot: str) -> tuple[str, ...]:
    """Returns where it is noted that a claim was forgotten: the claim itself, and whatever stood in its slot."""
    keys = [_key(secret, "claim", key)]
    if slot:
        keys.append(_key(secret, "slot", slot))
    return tuple(keys)


def producer_key(secret: bytes, producer: str) -> str:
    """Returns where it is noted that everything of a producer was forgotten."""
    return _key(secret, "producer", producer)


def owner_key(secret: bytes, owner: str) -> str:
    """Returns where it is noted that everything of an owner was forgotten."""
    return _key(secret, "owner", owner)


def keys_of(secret: bytes, candidate: Candidate, claim: Claim) -> tuple[str, ...]:
    """Returns every key of a ledger on which it depends whether a candidate is suppressed."""
    return (
        *(evidence_key(secret, candidate.owner, evidence.reference) for evidence in candidate.evidence),
        evidence_key(secret, candidate.owner, OWN_WORD + candidate.id),
        *claim_keys(secret, claim.key, claim.slot),
        *_producer_keys(secret, candidate),
        owner_key(secret, candidate.owner),
    )


def suppressed(page: Page, secret: bytes, candidate: Candidate, claim: Claim) -> Why | None:
    """Returns why a candidate must not become a fact, None if it may.

    Args:
        page: of the candidate's ledger, with :func:`keys_of` read.
        secret: the ledger's.
        candidate: the candidate.
        claim: what it claims.
    """
    references = [evidence.reference for evidence in candidate.evidence] or [OWN_WORD + candidate.id]
    if all(_noted(page, evidence_key(secret, candidate.owner, reference)) is not None for reference in references):
        return Why("suppress", "evidence_forgotten", "What it rests on was forgotten.")
    for key in claim_keys(secret, claim.key, claim.slot):
        note = _noted(page, key)
        if note is not None and candidate.submitted_ms <= note.time_ms:
            return Why("suppress", "forgotten_since", "Its claim was forgotten after it was submitted.")
    for key in _producer_keys(secret, candidate):
        note = _noted(page, key)
        if note is not None and candidate.submitted_ms <= note.time_ms:
            return Why("suppress", "producer_forgotten", "Its producer was forgotten after it was submitted.")
    note = _noted(page, owner_key(secret, candidate.owner))
    # An extraction that began before submits later what was said before.
    if note is not None and min(candidate.submitted_ms, _read_ms(candidate)) <= note.time_ms:
        return Why("suppress", "owner_forgotten", "All facts of its owner were forgotten after it was said.")
    return None


def secret_of(page: Page) -> bytes:
    """Returns the ledger's secret, of one whose ``SECRET`` was read; empty if nothing was ever forgotten there."""
    return page.get(SECRET, bytes) or b""


def _read_ms(candidate: Candidate) -> int:
    """Returns when that was said which a candidate was extracted from; of others, when they were submitted."""
    return candidate.valid_from_ms if candidate.producer.startswith(EXTRACTOR) else candidate.submitted_ms


def _producer_keys(secret: bytes, candidate: Candidate) -> tuple[str, ...]:
    names = dict.fromkeys((candidate.producer, candidate.agent))
    return tuple(producer_key(secret, name) for name in names if name)


def _noted(page: Page, key: str) -> Suppression | None:
    return page.get(key, Suppression)


def _key(secret: bytes, *parts: str) -> str:
    hashed = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), key=secret, digest_size=16)
    return SUPPRESSED + hashed.hexdigest()
