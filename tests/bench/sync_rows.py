"""Rows about the sync client: what a call costs beyond the same call of the async client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .children import Child, start_server, start_worker
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row, profile_into
from .stats import spread

SYNC, ASYNC = "sync", "async"
KINDS = {"sync_get": "get", "sync_put": "put"}
SHARE_MAX = 1.3
MORE_US_MAX = 150.0
"""A call may take so many times as long as an async one, and so many microseconds more."""


async def measure(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    """Measures the rows named, one caller on each side; ``profiled`` profiles every row, not only those that miss."""
    plan = bench.plan
    rows = []
    async with (
        await start_server(bench.work / "sync-rows", bench.logs) as server,
        await start_worker("threads", bench.logs) as threads,
        await start_worker("fast", bench.logs, "one-async-caller") as tasks,
    ):
        await threads.ask("open", address=server.address, name=SYNC)
        await tasks.ask("open", name=ASYNC, address=server.address, callers=1, coalesce=True)
        for name in names:
            samples: dict[str, list[dict[str, Any]]] = {SYNC: [], ASYNC: []}
            for side in samples:
                await _sample(side, threads, tasks, KINDS[name], plan.warm_calls)
            rounds = bench.rounds(plan.sync_pairs)
            for pair in rounds:
                for side in (SYNC, ASYNC) if pair % 2 == 0 else (ASYNC, SYNC):
                    samples[side].append(await _sample(side, threads, tasks, KINDS[name], plan.sync_calls))
                rounds.note(samples[SYNC][-1]["mean_us"] / samples[ASYNC][-1]["mean_us"])
            row = _row(name, samples)
            if profiled or not row.met:
                await profile_into(row, _profile(threads, row, plan.profile_calls))
            rows.append(bench.keep(row))
        await threads.ask("close")
        await tasks.ask("close", name=ASYNC)
        await server.stop()
    return rows


async def _sample(side: str, threads: Child, tasks: Child, work: str, calls: int) -> dict[str, Any]:
    if side == SYNC:
        return await threads.ask("run", work=work, calls=calls)
    return await tasks.ask("run", name=ASYNC, work=work, calls=calls)


def _row(name: str, samples: dict[str, list[dict[str, Any]]]) -> Row:
    def us(side: str) -> list[float]:
        # Both sides check each answer between two calls, which is none of the calls' time.
        return [sample["mean_us"] for sample in samples[side]]

    allowed = [SHARE_MAX * one + MORE_US_MAX for one in us(ASYNC)]
    value = spread([taken / most for taken, most in zip(us(SYNC), allowed, strict=True)])
    figures: dict[str, float] = {"calls": samples[SYNC][0]["calls"]}
    for side, taken in samples.items():
        figures |= {
            f"{side}_us": spread(us(side)).median,
            f"{side}_cpu_us": sum(s["cpu_s"] for s in taken) / sum(s["calls"] for s in taken) * 1e6,
            f"{side}_p50_ms": spread([sample["p50_ms"] for sample in taken]).median,
            f"{side}_p99_ms": spread([sample["p99_ms"] for sample in taken]).median,
        }
    what = f"{KINDS[name].capitalize()}, sync / (1.3 * async + 150 µs)"
    return Row(name, what, value, Goal(1.0, at_least=False), figures, samples)


async def _profile(threads: Child, row: Row, calls: int) -> list[Profile]:
    """Profiles the loop thread of the sync client."""
    work = KINDS[row.name]
    await threads.ask("profile_begin")
    await threads.ask("run", work=work, calls=calls)
    recorded = await threads.ask("profile_end")
    return window_profiles(f"Loop thread of the sync client during {work}", recorded, calls)
