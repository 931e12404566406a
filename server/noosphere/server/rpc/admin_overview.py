"""How a server is doing, for whoever looks at it live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from noosphere.consistency import Reason, Refusal, invalid
from noosphere.v1 import admin_overview_pb2 as pb

from ..metrics.overview import Overview
from ..metrics.sessions import ClassHealth
from ..ports.runtime import Clock
from ..security import By, Order, Usage
from .admin_usage import TOP_MAX, entry
from .calls import Context, unary
from .process import resident_bytes
from .times import timestamp

NAMES_DEFAULT = 100


class OverviewMethods:
    """The part of AdminService that tells how the server is doing."""

    _overview: Callable[[], Awaitable[Overview]] | None
    _usage: Usage
    _clock: Clock
    _started_ms: int

    @unary
    async def GetOverview(self, request: pb.GetOverviewRequest, context: Context) -> pb.GetOverviewResponse:
        """See the proto."""
        if not 0 <= request.top <= TOP_MAX:
            raise invalid("top", f"{request.top} is not between 0 and {TOP_MAX}")
        if self._overview is None:
            raise Refusal(Reason.NOT_IMPLEMENTED, "this server counts nothing")
        found, top = await self._overview(), request.top or NAMES_DEFAULT
        now_ms = self._clock.monotonic_ms()
        response = pb.GetOverviewResponse(
            time=timestamp(self._clock.wall_ms()),
            monotonic_ms=now_ms,
            server_id=found.server_id,
            uptime_seconds=(now_ms - self._started_ms) / 1000,
            call_count=found.calls,
            open_count=found.open_calls,
            refusal_count=found.refusals,
            conflict_count=found.conflicts,
            latencies=[
                pb.LatencyInfo(name=name, bounds=latency.bounds, counts=latency.counts)
                for name, latency in found.latencies.items()
            ],
            state_known=found.state is not None,
            resident_bytes=resident_bytes(),
            agents=[entry(tally) for tally in self._usage.by(By.AGENT).top(top, Order.RECENT)],
            namespaces=[entry(tally) for tally in self._usage.by(By.NAMESPACE).top(top, Order.RECENT)],
            sessions=[_health(name, health) for name, health in found.sessions.items()],
        )
        if (state := found.state) is not None:
            response.agent_count = state.agents
            response.watch_count = state.watches
            response.namespace_count = state.namespaces
            response.record_count = state.records
            response.record_bytes = state.record_bytes
            response.journal_bytes = state.journal_bytes
            response.epoch = state.epoch
            response.jobs_waiting = state.jobs_waiting
            response.jobs_leased = state.jobs_leased
            response.jobs_dead = state.jobs_dead
            response.oldest_job_seconds = state.oldest_job_seconds
        return response


def _health(name: str, health: ClassHealth) -> pb.SessionClassHealth:
    return pb.SessionClassHealth(session_class=name, turn_count=health.turns, **health.means)
