"""The parts of a run, in the order in which they are measured: what is asked for first comes first.

Each has folders, servers and a load generator of its own, so that one that fails leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from . import (
    engine_rows,
    fact_context_rows,
    fact_rows,
    fast_rows,
    floor_rows,
    overload_rows,
    redis_rows,
    server_rows,
    session_rows,
    sync_rows,
)
from .guarding import guarded
from .rows import Bench, Row, Unmeasured, profile_into

Found = Sequence[Row | Unmeasured]
Measure = Callable[[Bench, Sequence[str], bool], Awaitable[Found]]


class Part(NamedTuple):
    """A part of a run.

    Attributes:
        name: stable, for programs.
        label: what it measures, for people.
        rows: the names of its rows.
        measure: fills those of them that are asked for; if told so, with a profile of each that has a goal.
    """

    name: str
    label: str
    rows: tuple[str, ...]
    measure: Measure


async def _floor(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    rows = await floor_rows.measure(bench, names)
    for row in rows:
        if row.goal is not None and (profiled or not row.met):
            await profile_into(row, floor_rows.profile(bench, row.name))
    return rows


async def _guarded(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    with guarded(bench.work) as guard:
        rows = await floor_rows.measure(bench, names, guard=guard)
        for row in rows:
            if profiled or not row.met:
                await profile_into(row, floor_rows.profile(bench, row.name, guard=guard))
    return rows


async def _guarded_tls(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    with guarded(bench.work, tls=True) as guard:
        return await floor_rows.measure(bench, names, guard=guard)


async def _overload(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    return await overload_rows.measure(bench, names)


async def _fact_context(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    return [await fact_context_rows.measure(bench, profiled)]


async def _large(bench: Bench, names: Sequence[str], profiled: bool) -> Found:
    """Both rows of servers and those in process need the same records, which take long to write."""
    rows: list[Row] = []
    folders = await server_rows.prepare(bench)
    if server := [name for name in server_rows.NAMES if name in names]:
        rows += await server_rows.measure(bench, server, folders, profiled)
    if engine := [name for name in engine_rows.KINDS if name in names]:
        rows += await engine_rows.measure(bench, engine, folders.clean, profiled)
    return rows


PARTS = (
    Part("floor", "against the floor", tuple(floor_rows.KINDS), _floor),
    Part("streams", "calls that share a stream, and near caches", fast_rows.NAMES, fast_rows.measure),
    Part("guarded", "with all protection on", tuple(floor_rows.GUARDED), _guarded),
    Part("redis_floor", "on Redis, against the floor", tuple(floor_rows.ON_REDIS), redis_rows.measure),
    Part("hot_key", "one hot key on Redis", redis_rows.HOT, redis_rows.measure),
    Part("sessions", "contexts and checkpoints", session_rows.NAMES, session_rows.measure),
    Part("overload", "with too much to do", overload_rows.NAMES, _overload),
    Part("large", "with many records", (*server_rows.NAMES, *engine_rows.KINDS), _large),
    Part("fact_pipeline", "candidates for facts", fact_rows.PIPELINES, fact_rows.measure),
    Part("fact_beside", "calls beside candidates", fact_rows.BESIDE, fact_rows.measure),
    Part("fact_contexts", "contexts with facts", (fact_context_rows.NAME,), _fact_context),
    Part("fact_search", "searches for facts", fact_rows.SEARCHES, fact_rows.measure),
    Part("sync", "from a thread", tuple(sync_rows.KINDS), sync_rows.measure),
    Part("script", "inside Redis", redis_rows.SCRIPT, redis_rows.measure),
    Part("redis_streams", "on Redis, calls that share a stream", tuple(fast_rows.ON_REDIS), redis_rows.measure),
    Part("replicas", "two replicas", redis_rows.REPLICAS, redis_rows.measure),
    Part("guarded_tls", "with all protection on, under mTLS", tuple(floor_rows.GUARDED_TLS), _guarded_tls),
)
