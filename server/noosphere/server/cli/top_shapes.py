"""The documents of `noosphere top`. Field names are part of the interface for programs."""

from __future__ import annotations

from typing import Annotated, TypedDict


class TopNameShape(TypedDict):
    """What an agent or a namespace is doing."""

    name: Annotated[str, "Its name."]
    calls_per_second: Annotated[float, "Calls."]
    refusals_per_second: Annotated[float, "Refused calls."]
    conflicts_per_second: Annotated[float, "Calls that came to nothing because somebody else was faster."]
    call_count: Annotated[int, "Calls since it is counted."]
    conflict_count: Annotated[int, "Conflicts since then."]
    last_time: Annotated[str | None, "When its last call ended."]


class TopLatencyShape(TypedDict):
    """How long something took, within the window."""

    name: Annotated[str, "Get, Put, commit (of the store), or watch lag."]
    count: Annotated[int, "How often."]
    p50_seconds: Annotated[float | None, "Half of them took at most so long; a bound, not exact."]
    p99_seconds: Annotated[float | None, "99 of 100 took at most so long."]


class TopSessionsShape(TypedDict):
    """How sessions of one class fare: means since the server started."""

    session_class: Annotated[str, "The label class of the sessions."]
    turn_count: Annotated[int, "Turns."]
    context_utilization: Annotated[float | None, "Tokens used by contexts over tokens allowed."]
    state_hit_rate: Annotated[float | None, "Entries recalled and used over those recalled."]
    state_lifespan: Annotated[float | None, "Turns of items in working memory."]
    token_growth: Annotated[float | None, "Growth of contexts per turn."]


class TopShape(TypedDict):
    """How one server is doing."""

    time: Annotated[str | None, "When."]
    server_id: Annotated[str, "Which server has answered."]
    uptime_seconds: Annotated[float, "Since it started."]
    window_seconds: Annotated[float, "What rates and latencies are taken over; the uptime at first."]
    calls_per_second: Annotated[float, "Calls."]
    refusals_per_second: Annotated[float, "Refused calls."]
    conflicts_per_second: Annotated[float, "Conflicts, refused or not."]
    open_count: Annotated[int, "Calls and streams under way."]
    latencies: Annotated[list[TopLatencyShape], "How long things took."]
    state_known: Annotated[bool, "Whether the store has told what it holds; if not, counts up to jobs_dead are 0."]
    agent_count: Annotated[int, "Agents with a living lease."]
    watch_count: Annotated[int, "Open watch streams."]
    namespace_count: Annotated[int, "Live namespaces."]
    record_count: Annotated[int, "Records."]
    record_bytes: Annotated[int, "Bytes of records."]
    journal_bytes: Annotated[int, "Bytes of journal that wait to be folded."]
    resident_bytes: Annotated[int, "Resident memory of the process."]
    epoch: Annotated[int, "The present epoch."]
    jobs_waiting: Annotated[int, "Candidates and extractions that wait."]
    jobs_leased: Annotated[int, "Those that are worked on."]
    jobs_dead: Annotated[int, "Those that were given up."]
    oldest_job_seconds: Annotated[float, "How long the oldest has waited."]
    agents: Annotated[list[TopNameShape], "Agents, the busiest first."]
    namespaces: Annotated[list[TopNameShape], "Namespaces, the busiest first."]
    sessions: Annotated[list[TopSessionsShape], "Health of sessions by class."]
