"""Candidates: the one way in which anything becomes a fact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import checked_text, shown
from ._context_wire import several
from ._errors import InvalidArgument
from ._facts_data import (
    Candidate,
    CandidateState,
    CandidateStatus,
    Cardinality,
    EvidenceLike,
    FactDecision,
    MemoryType,
    SaidBy,
    Sensitivity,
    evidence_of,
)
from ._facts_keeping import FactsKeeping
from ._facts_watch import DecisionWatch
from ._facts_wire import STATUSES, from_candidate, to_decision, to_state
from ._listing import PAGE_SIZE, checked_page_size
from ._session import Session
from ._session_wire import number_of
from ._stream import PATIENCE

CANDIDATES_MAX = 100


class FactsProposing(FactsKeeping):
    """What is proposed to be remembered, and what becomes of it."""

    async def remember(
        self,
        text: str,
        *,
        owner: str | None = None,
        subject: str = "",
        predicate: str = "",
        object: Any = None,
        scope: str = "",
        memory_type: MemoryType = "semantic",
        said_by: SaidBy = "agent",
        evidence: EvidenceLike | Sequence[EvidenceLike] = (),
        session: Session | str | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        claimed_trust: float | None = None,
        producer: str = "",
        valid_from: datetime | None = None,
        expires_at: datetime | None = None,
        sensitivity: Sensitivity = "",
        cardinality: Cardinality | None = None,
        pinned: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> FactDecision:
        """Proposes to remember a claim, and waits until it is decided. This client's searches find it then.

        Args:
            text: the claim in words, at most 4 KiB.
            owner: whose fact it is; None for the agent's own.
            subject: what it is about.
            predicate: which property of it. With subject and predicate a new value can supersede the old one;
                without them the server tries to find them in the words, and keeps both if it cannot.
            object: the property's value, any JSON value; None if it is not said.
            scope: where it is valid; empty for the owner's own.
            memory_type: what kind of memory.
            said_by: how it came in. ``user`` is trusted only with evidence of a user's message that the server
                holds; ``internal`` is for operators.
            evidence: what supports it, one or several, at most 32.
            session: the session in which this agent works. Without evidence, trust is that of what was seen there.
            confidence: how sure it is, 0 to 1; None for the channel's default.
            importance: how much it matters, 0 to 1; None for the channel's default.
            claimed_trust: trust that is claimed, 0 to 1; None claims none.
            producer: what produced it, e.g. a tool's name and version.
            valid_from: since when it is so in the world; None for now.
            expires_at: when it ends; None for never.
            sensitivity: how sensitive it is.
            cardinality: how the predicate's values relate; None leaves that to the policy.
            pinned: whether it belongs to the owner's profile, which every context shows.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What became of it, and why: a refusal by the pipeline is an answer, not an error. What is not decided by
            shortly before the deadline, or within 30 s, is ``queued``: it was accepted and is decided later. Its
            reasons tell of an engine that stands in the way.

        Raises:
            PermissionDenied: more trust is claimed than the channel has (``TRUST_DENIED``), or the scope is not
                this agent's to write.
            InvalidArgument: a part of it is malformed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        session_id = _session_id_of(session)
        candidate = Candidate(
            text,
            link.or_own("owner", owner),
            subject=subject,
            predicate=predicate,
            object=object,
            scope=scope,
            memory_type=memory_type,
            said_by=said_by,
            evidence=evidence_of("evidence", evidence, session_id),
            confidence=confidence,
            importance=importance,
            claimed_trust=claimed_trust,
            producer=producer,
            valid_from=valid_from,
            expires_at=expires_at,
            sensitivity=sensitivity,
            cardinality=cardinality,
            pinned=pinned,
            session_id=session_id,
        )
        request = pb.SubmitCandidatesRequest(candidates=[from_candidate("", candidate, link.own)], wait=True)
        reply = await self._submit(request, request_id, timeout)
        return to_decision(reply.decisions[0])

    async def propose(
        self, *candidates: Candidate | str, request_id: str | None = None, timeout: float | None = None
    ) -> tuple[str, ...]:
        """Hands in candidates and returns at once; they are durable then, and decided in the background.

        Args:
            candidates: 1 to 100, of one scope; a text is a claim of the agent's own.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            Their ids in the same order, for :meth:`candidate` and :meth:`watch`.

        Raises:
            PermissionDenied: a candidate claims more trust than its channel has (``TRUST_DENIED``), or the scope
                is not this agent's to write. None was taken then.
            InvalidArgument: a part of one is malformed; its number is named.
            NoosphereError: anything else, see the tree.
        """
        reply = await self._submit(self._request(candidates, wait=False), request_id, timeout)
        return tuple(reply.candidate_ids)

    async def remember_many(
        self, *candidates: Candidate | str, request_id: str | None = None, timeout: float | None = None
    ) -> tuple[FactDecision, ...]:
        """Proposes to remember several claims, and waits until they are decided; as :meth:`remember` does.

        Each is decided by itself: one may be refused and the others be facts.

        Args:
            candidates: 1 to 100, of one scope; a text is a claim of the agent's own.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What became of them, in the same order.

        Raises:
            PermissionDenied: see :meth:`propose`.
            InvalidArgument: a part of one is malformed; its number is named.
            NoosphereError: anything else, see the tree.
        """
        reply = await self._submit(self._request(candidates, wait=True), request_id, timeout)
        return tuple(map(to_decision, reply.decisions))

    def _request(self, candidates: Sequence[Candidate | str], *, wait: bool) -> pb.SubmitCandidatesRequest:
        if not 1 <= len(candidates) <= CANDIDATES_MAX:
            raise InvalidArgument(f"candidates: {len(candidates)} are given, the limits are 1 and {CANDIDATES_MAX}")
        request = pb.SubmitCandidatesRequest(wait=wait)
        for index, one in enumerate(candidates):
            candidate = Candidate(one) if isinstance(one, str) else one
            if not isinstance(candidate, Candidate):
                raise InvalidArgument(f"candidates[{index}]: {shown(one)} is {type(one).__name__}, not a candidate")
            request.candidates.append(from_candidate(f"candidates[{index}].", candidate, self._link.own))
        return request

    async def _submit(
        self, request: pb.SubmitCandidatesRequest, request_id: str | None, timeout: float | None
    ) -> pb.SubmitCandidatesResponse:
        link = self._link
        first = request.candidates[0]
        scope = first.scope or first.owner
        # Whoever goes on proposing hears of what a failover has lost of that.
        request.call.causal_tokens.extend(link.seen((scope,)))
        request.call.return_causal_token = True
        reply: pb.SubmitCandidatesResponse = await link.write(
            link.stub.SubmitCandidates, request, request_id, timeout, scope
        )
        link.learn(reply.call.causal_token)
        return reply

    async def candidate(self, candidate_id: str, *, timeout: float | None = None) -> CandidateState:
        """Returns a candidate with what has become of it.

        Args:
            candidate_id: the candidate's id.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is no such candidate, or it was decided more than 30 days ago.
            AckedWritesLost: it was proposed by this client, or by another one whose token this one was given, and lost
                in a failover; raised once.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.GetCandidateRequest(candidate_id=checked_text("candidate_id", candidate_id))
        request.call.causal_tokens.extend(link.seen((candidate_id.rpartition("#")[0],)))
        reply: pb.GetCandidateResponse = await link.read(link.stub.GetCandidate, request, timeout)
        return to_state(reply)

    def candidates(
        self,
        scope: str | None = None,
        *,
        statuses: Sequence[CandidateStatus] = (),
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[CandidateState]:
        """Lists the decided candidates of a scope with what has become of them, the newest first, page by page.

        Args:
            scope: the scope; None for the agent's own.
            statuses: only those that stand there; none for any.
            page_size: candidates per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListCandidatesRequest(
            scope=link.or_own("scope", scope),
            statuses=[
                number_of(f"statuses[{index}]", status, STATUSES)
                for index, status in enumerate(several("statuses", statuses))
            ],
            page_size=checked_page_size(page_size),
        )
        return link.pages(link.stub.ListCandidates, request, lambda reply: reply.candidates, to_state, timeout)

    async def review(
        self, candidate_id: str, *, accept: bool, request_id: str | None = None, timeout: float | None = None
    ) -> FactDecision:
        """Decides about a candidate that was kept apart, refused or given up; for operators.

        Args:
            candidate_id: the candidate's id.
            accept: whether it goes on through the pipeline; else it is rejected.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What became of it; the rest of the pipeline may still refuse it.

        Raises:
            EntryNotFound: there is no such candidate, or its words are no longer kept.
            InvalidArgument: it waits, or is a fact.
            PermissionDenied: this agent is no operator.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ReviewCandidateRequest(
            candidate_id=checked_text("candidate_id", candidate_id), accept=bool(accept)
        )
        reply: pb.ReviewCandidateResponse = await link.write(link.stub.ReviewCandidate, request, request_id, timeout)
        return to_decision(reply.decision)

    def watch(
        self, scope: str | None = None, *, resume: bytes | None = None, patience: float = PATIENCE
    ) -> DecisionWatch:
        """Watches decisions about the candidates of a scope, in their order, across lost connections.

        ::

            async with client.facts.watch("user/42", resume=load()) as decisions:
                async for one in decisions:
                    print(one.decision.explain())
                    save(one.resume)

        Args:
            scope: the scope; None for the agent's own.
            resume: the ``resume`` of the last decision that was dealt with; None for those from now on.
            patience: how long to try to resume after a lost connection, in seconds.

        Returns:
            A context manager that gives an asynchronous iterator.
        """
        return DecisionWatch(self._link, self._link.or_own("scope", scope), resume=resume, patience=patience)


def _session_id_of(session: Session | str | None) -> str:
    if isinstance(session, Session):
        return session.id
    return "" if session is None else checked_text("session", session)
