"""What `noosphere top` shows, as numbers: the difference between two overviews of a server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import TYPE_CHECKING

from .top_shapes import TopLatencyShape, TopNameShape, TopSessionsShape, TopShape
from .views import time_text

if TYPE_CHECKING:
    from noosphere.v1 import admin_overview_pb2 as pb
    from noosphere.v1 import admin_usage_pb2 as usage_pb


def figures(now: pb.GetOverviewResponse, before: pb.GetOverviewResponse | None, names_max: int) -> TopShape:
    """Returns what there is to show.

    Args:
        now: the newest overview.
        before: an older one; None, or one of another life of the server: rates are those since the start.
        names_max: most agents, and most namespaces.
    """
    if before is not None and (before.server_id != now.server_id or before.monotonic_ms >= now.monotonic_ms):
        before = None
    seconds = now.uptime_seconds if before is None else (now.monotonic_ms - before.monotonic_ms) / 1000
    seconds = max(seconds, 0.001)
    since_ms = before.time.ToMilliseconds() if before is not None else 0

    def rate(count: int, earlier: int) -> float:
        return round(max(0, count - earlier) / seconds, 2)

    return {
        "time": time_text(now.time.ToDatetime(UTC)),
        "server_id": now.server_id,
        "uptime_seconds": round(now.uptime_seconds, 3),
        "window_seconds": round(seconds, 3),
        "calls_per_second": rate(now.call_count, before.call_count if before else 0),
        "refusals_per_second": rate(now.refusal_count, before.refusal_count if before else 0),
        "conflicts_per_second": rate(now.conflict_count, before.conflict_count if before else 0),
        "open_count": now.open_count,
        "latencies": _latencies(now, before),
        "state_known": now.state_known,
        "agent_count": now.agent_count,
        "watch_count": now.watch_count,
        "namespace_count": now.namespace_count,
        "record_count": now.record_count,
        "record_bytes": now.record_bytes,
        "journal_bytes": now.journal_bytes,
        "resident_bytes": now.resident_bytes,
        "epoch": now.epoch,
        "jobs_waiting": now.jobs_waiting,
        "jobs_leased": now.jobs_leased,
        "jobs_dead": now.jobs_dead,
        "oldest_job_seconds": round(now.oldest_job_seconds, 3),
        "agents": _names(now.agents, before.agents if before else (), since_ms, seconds, names_max),
        "namespaces": _names(now.namespaces, before.namespaces if before else (), since_ms, seconds, names_max),
        "sessions": [_sessions(one) for one in now.sessions],
    }


def _latencies(now: pb.GetOverviewResponse, before: pb.GetOverviewResponse | None) -> list[TopLatencyShape]:
    earlier = {one.name: one for one in before.latencies} if before is not None else {}
    found: list[TopLatencyShape] = []
    for one in now.latencies:
        counts = list(one.counts)
        if (old := earlier.get(one.name)) is not None and len(old.counts) == len(counts):
            counts = [max(0, count - less) for count, less in zip(counts, old.counts, strict=True)]
        found.append(
            {
                "name": one.name,
                "count": sum(counts),
                "p50_seconds": quantile(one.bounds, counts, 0.5),
                "p99_seconds": quantile(one.bounds, counts, 0.99),
            }
        )
    return found


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Returns the bound that a share of durations does not exceed; the last bound for those above it.

    Args:
        bounds: upper bounds of buckets, in seconds.
        counts: how many are in each, and above the last one.
        share: above 0 and up to 1.

    Returns:
        Seconds; None if there are no durations.
    """
    left = share * sum(counts)
    if not left or not bounds:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        left -= count
        if left <= 1e-9:
            return bound
    return bounds[-1]


def _names(
    now: Iterable[usage_pb.UsageEntry],
    before: Iterable[usage_pb.UsageEntry],
    since_ms: int,
    seconds: float,
    names_max: int,
) -> list[TopNameShape]:
    """Returns the busiest names since the older overview, then those that have called last."""
    earlier = {one.name: one for one in before}
    found: list[TopNameShape] = []
    for one in now:
        # Of one that was not among the last to call then, only what it has done since is asked for next time.
        old = earlier.get(one.name) or (one if earlier and one.start_time.ToMilliseconds() < since_ms else None)
        refused, refused_before = sum(one.refusals.values()), sum(old.refusals.values()) if old else 0
        found.append(
            {
                "name": one.name,
                "calls_per_second": round(max(0, one.call_count - (old.call_count if old else 0)) / seconds, 2),
                "refusals_per_second": round(max(0, refused - refused_before) / seconds, 2),
                "conflicts_per_second": round(
                    max(0, one.conflict_count - (old.conflict_count if old else 0)) / seconds, 2
                ),
                "call_count": one.call_count,
                "conflict_count": one.conflict_count,
                "last_time": time_text(one.last_time.ToDatetime(UTC)),
            }
        )
    return sorted(found, key=lambda one: -one["calls_per_second"])[:names_max]


def _sessions(one: pb.SessionClassHealth) -> TopSessionsShape:
    def known(field: str) -> float | None:
        return round(getattr(one, field), 4) if one.HasField(field) else None  # type: ignore[arg-type] # a name of it

    return {
        "session_class": one.session_class,
        "turn_count": one.turn_count,
        "context_utilization": known("context_utilization"),
        "state_hit_rate": known("state_hit_rate"),
        "state_lifespan": known("state_lifespan"),
        "token_growth": known("token_growth"),
    }
