"""What an entry of the outbox is to whoever makes facts: candidates with owner, evidence and trust."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import Refusal, check_agent_id, check_namespace

from ..memory.access import OPERATOR_PREFIX
from ..memory.codec import decode_record
from ..ports.candidates import HANDED_MAX, HandedCandidate
from ..ports.store import StoredEntry
from .claims import OWNER_ATTRIBUTE, PROCEDURAL, claims_of, importance_of, memory_type_of
from .codec import value_of
from .evidence import Basis, Evidence
from .keys import OUTBOX
from .outbox import Candidate, decode_candidate
from .seen import TRUST_USER

PRODUCER = "working-memory"
"""What hands candidates over; why one left working memory stands after it."""

_OWNER_KINDS = ("agent/", "shared/", "user/")
_OWNER_BYTES_MAX = 200


class Handed(NamedTuple):
    """An entry of an outbox with what it claims: nothing, or a candidate for each value."""

    key: str
    candidates: tuple[HandedCandidate, ...]


class Handing:
    """Makes candidates of entries.

    Args:
        evidence: tells what an entry rests on, and its trust.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    async def entry(self, session_id: str, session_owner: str, entry: StoredEntry) -> Handed:
        """Returns what an entry claims; the same ids whenever it is asked."""
        candidate = decode_candidate(value_of(decode_record(entry.data, entry.revision)))
        kind, importance = memory_type_of(candidate), importance_of(candidate)
        handed: list[HandedCandidate] = []
        for number, claim in enumerate(claims_of(candidate)[:HANDED_MAX]):
            writer = claim.writer or session_owner
            basis = await self._basis(session_id, candidate, claim.writer)
            slot = entry.key[len(OUTBOX) :]
            handed.append(
                HandedCandidate(
                    id=f"outbox:{session_id}/{slot}" + (f"/{number}" if number else ""),
                    owner=_owner(candidate, writer),
                    text=claim.text,
                    memory_type=kind,
                    evidence=basis.references,
                    importance=importance,
                    trust=basis.trust,
                    producer=f"{PRODUCER}/{candidate.reason}" if candidate.reason else PRODUCER,
                    time_ms=claim.time_ms or candidate.created_ms,
                )
            )
        return Handed(entry.key, tuple(handed))

    async def _basis(self, session_id: str, candidate: Candidate, writer: str) -> Basis:
        basis = await self._evidence.basis_of(
            session_id, writer=writer, revision=candidate.version, named=candidate.evidence
        )
        if not writer and candidate.memory_type == PROCEDURAL:
            # Names and order of calls are what the server itself has seen, and nothing of what the calls brought.
            return basis._replace(trust=TRUST_USER)
        return basis


def _owner(candidate: Candidate, writer: str) -> str:
    """Returns whose fact it becomes: as the item's attribute says, if its writer may write there, else the writer's."""
    said = candidate.attributes.get(OWNER_ATTRIBUTE)
    if isinstance(said, str) and said.startswith(_OWNER_KINDS) and _is_owner(said, writer):
        return said
    return f"agent/{writer}"


def _is_owner(name: str, writer: str) -> bool:
    if "#" in name or len(name.encode("utf-8", "replace")) > _OWNER_BYTES_MAX:
        return False
    try:
        check_namespace(f"facts/{name}")
        kind, _, whose = name.partition("/")
        if kind == "agent":
            check_agent_id(whose)
            return whose == writer or writer.startswith(OPERATOR_PREFIX)
    except Refusal:
        return False
    return True
