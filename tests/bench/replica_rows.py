"""Rows about two replicas on one Redis and one etcd, compared with one of them that serves everybody."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any

from .children import BenchError, Child, start_server, start_worker
from .engines import BenchRedis, etcd, redis
from .rows import Bench, Row
from .stats import ratios, spread

WORKS = {"replicas_get": "get", "replicas_put": "put"}
ONE, TWO = "one", "two"
_GENERATORS = 2
"""Processes that call, whatever the number of replicas: each has half of the callers."""


def what_of(name: str) -> str:
    """Returns what a row is about."""
    return f"{WORKS[name].capitalize()}, two replicas / one"


async def measure(bench: Bench, names: Sequence[str]) -> list[Row]:
    """Measures samples in alternation: the same callers, of one replica and of two."""
    async with contextlib.AsyncExitStack() as stack:
        engine = stack.enter_context(redis(bench.work / "redis-replicas"))
        environment = {**engine.environment, **stack.enter_context(etcd(bench.work / "etcd-replicas"))}
        replicas = [
            await stack.enter_async_context(
                await start_server(bench.work / "unused", bench.logs, f"replica {number}", environment)
            )
            for number in range(_GENERATORS)
        ]
        generators = [
            await stack.enter_async_context(await start_worker("load", bench.logs, f"load {number}"))
            for number in range(_GENERATORS)
        ]
        callers = max(1, bench.plan.callers // _GENERATORS)
        for number, generator in enumerate(generators):
            for target, replica in ((ONE, replicas[0]), (TWO, replicas[number])):
                # Each has keys of its own, so they never conflict.
                first = callers * (number if target == ONE else _GENERATORS + number)
                await generator.ask("attach", target=target, address=replica.address, callers=callers, first=first)
        rows = [bench.keep(await _measure(bench, name, callers, generators, replicas, engine)) for name in names]
        for generator in generators:
            for target in (ONE, TWO):
                await generator.ask("verify", target=target)
                await generator.ask("detach", target=target)
        for replica in replicas:
            await replica.stop()
    return rows


async def _measure(
    bench: Bench,
    name: str,
    callers: int,
    generators: Sequence[Child],
    replicas: Sequence[Child],
    engine: BenchRedis,
) -> Row:
    plan, work = bench.plan, WORKS[name]
    calls = plan.get_calls if work == "get" else plan.put_calls
    samples: dict[str, list[dict[str, float]]] = {ONE: [], TWO: []}
    # The first pair warms up.
    rounds = bench.rounds(plan.pairs, warm=1)
    for pair in rounds:
        for target in (ONE, TWO) if pair % 2 == 0 else (TWO, ONE):
            cpus, redis_cpu = [replica.cpu_seconds() for replica in replicas], engine.cpu_seconds()
            told = await asyncio.gather(
                *(each.ask("run", target=target, work=work, calls=calls, callers=callers) for each in generators)
            )
            spent = [replica.cpu_seconds() - before for replica, before in zip(replicas, cpus, strict=True)]
            if pair >= 0:
                samples[target].append(_sample(told, spent, engine.cpu_seconds() - redis_cpu))
        if pair >= 0:
            rounds.note(_rate(samples[TWO][-1]) / _rate(samples[ONE][-1]))
    return _row(name, samples, engine)


def _sample(told: Sequence[dict[str, Any]], replicas_cpu_s: Sequence[float], redis_cpu_s: float) -> dict[str, float]:
    return {
        "calls": sum(each["calls"] for each in told),
        "seconds": max(each["seconds"] for each in told),
        "replicas_cpu_s": sum(replicas_cpu_s),
        "second_cpu_s": replicas_cpu_s[1],
        "redis_cpu_s": redis_cpu_s,
        "generators_cpu_s": sum(each["generator_cpu_s"] for each in told),
        "p50_ms": max(each["p50_ms"] for each in told),
        "p99_ms": max(each["p99_ms"] for each in told),
    }


def _rate(sample: dict[str, float]) -> float:
    return sample["calls"] / sample["seconds"]


def _row(name: str, samples: dict[str, list[dict[str, float]]], engine: BenchRedis) -> Row:
    figures: dict[str, float] = {"calls": samples[TWO][0]["calls"], "cores": len(os.sched_getaffinity(0))}
    rates = {target: [_rate(sample) for sample in taken] for target, taken in samples.items()}
    for target, taken in samples.items():
        total = {part: sum(sample[part] for sample in taken) for part in taken[0]}
        spent = total["replicas_cpu_s"] + total["redis_cpu_s"] + total["generators_cpu_s"]
        figures |= {
            f"{target}_rate": spread(rates[target]).median,
            f"{target}_replicas_us": total["replicas_cpu_s"] / total["calls"] * 1e6,
            f"{target}_redis_us": total["redis_cpu_s"] / total["calls"] * 1e6,
            f"{target}_generators_us": total["generators_cpu_s"] / total["calls"] * 1e6,
            f"{target}_replica_busy": total["replicas_cpu_s"] / total["seconds"] / (1 if target == ONE else 2),
            f"{target}_machine_busy": spent / total["seconds"] / figures["cores"],
            f"{target}_p50_ms": spread([sample["p50_ms"] for sample in taken]).median,
            f"{target}_p99_ms": spread([sample["p99_ms"] for sample in taken]).median,
            f"{target}_second_share": total["second_cpu_s"] / max(total["replicas_cpu_s"], 1e-9),
        }
    if figures["two_second_share"] < figures["one_second_share"]:
        raise BenchError("the second replica had nothing to do, so there is nothing to compare")
    what = f"{what_of(name)}, Redis {engine.version}"
    return Row(name, what, ratios(rates[TWO], rates[ONE]), None, figures, samples)
