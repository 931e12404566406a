"""Rows about speed that a client brings: calls that share a stream, and reads that need no call."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from .children import START_SECONDS_MAX, Child, start_profiled, start_server, start_worker
from .engines import BenchRedis
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row, profile_into
from .stats import ratios, spread

COALESCED, UNARY = "coalesced", "unary"
_WRITES_PER_SECOND = 100.0


class _Cached(NamedTuple):
    kind: str
    what: str
    goal: Goal


CALLS = {"coalesced_get": "get", "coalesced_put": "put"}
ON_REDIS = {"redis_coalesced_get": "get", "redis_coalesced_put": "put"}
_WORKS = {**CALLS, **ON_REDIS}
CACHED = {
    "near_cache_raw": _Cached("raw", "Near cache, bytes", Goal(100, at_least=True)),
    "near_cache_record": _Cached("record", "Near cache, immutable record", Goal(100, at_least=True)),
    "near_cache_json": _Cached("value", "Near cache, fresh JSON", Goal(30, at_least=True)),
}
NAMES = (*CALLS, *CACHED)
_CALLS_GOAL = Goal(8.0, at_least=True)
_REDIS_GOAL = Goal(5.0, at_least=True)


async def measure(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    """Measures the rows named; ``profiled`` profiles every row with a goal, not only those that miss it."""
    rows: list[Row] = []
    async with await start_worker("fast", bench.logs) as fast:
        if calls := [name for name in CALLS if name in names]:
            rows += await measure_calls(bench, fast, calls)
        if cached := [name for name in CACHED if name in names]:
            rows += await _cached(bench, fast, cached)
        for row in rows:
            if row.goal is not None and (profiled or not row.met):
                if row.name in CALLS:
                    await profile_into(row, profile_calls(bench, fast, row))
                else:
                    await profile_into(row, _profile_cached(bench, fast, row))
    return rows


async def measure_calls(bench: Bench, fast: Child, names: Sequence[str], redis: BenchRedis | None = None) -> list[Row]:
    """Measures calls that share a stream beside unary ones, the working memory being on ``redis``."""
    plan = bench.plan
    rows = []
    where, environment = _place(redis)
    async with await start_server(bench.work / f"fast-rows{where}", bench.logs, environment=environment) as server:
        for name in (COALESCED, UNARY):
            await fast.ask(
                "open", name=name, address=server.address, callers=plan.fast_callers, coalesce=name == COALESCED
            )
        for row in names:
            work = _WORKS[row]
            samples: dict[str, list[dict[str, Any]]] = {COALESCED: [], UNARY: []}
            for name in samples:
                await fast.ask("run", name=name, work=work, calls=plan.warm_calls)
            calls = {COALESCED: plan.coalesced_calls, UNARY: plan.unary_calls}
            rounds = bench.rounds(plan.fast_pairs)
            for pair in rounds:
                for name in (COALESCED, UNARY) if pair % 2 == 0 else (UNARY, COALESCED):
                    cpu = server.cpu_seconds()
                    sample = await fast.ask("run", name=name, work=work, calls=calls[name])
                    samples[name].append({**sample, "server_cpu_s": server.cpu_seconds() - cpu})
                rounds.note(_rate(samples[COALESCED][-1]) / _rate(samples[UNARY][-1]))
            rows.append(bench.keep(_calls_row(row, work, plan.fast_callers, samples, redis)))
        for name in (COALESCED, UNARY):
            await fast.ask("close", name=name)
        await server.stop()
    return rows


def _rate(sample: dict[str, Any]) -> float:
    return float(sample["calls"] / sample["seconds"])


def _place(redis: BenchRedis | None) -> tuple[str, dict[str, str]]:
    return ("", {}) if redis is None else ("-redis", redis.environment)


def _calls_row(
    name: str, work: str, callers: int, samples: dict[str, list[dict[str, Any]]], redis: BenchRedis | None
) -> Row:
    rates = {which: [_rate(s) for s in taken] for which, taken in samples.items()}
    figures: dict[str, float] = {"callers": callers}
    for which, taken in samples.items():
        calls = sum(sample["calls"] for sample in taken)
        figures |= {
            f"{which}_rate": spread(rates[which]).median,
            f"{which}_cpu_us": sum(sample["cpu_s"] for sample in taken) / calls * 1e6,
            f"{which}_server_us": sum(sample["server_cpu_s"] for sample in taken) / calls * 1e6,
            f"{which}_p50_ms": spread([sample["p50_ms"] for sample in taken]).median,
            f"{which}_p99_ms": spread([sample["p99_ms"] for sample in taken]).median,
        }
    on, goal = ("", _CALLS_GOAL) if redis is None else (f" on Redis {redis.version}", _REDIS_GOAL)
    what = f"{work.capitalize()}{on}, coalesced / unary"
    return Row(name, what, ratios(rates[COALESCED], rates[UNARY]), goal, figures, samples)


async def _cached(bench: Bench, fast: Child, names: Sequence[str]) -> list[Row]:
    plan = bench.plan
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(await start_server(bench.work / "cache-rows", bench.logs))
        # A process of its own: another agent, on another machine.
        writer = await stack.enter_async_context(await start_worker("fast", bench.logs, "writer"))
        redis = await stack.enter_async_context(_redis())
        await writer.ask("write_start", address=server.address, per_second=_WRITES_PER_SECOND)
        await fast.ask("cache_open", address=server.address)
        version = "" if redis is None else (await fast.ask("redis_open", port=redis))["version"]
        samples: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        theirs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for name in names:
            await fast.ask("cache_read", kind=CACHED[name].kind, reads=plan.cache_reads // 10)
            rounds = bench.rounds(plan.cache_pairs)
            for _ in rounds:
                samples[name].append(await fast.ask("cache_read", kind=CACHED[name].kind, reads=plan.cache_reads))
                if redis is not None:
                    theirs[name].append(await fast.ask("redis_get", calls=plan.redis_gets))
                    rounds.note(_rate(samples[name][-1]) / _rate(theirs[name][-1]))
        acked = (await writer.ask("write_stop"))["acked_ns"]
        await fast.ask("shut")
        await server.stop()
    return [bench.keep(_cached_row(name, samples[name], theirs[name], acked, version)) for name in names]


def _cached_row(
    name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], acked_ns: list[int], version: str
) -> Row:
    rates = [_rate(sample) for sample in ours]
    stale = [
        (seen - acked_ns[number + 1]) / 1e6
        for sample in ours
        for number, seen in sample["last_seen_ns"]
        if number + 1 < len(acked_ns)
    ]
    figures: dict[str, float] = {
        "rate": spread(rates).median,
        "ns": 1e9 / spread(rates).median,
        "stale_ms_max": max(0.0, *stale) if stale else 0.0,
        "writes_seen": sum(len(sample["last_seen_ns"]) for sample in ours),
        "writes_per_s": (len(acked_ns) - 1) / max((acked_ns[-1] - acked_ns[0]) / 1e9, 1e-9),
    }
    for sample in ours:
        del sample["last_seen_ns"]
    cached = CACHED[name]
    if not theirs:
        what = f"{cached.what}, reads/s (redis-py was not measured: there is no redis-server, or no redis with hiredis)"
        return Row(name, what, spread(rates), None, figures, {"ours": ours})
    redis_rates = [_rate(sample) for sample in theirs]
    figures["redis_rate"] = spread(redis_rates).median
    what = f"{cached.what} / redis-py {version} `GET`"
    return Row(name, what, ratios(rates, redis_rates), cached.goal, figures, {"ours": ours, "redis": theirs})


@contextlib.asynccontextmanager
async def _redis() -> AsyncIterator[int | None]:
    """Runs a Redis that keeps nothing on disk; yields its port, None if it or its client is not installed."""
    program = shutil.which("redis-server")
    if program is None or not all(map(importlib.util.find_spec, ("redis", "hiredis"))):
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        program,
        *("--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


async def profile_calls(bench: Bench, fast: Child, row: Row, redis: BenchRedis | None = None) -> list[Profile]:
    """Profiles both sides while calls are coalesced."""
    plan, work = bench.plan, _WORKS[row.name]
    _, environment = _place(redis)
    async with await start_profiled(bench.work / f"profile-{row.name}", bench.logs, "window", environment) as server:
        await fast.ask("open", name="profiled", address=server.address, callers=plan.fast_callers, coalesce=True)
        await fast.ask("run", name="profiled", work=work, calls=plan.warm_calls)
        server.signal(signal.SIGUSR1)
        sample = await fast.ask("run", name="profiled", work=work, calls=plan.profile_calls)
        server.signal(signal.SIGUSR2)
        recorded = json.loads(await server.line(START_SECONDS_MAX))
        await fast.ask("profile_begin")
        mine = await fast.ask("run", name="profiled", work=work, calls=plan.profile_calls)
        client = await fast.ask("profile_end")
        await fast.ask("close", name="profiled")
        await server.stop()
    title = f"coalesced {work}{'' if redis is None else ' on Redis'}"
    return [
        *window_profiles(f"Server during {title}", recorded, sample["calls"]),
        *window_profiles(f"Client during {title}", client, mine["calls"]),
    ]


async def _profile_cached(bench: Bench, fast: Child, row: Row) -> list[Profile]:
    """Profiles the reading process; the writer rests."""
    kind = CACHED[row.name].kind
    async with (
        await start_server(bench.work / f"profile-{row.name}", bench.logs) as server,
        await start_worker("fast", bench.logs, "writer") as writer,
    ):
        await writer.ask("write_start", address=server.address, per_second=_WRITES_PER_SECOND)
        await fast.ask("cache_open", address=server.address)
        await fast.ask("profile_begin")
        sample = await fast.ask("cache_read", kind=kind, reads=bench.plan.cache_reads // 10)
        recorded = await fast.ask("profile_end")
        await writer.ask("write_stop")
        await fast.ask("shut")
        await server.stop()
    return window_profiles(row.what, recorded, sample["calls"])
