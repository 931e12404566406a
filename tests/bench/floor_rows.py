"""Rows against the floor: unary Get and Put at the stub's level and through our client, embedded and on Redis."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .children import START_SECONDS_MAX, BenchError, Child, start_floor, start_profiled, start_server
from .engines import BenchRedis
from .guarding import Guarded
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row
from .stats import ratios, spread

OURS, FLOOR = "noosphere", "floor"


class _Kind(NamedTuple):
    work: str
    what: str
    goal: Goal | None


KINDS = {
    "get_floor": _Kind("get", "Get", Goal(0.80, at_least=True)),
    "put_floor": _Kind("put", "Put, acknowledged on disk", Goal(0.60, at_least=True)),
    "client_get_floor": _Kind("client_get", "Get through `noosphere.client`", None),
    "client_put_floor": _Kind("client_put", "Put through `noosphere.client`", None),
}
ON_REDIS = {
    "redis_get_floor": _Kind("get", "Get on Redis", Goal(0.60, at_least=True)),
    "redis_put_floor": _Kind("put", "Put on Redis", Goal(0.45, at_least=True)),
}
GUARDED = {
    "guarded_get_floor": _Kind("get", "Get, all protection on", Goal(0.65, at_least=True)),
    "guarded_put_floor": _Kind("put", "Put, all protection on", Goal(0.50, at_least=True)),
}
GUARDED_TLS = {
    "guarded_tls_get_floor": _Kind("get", "Get, all protection on, mTLS", None),
    "guarded_tls_put_floor": _Kind("put", "Put, all protection on, mTLS", None),
}
_ALL = {**KINDS, **ON_REDIS, **GUARDED, **GUARDED_TLS}


async def measure(
    bench: Bench, names: Sequence[str], redis: BenchRedis | None = None, guard: Guarded | None = None
) -> list[Row]:
    """Measures the rows named, in alternating pairs of samples.

    Ours has its working memory on ``redis``, and asks for credentials with ``guard``.
    """
    load, callers = bench.load, bench.plan.callers
    data = bench.work / f"floor-rows{_suffix(redis)}{_kept_apart(guard)}"
    async with await start_server(data, bench.logs, environment=_environment(redis, guard)) as ours:
        await _attach(bench, OURS, ours, guard)
        replies = (await load.ask("record", target=OURS))["replies"]
        file = bench.work / "replies.json"
        file.write_text(json.dumps(replies))
        async with await start_floor(file, bench.logs) as floor:
            await load.ask("attach", target=FLOOR, address=floor.address, callers=callers, canned=replies)
            rows = [bench.keep(await _measure(bench, name, {OURS: ours, FLOOR: floor}, redis)) for name in names]
            await load.ask("detach", target=FLOOR)
            await load.ask("detach", target=OURS)
            await floor.stop()
            await ours.stop()
    return rows


def _suffix(redis: BenchRedis | None) -> str:
    return "" if redis is None else "-redis"


def _kept_apart(guard: Guarded | None) -> str:
    if guard is None:
        return ""
    return "-guarded-tls" if guard.tls else "-guarded"


def _environment(redis: BenchRedis | None, guard: Guarded | None) -> dict[str, str]:
    return {**({} if redis is None else redis.environment), **({} if guard is None else guard.environment)}


async def _attach(bench: Bench, target: str, server: Child, guard: Guarded | None) -> None:
    credentials: dict[str, Any] = {}
    if guard is not None:
        await guard.permit(server.address)
        credentials = {"token": guard.token, "admin_token": guard.admin_token, "tls": guard.tls}
    await bench.load.ask("attach", target=target, address=server.address, callers=bench.plan.callers, **credentials)


async def _measure(bench: Bench, name: str, servers: dict[str, Child], redis: BenchRedis | None) -> Row:
    plan, kind = bench.plan, _ALL[name]
    client = kind.work.startswith("client_")
    pairs = plan.client_pairs if client else plan.pairs
    calls = plan.get_calls if kind.work.endswith("get") else plan.put_calls
    for target in servers:
        await bench.load.ask("run", target=target, work=kind.work, calls=plan.warm_calls, callers=plan.callers)
    samples: dict[str, list[dict[str, Any]]] = {OURS: [], FLOOR: []}
    rounds = bench.rounds(pairs)
    for pair in rounds:
        # Whoever comes second finds another machine than whoever comes first, so they take turns.
        for target in (OURS, FLOOR) if pair % 2 == 0 else (FLOOR, OURS):
            samples[target].append(await _sample(bench, kind.work, calls, target, servers[target], redis))
        rounds.note(_rate(samples[OURS][-1]) / _rate(samples[FLOOR][-1]))
    await bench.load.ask("verify", target=OURS)
    row = _row(name, kind, samples)
    return row if redis is None else _with_redis(row, samples[OURS], redis)


async def _sample(
    bench: Bench, work: str, calls: int, target: str, server: Child, redis: BenchRedis | None
) -> dict[str, Any]:
    ours, writes = target == OURS, work.endswith("put")
    before = await bench.load.ask("stats", target=target) if ours else {}
    cpu, redis_cpu = server.cpu_seconds(), _cpu_of(redis)
    sample = await bench.load.ask("run", target=target, work=work, calls=calls, callers=bench.plan.callers)
    sample["server_cpu_s"] = server.cpu_seconds() - cpu
    sample["redis_cpu_s"] = _cpu_of(redis) - redis_cpu
    sample["syncs"] = 0
    if ours:
        after = await bench.load.ask("stats", target=target)
        sample["syncs"] = after["syncs"] - before["syncs"]
        commits = after["commits"] - before["commits"]
        if writes and (commits != sample["calls"] or not 0 < sample["syncs"] <= commits):
            raise BenchError(f"{sample['calls']} Puts made {commits} commits and {sample['syncs']} syncs")
        if after["engine"] != ("embedded" if redis is None else "redis"):
            raise BenchError(f"the server's working memory is on another engine: {after['engine']}")
        if redis is None and after["durability"] != "fsync":
            raise BenchError(f"the server's durability is {after['durability']}, so its Puts are not on disk")
    return sample


def _cpu_of(redis: BenchRedis | None) -> float:
    return 0.0 if redis is None else redis.cpu_seconds()


def _with_redis(row: Row, ours: list[dict[str, Any]], redis: BenchRedis) -> Row:
    row.what = f"{row.what} {redis.version}"
    calls = sum(sample["calls"] for sample in ours)
    row.figures = {**row.figures, "redis_cpu_us": sum(sample["redis_cpu_s"] for sample in ours) / calls * 1e6}
    return row


def _rate(sample: dict[str, Any]) -> float:
    return float(sample["calls"] / sample["seconds"])


def _row(name: str, kind: _Kind, samples: dict[str, list[dict[str, Any]]]) -> Row:
    def median(target: str, figure: Callable[[dict[str, Any]], float]) -> float:
        return spread([figure(sample) for sample in samples[target]]).median

    def total(target: str, figure: str) -> float:
        return float(sum(sample[figure] for sample in samples[target]))

    def each_us(target: str, figure: str) -> float:
        return total(target, figure) / total(target, "calls") * 1e6

    figures: dict[str, float] = {"calls": samples[OURS][0]["calls"]}
    for target, prefix in ((OURS, "ours"), (FLOOR, "floor")):
        # CPU is counted in ticks of 10 ms: too coarse for one sample, exact enough for all of them.
        figures |= {
            f"{prefix}_rate": median(target, _rate),
            f"{prefix}_cpu_us": each_us(target, "server_cpu_s"),
            f"{prefix}_busy": total(target, "server_cpu_s") / total(target, "seconds"),
            f"{prefix}_p50_ms": median(target, lambda sample: float(sample["p50_ms"])),
            f"{prefix}_p99_ms": median(target, lambda sample: float(sample["p99_ms"])),
            f"{prefix}_generator_us": each_us(target, "generator_cpu_s"),
        }
    figures["syncs"] = total(OURS, "syncs")
    figures["calls_total"] = total(OURS, "calls")
    value = ratios([_rate(sample) for sample in samples[OURS]], [_rate(sample) for sample in samples[FLOOR]])
    return Row(name, kind.what, value, kind.goal, figures, samples)


async def profile(
    bench: Bench, name: str, redis: BenchRedis | None = None, guard: Guarded | None = None
) -> list[Profile]:
    """Profiles our server's side of a row, at the stub's level."""
    plan, kind = bench.plan, _ALL[name]
    work = kind.work.removeprefix("client_")
    data = bench.work / f"profile-{work}{_suffix(redis)}{_kept_apart(guard)}"
    environment = _environment(redis, guard)
    async with await start_profiled(data, bench.logs, "window", environment) as server:
        await _attach(bench, "profiled", server, guard)
        await bench.load.ask("run", target="profiled", work=work, calls=plan.warm_calls, callers=plan.callers)
        server.signal(signal.SIGUSR1)
        sample = await bench.load.ask(
            "run", target="profiled", work=work, calls=plan.profile_calls, callers=plan.callers
        )
        server.signal(signal.SIGUSR2)
        recorded = json.loads(await server.line(START_SECONDS_MAX))
        await bench.load.ask("detach", target="profiled")
        await server.stop()
    return window_profiles(f"Server during {kind.what}", recorded, sample["calls"])
