"""Rows about a server that has too much to do: what clients that heed it still get done, and whether health answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from .children import BenchError, Child, start_server, start_worker
from .rows import Bench, Goal, Row
from .stats import ratios, spread

GOODPUT, HEALTH = "overload_goodput", "overload_health"
NAMES = (GOODPUT, HEALTH)
_WHATS = {
    GOODPUT: "Writes of our clients, at twice capacity / at peak",
    HEALTH: "Health under a flood, median ms",
}
_GOODPUT_GOAL = Goal(0.8, at_least=True)
_HEALTH_GOAL = Goal(500.0, at_least=False)
_CLIENTS = 2
"""Processes that call, at the peak as above it: each has half of the callers."""
_STEPS = (4, 2, 1)
"""The peak is looked for with so many times fewer callers than the server takes calls."""


async def measure(bench: Bench, names: Sequence[str]) -> list[Row]:
    """Measures the rows named, each on a server of its own."""
    rows = []
    if GOODPUT in names:
        rows.append(bench.keep(await _goodput(bench)))
    if HEALTH in names:
        rows.append(bench.keep(await _health(bench)))
    return rows


async def _goodput(bench: Bench) -> Row:
    """Measures spans in alternation: fewer callers than the server takes, as many, and twice as many."""
    plan = bench.plan
    room = plan.overload_callers
    environment = {"NOOSPHERE_LIMITS_SERVER_CALLS_IN_FLIGHT_MAX": str(room)}
    levels = [*(room // step for step in _STEPS), 2 * room]
    spans: dict[int, list[dict[str, float]]] = {callers: [] for callers in levels}
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            await start_server(bench.work / "overload-rows", bench.logs, environment=environment)
        )
        watcher = await _watcher(stack, bench, server)
        clients = await _workers(stack, bench, "client")
        for number, client in enumerate(clients):
            await client.ask("open", name=f"overload-{number}", address=server.address, callers=room)
        # The first round warms up.
        for number in range(-1, plan.overload_rounds):
            for callers in levels if number % 2 == 0 else reversed(levels):
                taken = await _span(clients, server, watcher, callers, plan.overload_seconds)
                if number >= 0:
                    spans[callers].append(taken)
        for client in clients:
            await client.ask("close")
        await watcher.ask("unwatch")
        await server.stop()
    return _goodput_row(room, spans)


async def _span(
    clients: Sequence[Child], server: Child, watcher: Child, callers: int, seconds: float
) -> dict[str, float]:
    cpu, refused = server.cpu_seconds(), (await watcher.ask("refused"))["calls"]
    told = await asyncio.gather(
        *(client.ask("span", callers=callers // _CLIENTS, seconds=seconds) for client in clients)
    )
    return {
        "rate": sum(each["acked"] for each in told) / seconds,
        "failed": sum(each["failed"] for each in told),
        "refused": (await watcher.ask("refused"))["calls"] - refused,
        "server_cpu_s": server.cpu_seconds() - cpu,
        "clients_cpu_s": sum(each["cpu_s"] for each in told),
        "p50_ms": spread([each["p50_ms"] for each in told]).median,
        "p99_ms": max(each["p99_ms"] for each in told),
    }


def _goodput_row(room: int, spans: dict[int, list[dict[str, float]]]) -> Row:
    rates = {callers: [span["rate"] for span in taken] for callers, taken in spans.items()}
    above = 2 * room
    if not sum(span["refused"] for span in spans[above]):
        raise BenchError(f"no call of {above} callers was refused, so the server had not too much to do")
    peak = max((callers for callers in spans if callers != above), key=lambda callers: spread(rates[callers]).median)
    figures: dict[str, float] = {"room": room, "peak_callers": peak, "above_callers": above}
    for prefix, callers in (("above", above), ("peak", peak)):
        figures |= {
            f"{prefix}_{figure}": spread([span[figure] for span in spans[callers]]).median
            for figure in ("rate", "failed", "refused", "server_cpu_s", "clients_cpu_s", "p50_ms", "p99_ms")
        }
    samples = {str(callers): taken for callers, taken in spans.items()}
    return Row(GOODPUT, _WHATS[GOODPUT], ratios(rates[above], rates[peak]), _GOODPUT_GOAL, figures, samples)


async def _health(bench: Bench) -> Row:
    """Measures health without a flood, and then under one."""
    plan = bench.plan
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(await start_server(bench.work / "flood-rows", bench.logs))
        watcher = await _watcher(stack, bench, server)
        floods = await _workers(stack, bench, "flood")
        quiet = [await watcher.ask("health", checks=plan.overload_checks) for _ in range(plan.overload_rounds)]
        calls = plan.flood_calls // _CLIENTS
        for number, flood in enumerate(floods):
            await flood.ask("flood_open", name=f"flood-{number}", address=server.address, calls=calls)
        await asyncio.gather(*(flood.ask("flood_start") for flood in floods))
        # One flood for all samples: after it a server needs a while until it takes all calls again.
        flooded = [await watcher.ask("health", checks=plan.overload_checks) for _ in range(plan.overload_rounds)]
        resident_mib = server.resident_bytes() / 2**20
        told = await asyncio.gather(*(flood.ask("flood_stop") for flood in floods))
        await watcher.ask("unwatch")
        await server.stop()
    figures: dict[str, float] = {"outstanding": plan.flood_calls, "checks": plan.overload_checks}
    figures |= {
        "flood_acked_rate": sum(each["acked"] / each["seconds"] for each in told),
        "flood_refused_rate": sum(each["refused"] / each["seconds"] for each in told),
        "flood_resident_mib": resident_mib,
    }
    figures |= {
        f"{prefix}_{figure}": spread([sample[figure] for sample in taken]).median
        for prefix, taken in (("quiet", quiet), ("flood", flooded))
        for figure in taken[0]
    }
    value = spread([sample["p50_ms"] for sample in flooded])
    return Row(HEALTH, _WHATS[HEALTH], value, _HEALTH_GOAL, figures, {"quiet": quiet, "flood": flooded})


async def _watcher(stack: contextlib.AsyncExitStack, bench: Bench, server: Child) -> Child:
    watcher = await stack.enter_async_context(await start_worker("overload", bench.logs, "overload watcher"))
    await watcher.ask("watch", address=server.address)
    return watcher


async def _workers(stack: contextlib.AsyncExitStack, bench: Bench, name: str) -> list[Child]:
    return [
        await stack.enter_async_context(await start_worker("overload", bench.logs, f"overload {name} {number}"))
        for number in range(_CLIENTS)
    ]
