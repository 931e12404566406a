"""Rows of servers whose working memory is on Redis: one replica of ours, and two."""

from __future__ import annotations

from collections.abc import Sequence

from . import cas_rows, fast_rows, floor_rows, replica_rows, script_rows
from .children import start_worker
from .engines import NO_ETCD, NO_REDIS, NO_REDIS_PY, redis
from .rows import Bench, Row, Unmeasured, profile_into

_WHATS = {
    **{name: kind.what for name, kind in floor_rows.ON_REDIS.items()},
    **{name: f"{work.capitalize()} on Redis, coalesced / unary" for name, work in fast_rows.ON_REDIS.items()},
    script_rows.NAME: script_rows.WHAT,
    **{name: cas_rows.what_of(name) for name in cas_rows.WORKS},
    **{name: replica_rows.what_of(name) for name in replica_rows.WORKS},
}
NAMES = tuple(_WHATS)
SCRIPT, HOT, REPLICAS = (script_rows.NAME,), tuple(cas_rows.WORKS), tuple(replica_rows.WORKS)
UNPROFILED = (*SCRIPT, *HOT, *REPLICAS)
"""Rows whose time goes elsewhere than in one process of Python, so that a profile would say nothing."""


async def measure(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row | Unmeasured]:
    """Measures the rows named; ``profiled`` profiles every row of a server, not only those that miss their goal."""
    if NO_REDIS:
        return [Unmeasured(name, _WHATS[name], NO_REDIS) for name in names]
    rows: list[Row | Unmeasured] = []
    # What one part leaves behind must not weigh on the next.
    if found := [name for name in floor_rows.ON_REDIS if name in names]:
        rows += await _against_the_floor(bench, found, profiled)
    if found := [name for name in fast_rows.ON_REDIS if name in names]:
        rows += await _coalesced(bench, found, profiled)
    if script_rows.NAME in names:
        with redis(bench.work / "redis-script") as engine:
            rows.append(bench.keep(await script_rows.measure(bench, engine)))
    if found := [name for name in cas_rows.WORKS if name in names]:
        if NO_REDIS_PY:
            rows += [Unmeasured(name, _WHATS[name], NO_REDIS_PY) for name in found]
        else:
            with redis(bench.work / "redis-cas") as engine:
                rows += await cas_rows.measure(bench, found, engine)
    if found := [name for name in replica_rows.WORKS if name in names]:
        if NO_ETCD:
            rows += [Unmeasured(name, _WHATS[name], NO_ETCD) for name in found]
        else:
            rows += await replica_rows.measure(bench, found)
    return rows


async def _against_the_floor(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    with redis(bench.work / "redis-floor") as engine:
        rows = await floor_rows.measure(bench, names, engine)
    for row in rows:
        if profiled or not row.met:
            with redis(bench.work / f"redis-{row.name}") as engine:
                await profile_into(row, floor_rows.profile(bench, row.name, engine))
    return rows


async def _coalesced(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    async with await start_worker("fast", bench.logs, "fast on redis") as fast:
        with redis(bench.work / "redis-fast") as engine:
            rows = await fast_rows.measure_calls(bench, fast, names, engine)
        for row in rows:
            if profiled or not row.met:
                with redis(bench.work / f"redis-{row.name}") as engine:
                    await profile_into(row, fast_rows.profile_calls(bench, fast, row, engine))
    return rows
