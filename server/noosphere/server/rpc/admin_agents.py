"""One agent: showing it, fencing it, taking back what it wrote."""

from __future__ import annotations

from noosphere.consistency import Reason, Refusal, invalid
from noosphere.v1 import admin_agents_pb2 as pb

from ..memory.reverting import Outcome, Wanted
from ..owners import AgentKeeper
from ..security import By, Usage
from . import decode
from .admin_usage import entry
from .calls import Context, unary
from .times import timestamp, timestamp_ms

_OUTCOMES = {
    Outcome.RESTORED: pb.REVERT_OUTCOME_RESTORED,
    Outcome.DELETED: pb.REVERT_OUTCOME_DELETED,
    Outcome.UNCHANGED: pb.REVERT_OUTCOME_UNCHANGED,
    Outcome.CONFLICT: pb.REVERT_OUTCOME_CONFLICT,
    Outcome.COMPACTED: pb.REVERT_OUTCOME_COMPACTED,
    Outcome.UNSUPPORTED: pb.REVERT_OUTCOME_UNSUPPORTED,
    Outcome.RESERVED: pb.REVERT_OUTCOME_RESERVED,
    Outcome.REFUSED: pb.REVERT_OUTCOME_REFUSED,
}


class AgentMethods:
    """The part of AdminService that is about one agent."""

    _agents: AgentKeeper | None
    _usage: Usage

    @unary
    async def GetAgent(self, request: pb.GetAgentRequest, context: Context) -> pb.GetAgentResponse:
        """See the proto."""
        view = await self._keeper().show(request.agent_id)
        tally = self._usage.by(By.AGENT).get(request.agent_id)
        fence = None
        if view.fenced is not None:
            fence = pb.AgentFence(by=view.fenced.by, time=timestamp(view.fenced.time_ms), why=view.fenced.why)
        return pb.GetAgentResponse(
            agent_id=view.agent_id,
            incarnation=view.incarnation,
            active=view.active,
            fence=fence,
            usage=None if tally is None else entry(tally),
            claims=[
                pb.AgentClaim(
                    namespace=claim.namespace,
                    key=claim.key,
                    holder=claim.holder,
                    fence=claim.fence,
                    expire_time=timestamp(claim.expires_at_ms),
                )
                for claim in view.claims
            ],
            locks=view.locks,
            session_ids=view.session_ids,
            session_count=view.session_count,
            context_count=view.context_count,
            complete=view.complete,
        )

    @unary
    async def FenceAgent(self, request: pb.FenceAgentRequest, context: Context) -> pb.FenceAgentResponse:
        """See the proto."""
        reply = await self._keeper().fence(decode.call(request.call), request.agent_id, request.why)
        return pb.FenceAgentResponse(actor=reply.actor, released_claims=reply.released)

    @unary
    async def UnfenceAgent(self, request: pb.UnfenceAgentRequest, context: Context) -> pb.UnfenceAgentResponse:
        """See the proto."""
        was = await self._keeper().unfence(decode.call(request.call), request.agent_id)
        return pb.UnfenceAgentResponse(was_fenced=was)

    @unary
    async def RevertAgent(self, request: pb.RevertAgentRequest, context: Context) -> pb.RevertAgentResponse:
        """See the proto."""
        since = request.WhichOneof("since")
        if since is None:
            raise invalid("since", "is required: a revision of the namespace, or a time")
        wanted = Wanted(
            request.agent_id,
            request.namespace,
            request.since_revision if since == "since_revision" else None,
            timestamp_ms("since_time", request.since_time) if since == "since_time" else 0,
            request.force,
        )
        report = await self._keeper().revert(decode.call(request.call), wanted, dry_run=request.dry_run)
        return pb.RevertAgentResponse(
            records=[
                pb.RevertedRecord(
                    namespace=one.namespace,
                    key=one.key,
                    outcome=_OUTCOMES[one.outcome],
                    revision=one.revision,
                    last_writer=one.last_writer,
                )
                for one in report.keys
            ],
            counts=[pb.RevertCount(outcome=_OUTCOMES[outcome], count=count) for outcome, count in report.counts],
        )

    def _keeper(self) -> AgentKeeper:
        if self._agents is None:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "this server keeps no agents")
        return self._agents
