"""Rows without gRPC: what an operation costs beside many records, compared with few."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .children import Child, start_worker
from .profiling import Profile, compared_profile
from .rows import Bench, Goal, Row, profile_into
from .stats import ratios, spread

SMALL, LARGE = "small", "large"
GOAL = Goal(1.2, at_least=False)
KINDS = {
    "engine_get": ("get", "Get"),
    "engine_put": ("put", "Put"),
    "engine_watch": ("watch", "Watch event"),
}


async def measure(bench: Bench, names: Sequence[str], populated: Path, profiled: bool) -> list[Row]:
    """Measures the rows named, in alternating pairs of batches.

    Args:
        bench: the run.
        names: which rows.
        populated: a data folder with the many records, which is used up.
        profiled: profile every row, not only those that miss their goal.
    """
    plan = bench.plan
    async with contextlib.AsyncExitStack() as stack:
        engines = {
            size: await stack.enter_async_context(await start_worker("engine", bench.logs, f"engine {size}"))
            for size in (SMALL, LARGE)
        }
        await engines[SMALL].ask(
            "open", data=str(bench.work / "engine-small"), records=plan.records_small, populated=False
        )
        await engines[LARGE].ask("open", data=str(populated), records=plan.records_large, populated=True)
        samples = await _sample(bench, engines)
        rows = [bench.keep(_row(bench, name, samples)) for name in names]
        for row in rows:
            if profiled or row.met is False:
                await profile_into(row, _profile(bench, row.name, engines))
        for engine in engines.values():
            await engine.ask("close")
    return rows


async def _sample(bench: Bench, engines: dict[str, Child]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    plan = bench.plan
    samples: dict[str, dict[str, list[dict[str, Any]]]] = {
        work: {SMALL: [], LARGE: []} for work in ("get", "put", "watch")
    }
    # The first pair warms up.
    for pair in range(-1, plan.engine_pairs):
        order = (SMALL, LARGE) if pair % 2 == 0 else (LARGE, SMALL)
        for work in samples:
            for size in order:
                taken = await _batch(bench, engines[size], work)
                if pair >= 0:
                    samples[work][size].append(taken)
    return samples


async def _batch(bench: Bench, engine: Child, work: str) -> dict[str, Any]:
    plan = bench.plan
    match work:
        case "get":
            return await engine.ask("get", calls=plan.engine_gets)
        case "put":
            # Rounds of the same length for both sizes: no key is written twice in a round.
            return await engine.ask(
                "put", calls=plan.engine_puts, callers=plan.engine_callers, per_round=plan.records_small
            )
        case _:
            return await engine.ask("watch")


def _row(bench: Bench, name: str, samples: dict[str, dict[str, list[dict[str, Any]]]]) -> Row:
    work, what = KINDS[name]
    found = samples[work]

    def cost_us(sample: dict[str, Any], figure: str) -> float:
        return float(sample[figure] / sample["calls"] * 1e6)

    def costs(size: str, figure: str) -> list[float]:
        return [cost_us(sample, figure) for sample in found[size]]

    def mean(size: str) -> float:
        return float(sum(s["cpu_s"] for s in found[size]) / sum(s["calls"] for s in found[size]) * 1e6)

    figures = {
        "small_cpu_us": spread(costs(SMALL, "cpu_s")).median,
        "large_cpu_us": spread(costs(LARGE, "cpu_s")).median,
        "small_wall_us": spread(costs(SMALL, "wall_s")).median,
        "large_wall_us": spread(costs(LARGE, "wall_s")).median,
        # A median hides what happens in few batches only, such as full garbage collections; a mean does not.
        "mean_ratio": mean(LARGE) / mean(SMALL),
        "calls": found[LARGE][0]["calls"],
        "records_small": bench.plan.records_small,
        "records_large": bench.plan.records_large,
    }
    return Row(name, what, ratios(costs(LARGE, "cpu_s"), costs(SMALL, "cpu_s")), GOAL, figures, found)


async def _profile(bench: Bench, name: str, engines: dict[str, Child]) -> list[Profile]:
    plan, (work, what) = bench.plan, KINDS[name]
    calls = plan.engine_gets if work == "get" else plan.engine_puts
    recorded = {
        size: await engine.ask(
            "profile", work=work, calls=calls, callers=plan.engine_callers, per_round=plan.records_small
        )
        for size, engine in engines.items()
    }
    labels = (f"{plan.records_small:,} records", f"{plan.records_large:,} records")
    return [compared_profile(f"{what} in process", recorded[SMALL], recorded[LARGE], labels, calls)]
