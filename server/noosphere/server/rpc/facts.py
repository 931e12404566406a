"""FactService: each method decodes, calls the service and encodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from noosphere.consistency import decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2
from noosphere.v1.fact_service_pb2_grpc import FactServiceServicer

from ..facts.awaited import WAIT_SECONDS_MAX
from ..facts.scopes import NAMESPACES, check_scope, require_read, require_write
from ..facts.service import Facts
from ..memory.admission import require_writer
from ..memory.types import Call
from ..owners import OwnerEraser
from ..ports.grants import Verb
from . import decode, encode
from . import fact_shapes as shapes
from .calls import Context, streaming, unary
from .times import timestamp, timestamp_ms

RESUME_BYTES_MAX = 256
ANSWER_SHARE = 0.1
"""What of a caller's time is left for the answer to reach it."""


class FactRpc(FactServiceServicer):
    """The gRPC face of long-term facts, and of what is erased with them."""

    def __init__(self, facts: Facts, owners: OwnerEraser) -> None:
        self._facts = facts
        self._owners = owners

    @unary
    async def SubmitCandidates(
        self, request: pb.SubmitCandidatesRequest, context: Context
    ) -> pb.SubmitCandidatesResponse:
        """See the proto."""
        call = decode.call(request.call)
        submissions = [shapes.submission(message, f"candidates[{at}]") for at, message in enumerate(request.candidates)]
        reply = await self._facts.submit(call, submissions, wait_seconds=patience(context) if request.wait else 0.0)
        return pb.SubmitCandidatesResponse(
            candidate_ids=reply.taken.ids,
            decisions=map(shapes.decision, reply.decisions),
            replayed=reply.taken.replayed,
            call=await self._tokens(call, reply.taken.scope),
        )

    @unary
    async def GetCandidate(self, request: pb.GetCandidateRequest, context: Context) -> pb.GetCandidateResponse:
        """See the proto."""
        return shapes.known(await self._facts.decisions.get(decode.call(request.call), request.candidate_id))

    @unary
    async def ListCandidates(self, request: pb.ListCandidatesRequest, context: Context) -> pb.ListCandidatesResponse:
        """See the proto."""
        statuses = {shapes.status(f"statuses[{at}]", number) for at, number in enumerate(request.statuses)}
        query = fingerprint("candidates", request.scope, sorted(statuses))
        page = await self._facts.decisions.list(
            decode.call(request.call),
            request.scope,
            statuses=statuses,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
        )
        return pb.ListCandidatesResponse(
            candidates=map(shapes.known, page.known),
            next_page_token="" if page.following is None else encode_page(query, page.following),
        )

    @streaming
    async def WatchCandidates(
        self, request: pb.WatchCandidatesRequest, context: Context
    ) -> AsyncGenerator[pb.WatchCandidatesResponse, None]:
        """See the proto."""
        query = fingerprint("watch candidates", request.scope)
        after = _resume(request.resume_token, query) if request.resume_token else None
        watch = self._facts.decisions.watch(decode.call(request.call), request.scope, after)
        async with aclosing(watch) as messages:
            async for message in messages:
                yield pb.WatchCandidatesResponse(
                    decision=None if message.decision is None else shapes.decision(message.decision),
                    resume_token=encode_page(query, message.position).encode(),
                )

    @unary
    async def ReviewCandidate(self, request: pb.ReviewCandidateRequest, context: Context) -> pb.ReviewCandidateResponse:
        """See the proto."""
        call = decode.call(request.call)
        decision = await self._facts.decisions.review(call, request.candidate_id, accept=request.accept)
        return pb.ReviewCandidateResponse(decision=shapes.decision(decision))

    @unary
    async def SearchFacts(self, request: pb.SearchFactsRequest, context: Context) -> pb.SearchFactsResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._facts.retrieval.search(call, shapes.search(request))
        return pb.SearchFactsResponse(
            hits=map(shapes.hit, reply.hits), warnings=reply.warnings, call=encode.heads_reply(call, reply.heads)
        )

    @unary
    async def GetFact(self, request: pb.GetFactRequest, context: Context) -> pb.GetFactResponse:
        """See the proto."""
        as_of_ms = timestamp_ms("as_of", request.as_of) if request.HasField("as_of") else None
        fact = await self._facts.reading.get(decode.call(request.call), request.fact_id, as_of_ms=as_of_ms)
        return pb.GetFactResponse(fact=shapes.fact(fact))

    @unary
    async def ListFacts(self, request: pb.ListFactsRequest, context: Context) -> pb.ListFactsResponse:
        """See the proto."""
        query = fingerprint("facts", request.scope, request.owner, request.include_superseded)
        page = await self._facts.reading.list(
            decode.call(request.call),
            request.scope,
            owner=request.owner,
            include_superseded=request.include_superseded,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
        )
        return pb.ListFactsResponse(
            facts=map(shapes.fact, page.facts),
            next_page_token="" if page.following is None else encode_page(query, page.following),
        )

    @unary
    async def ListFactHistory(self, request: pb.ListFactHistoryRequest, context: Context) -> pb.ListFactHistoryResponse:
        """See the proto."""
        versions = await self._facts.reading.history(decode.call(request.call), request.fact_id)
        return pb.ListFactHistoryResponse(versions=map(shapes.fact, versions))

    @unary
    async def ExplainFact(self, request: pb.ExplainFactRequest, context: Context) -> pb.ExplainFactResponse:
        """See the proto."""
        told = await self._facts.explaining.explain(decode.call(request.call), request.fact_id, request.query)
        return pb.ExplainFactResponse(
            fact=shapes.fact(told.fact),
            candidates=map(shapes.known, told.candidates),
            rank=told.rank,
            scores=shapes.scores(told.scores) if told.rank else None,
        )

    @unary
    async def ForgetFacts(self, request: pb.ForgetFactsRequest, context: Context) -> pb.ForgetFactsResponse:
        """See the proto."""
        call, wanted = decode.call(request.call), shapes.wanted(request)
        done = await self._facts.forgetting.forget(call, wanted, request.scope, dry_run=request.dry_run)
        scope = wanted.in_scope(request.scope)
        return pb.ForgetFactsResponse(
            fact_ids=done.fact_ids,
            places=[pb.ForgetPlace(place=place, count=count) for place, count in done.places],
            remaining=done.remaining,
            call=await self._tokens(call, scope) if scope else None,
        )

    @unary
    async def EraseOwner(self, request: pb.EraseOwnerRequest, context: Context) -> pb.EraseOwnerResponse:
        """See the proto."""
        done = await self._owners.erase(decode.call(request.call), request.owner, dry_run=request.dry_run)
        return pb.EraseOwnerResponse(
            session_ids=done.session_ids,
            fact_ids=done.fact_ids,
            namespaces=done.namespaces,
            places=[pb.ForgetPlace(place=place, count=count) for place, count in done.places],
            remaining=done.remaining,
        )

    @unary
    async def RunFactUpkeep(self, request: pb.RunFactUpkeepRequest, context: Context) -> pb.RunFactUpkeepResponse:
        """See the proto."""
        report = await self._facts.run_upkeep(decode.call(request.call), request.scope, dry_run=request.dry_run)
        return pb.RunFactUpkeepResponse(
            changes=[
                pb.UpkeepChange(fact_id=change.fact_id, action=change.action, explanation=change.explanation)
                for change in report.changes
            ],
            looked_at=report.looked_at,
        )

    @unary
    async def GetFactUpkeep(self, request: pb.GetFactUpkeepRequest, context: Context) -> pb.GetFactUpkeepResponse:
        """See the proto."""
        rounds, stats = await self._facts.upkeep_status(decode.call(request.call), request.scope)
        return pb.GetFactUpkeepResponse(
            rounds=[
                pb.UpkeepRound(
                    scope=one.scope,
                    end_time=timestamp(one.round.ended_ms),
                    looked_at=one.round.looked_at,
                    changed=one.round.changed,
                    failure=one.round.failure,
                )
                for one in rounds
            ],
            waiting=stats.waiting,
            leased=stats.leased,
            dead=stats.dead,
        )

    @unary
    async def ExtractFacts(self, request: pb.ExtractFactsRequest, context: Context) -> pb.ExtractFactsResponse:
        """See the proto."""
        asked = shapes.extraction(request)
        note = await self._facts.extract(decode.call(request.call), asked, wait=request.wait)
        return pb.ExtractFactsResponse(job=shapes.extraction_job(note))

    @unary
    async def GetExtractionJob(
        self, request: pb.GetExtractionJobRequest, context: Context
    ) -> pb.GetExtractionJobResponse:
        """See the proto."""
        note = await self._facts.extractions.get(decode.call(request.call), request.job_id)
        return pb.GetExtractionJobResponse(job=shapes.extraction_job(note))

    @unary
    async def SetFactPolicy(self, request: pb.SetFactPolicyRequest, context: Context) -> pb.SetFactPolicyResponse:
        """See the proto."""
        call = decode.call(request.call)
        require_writer(call)
        check_scope(request.scope)
        require_write(self._facts.core, call, request.scope, request.scope, Verb.ADMIN)
        policy = await self._facts.policies.set(request.scope, shapes.policy(request.policy))
        return pb.SetFactPolicyResponse(policy=shapes.policy_message(policy))

    @unary
    async def GetFactPolicy(self, request: pb.GetFactPolicyRequest, context: Context) -> pb.GetFactPolicyResponse:
        """See the proto."""
        check_scope(request.scope)
        require_read(self._facts.core, decode.call(request.call), request.scope)
        return pb.GetFactPolicyResponse(policy=shapes.policy_message(await self._facts.policies.get(request.scope)))

    async def _tokens(self, call: Call, scope: str) -> types_pb2.CallReply | None:
        """Returns the tokens that go with a reply about a scope."""
        if call.tokens is None:
            return None
        page = await self._facts.ledger.read(scope, ())
        return encode.call_reply(call, NAMESPACES + scope, page.view.head)


def patience(context: Context) -> float:
    """Returns for how many seconds a caller can be kept waiting: who is told in time knows the ids of what waits."""
    left = context.time_remaining()
    if left is None:
        return WAIT_SECONDS_MAX
    return max(min(left * (1 - ANSWER_SHARE), WAIT_SECONDS_MAX), 0.001)


def _resume(token: bytes, query: bytes) -> str:
    if len(token) > RESUME_BYTES_MAX:
        raise invalid("resume_token", f"has {len(token)} bytes, at most {RESUME_BYTES_MAX}")
    return decode_page(token.decode("ascii", "replace"), query)
