"""Rows about one hot key: changes that many processes make through our server, and with redis-py at Redis itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from .children import BenchError, Child, start_server, start_worker
from .engines import BenchRedis
from .rows import Bench, Goal, Row
from .stats import ratios, spread

GOAL = Goal(2.0, at_least=True)
WORKS = {"redis_hot_key": "update", "redis_hot_counter": "increment"}
"""By row, the command of :mod:`.contender` that is ours."""
_WHATS = {
    "redis_hot_key": "Changes of one hot key, read and replaced",
    "redis_hot_counter": "Changes of one hot key, by an operation",
}
THEIRS = "theirs"
RESERVE = "on_conflict"
"""How agents that update take turns, a word of ``Key.update``."""


def what_of(name: str) -> str:
    """Returns what a row is about."""
    return _WHATS[name]


async def measure(bench: Bench, names: Sequence[str], redis: BenchRedis) -> list[Row]:
    """Measures spans in alternation: the same processes, the same Redis, values of the same size."""
    plan = bench.plan
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            await start_server(bench.work / "cas-rows", bench.logs, environment=redis.environment)
        )
        contenders = [
            await stack.enter_async_context(await start_worker("contender", bench.logs, f"contender {number}"))
            for number in range(plan.cas_processes)
        ]
        version = ""
        for number, contender in enumerate(contenders):
            version = (await contender.ask("open", number=number, address=server.address, port=redis.port))["version"]
        counted = dict.fromkeys((*WORKS.values(), THEIRS), 0)
        rows = []
        for name in names:
            samples = await _sample(bench, WORKS[name], contenders, server, redis)
            for side, taken in samples.items():
                counted[side] += sum(int(sample["commits"]) for sample in taken)
            # The first pair warms up.
            measured = {side: taken[1:] for side, taken in samples.items()}
            what = f"{_WHATS[name]}: Redis {redis.version} / redis-py {version}"
            rows.append(bench.keep(_row(name, what, plan.cas_processes, WORKS[name], measured)))
        found = await contenders[0].ask("counted")
        if {side: found[side] for side in counted} != counted:
            raise BenchError(f"{counted} changes were acknowledged, the numbers that are stored are {found}")
        for contender in contenders:
            await contender.ask("close")
        await server.stop()
    return rows


async def _sample(
    bench: Bench, work: str, contenders: Sequence[Child], server: Child, redis: BenchRedis
) -> dict[str, list[dict[str, float]]]:
    samples: dict[str, list[dict[str, float]]] = {work: [], THEIRS: []}
    for pair in range(1 + bench.plan.cas_pairs):
        for side in (work, THEIRS) if pair % 2 else (THEIRS, work):
            cpu, redis_cpu = server.cpu_seconds(), redis.cpu_seconds()
            taken = await _span(contenders, side, bench.plan.cas_seconds)
            taken["server_cpu_s"] = server.cpu_seconds() - cpu
            taken["redis_cpu_s"] = redis.cpu_seconds() - redis_cpu
            samples[side].append(taken)
    return samples


async def _span(contenders: Sequence[Child], side: str, seconds: float) -> dict[str, float]:
    more: dict[str, Any] = {"reserve": RESERVE} if side == "update" else {}
    told = await asyncio.gather(*(contender.ask(side, seconds=seconds, **more) for contender in contenders))
    return {
        "commits": sum(each["commits"] for each in told),
        "attempts": sum(each["attempts"] for each in told),
        "rate": sum(each["commits"] / each["seconds"] for each in told),
        "cpu_s": sum(each["cpu_s"] for each in told),
        "p50_ms": spread([each["p50_ms"] for each in told]).median,
        "p99_ms": max(each["p99_ms"] for each in told),
        "fewest": min(each["commits"] for each in told),
        "most": max(each["commits"] for each in told),
    }


def _row(name: str, what: str, processes: int, work: str, samples: dict[str, list[dict[str, float]]]) -> Row:
    figures: dict[str, float] = {"processes": processes}
    for side, prefix in ((work, "ours"), (THEIRS, "theirs")):
        taken = samples[side]
        commits = sum(sample["commits"] for sample in taken)
        figures |= {
            f"{prefix}_{figure}": spread([sample[figure] for sample in taken]).median
            for figure in ("rate", "p50_ms", "p99_ms", "fewest", "most")
        }
        figures |= {
            f"{prefix}_attempts": sum(sample["attempts"] for sample in taken) / commits,
            f"{prefix}_cpu_us": sum(sample["cpu_s"] for sample in taken) / commits * 1e6,
            f"{prefix}_redis_us": sum(sample["redis_cpu_s"] for sample in taken) / commits * 1e6,
            f"{prefix}_server_us": sum(sample["server_cpu_s"] for sample in taken) / commits * 1e6,
        }
    rates = {side: [sample["rate"] for sample in taken] for side, taken in samples.items()}
    return Row(name, what, ratios(rates[work], rates[THEIRS]), GOAL, figures, samples)
