"""One run from start to end: the folder, the children, the rows, the profiles of what missed its goal."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
from .children import start_worker
from .guarding import guarded
from .plan import Plan
from .rows import Bench, Row, Unmeasured


async def run(plan: Plan, parent: Path, names: Sequence[str], profiled: bool) -> list[Row | Unmeasured]:
    """Measures the rows named.

    Args:
        plan: how much to measure.
        parent: an existing folder on the disk that is measured; the run makes its own below it.
        names: which rows.
        profiled: profile every row that has a goal, not only those that miss it.

    Raises:
        BenchError: something failed or answered wrongly; the log of the child concerned is in the message.
    """
    work = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        async with await start_worker("load", work) as load:
            return await _rows(Bench(plan, work, work, load), names, profiled)
    finally:
        shutil.rmtree(work, ignore_errors=True)


async def _rows(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row | Unmeasured]:
    rows: list[Row | Unmeasured] = []
    if found := [name for name in floor_rows.KINDS if name in names]:
        _say(f"against the floor: {', '.join(found)}")
        for row in await floor_rows.measure(bench, found):
            if row.goal is not None and (profiled or not row.met):
                _say(f"profile of {row.name}")
                row.profiles += await floor_rows.profile(bench, row.name)
            rows.append(row)
    if found := [name for name in floor_rows.GUARDED if name in names]:
        _say(f"with all protection on: {', '.join(found)}")
        with guarded(bench.work) as guard:
            for row in await floor_rows.measure(bench, found, guard=guard):
                if profiled or not row.met:
                    _say(f"profile of {row.name}")
                    row.profiles += await floor_rows.profile(bench, row.name, guard=guard)
                rows.append(row)
    if found := [name for name in floor_rows.GUARDED_TLS if name in names]:
        _say(f"with all protection on, under mTLS: {', '.join(found)}")
        with guarded(bench.work, tls=True) as guard:
            rows += await floor_rows.measure(bench, found, guard=guard)
    if fast := [name for name in fast_rows.NAMES if name in names]:
        _say(f"through one client: {', '.join(fast)}")
        rows += await fast_rows.measure(bench, fast, profiled)
    if on_redis := [name for name in redis_rows.NAMES if name in names]:
        _say(f"on Redis: {', '.join(on_redis)}")
        rows += await redis_rows.measure(bench, on_redis, profiled)
    if overload := [name for name in overload_rows.NAMES if name in names]:
        _say(f"with too much to do: {', '.join(overload)}")
        rows += await overload_rows.measure(bench, overload)
    if threads := [name for name in sync_rows.KINDS if name in names]:
        _say(f"from a thread: {', '.join(threads)}")
        rows += await sync_rows.measure(bench, threads, profiled)
    if sessions := [name for name in session_rows.NAMES if name in names]:
        _say(f"sessions: {', '.join(sessions)}")
        rows += await session_rows.measure(bench, sessions, profiled)
    if facts := [name for name in fact_rows.NAMES if name in names]:
        _say(f"facts: {', '.join(facts)}")
        rows += await fact_rows.measure(bench, facts, profiled)
    if fact_context_rows.NAME in names:
        _say(f"contexts with facts: {fact_context_rows.NAME}")
        rows.append(await fact_context_rows.measure(bench, profiled))
    engine = [name for name in engine_rows.KINDS if name in names]
    server = [name for name in server_rows.NAMES if name in names]
    if engine or server:
        _say(f"writing {bench.plan.records_large:,} records")
        folders = await server_rows.prepare(bench)
        if server:
            _say(f"with many records: {', '.join(server)}")
            rows += await server_rows.measure(bench, server, folders, profiled)
        if engine:
            _say(f"in process: {', '.join(engine)}")
            rows += await engine_rows.measure(bench, engine, folders.clean, profiled)
    return rows


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
