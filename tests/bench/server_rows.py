"""Rows about a server that holds many records: restart, memory, and Put latency beside a scan."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .children import START_SECONDS_MAX, Child, start_profiled, start_server, start_worker
from .profiling import Profile, memory_profile, start_profiles
from .rows import Bench, Goal, Row, profile_into
from .stats import spread

NAMES = ("restart_clean", "restart_killed", "memory_per_record", "put_beside_scan")
_RESTART_GOAL = Goal(5.0, at_least=False)
_MEMORY_GOAL = Goal(2048, at_least=False)
_WRITERS = 8


class Folders(NamedTuple):
    """Data folders with the many records, never opened themselves: every use takes a copy.

    Attributes:
        clean: left by an orderly shutdown.
        killed: left by SIGKILL right after the last record was acknowledged.
        populate_s: how long writing the records took.
        populated_bytes: memory of the server that wrote them, at the end.
        journal_bytes: what was not folded when it was killed.
    """

    clean: Path
    killed: Path
    populate_s: float
    populated_bytes: int
    journal_bytes: int


async def prepare(bench: Bench) -> Folders:
    """Writes the many records, kills the server, and restarts it once for an orderly shutdown."""
    data, records = bench.work / "many", bench.plan.records_large
    async with await start_server(data, bench.logs) as server:
        await bench.load.ask("attach", target="many", address=server.address, callers=_WRITERS)
        populated = await bench.load.ask("populate", target="many", records=records)
        stats = await bench.load.ask("stats", target="many")
        resident = server.resident_bytes()
        await server.kill()
        await bench.load.ask("detach", target="many")
    killed = Path(shutil.copytree(data, bench.work / "many-killed"))
    async with await start_server(data, bench.logs) as server:
        await bench.load.ask("first_get", address=server.address, record=records // 2)
        await bench.load.ask("check_records", address=server.address, records=records)
        await server.stop()
    return Folders(data, killed, populated["seconds"], resident, stats["journal_bytes"])


@contextlib.asynccontextmanager
async def _copy(bench: Bench, folder: Path) -> AsyncIterator[Path]:
    copy = Path(shutil.copytree(folder, bench.work / "copy"))
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


async def measure(bench: Bench, names: Sequence[str], folders: Folders, profiled: bool) -> list[Row]:
    """Measures the rows named; ``profiled`` profiles every row, not only those that miss their goal."""
    rows: list[Row] = []
    if restarts := [name for name in names if name != "put_beside_scan"]:
        rows += map(bench.keep, await _restart_rows(bench, restarts, folders))
    if "put_beside_scan" in names:
        rows.append(bench.keep(await _scan_row(bench, folders)))
    for row in rows:
        if row.goal is not None and (profiled or not row.met):
            await profile_into(row, _profile(bench, row, folders))
    return rows


async def _restart_rows(bench: Bench, names: Sequence[str], folders: Folders) -> list[Row]:
    records = bench.plan.records_large
    empty = await _empty_bytes(bench)
    samples: dict[str, list[dict[str, float]]] = {"clean": [], "killed": []}
    for number in range(bench.plan.restarts):
        for kind, folder in (("clean", folders.clean), ("killed", folders.killed)):
            async with _copy(bench, folder) as data:
                samples[kind].append(await _restart(bench, data, records * (number + 1) // (bench.plan.restarts + 1)))
    per_record = {
        kind: spread([(sample["resident_bytes"] - empty) / records for sample in taken])
        for kind, taken in samples.items()
    }
    rows = []
    for kind, what in (("clean", "an orderly shutdown"), ("killed", "SIGKILL")):
        rows.append(
            Row(
                f"restart_{kind}",
                f"Restart after {what}: seconds to the first Get",
                spread([sample["first_get_s"] for sample in samples[kind]]),
                _RESTART_GOAL,
                {
                    "listening_s": spread([sample["listening_s"] for sample in samples[kind]]).median,
                    "stop_s": spread([sample["stop_s"] for sample in samples[kind]]).median,
                    "cpu_s": spread([sample["cpu_s"] for sample in samples[kind]]).median,
                    "records": records,
                    "journal_mib": folders.journal_bytes / 1024**2 if kind == "killed" else 0.0,
                },
                samples[kind],
            )
        )
    rows.append(
        Row(
            "memory_per_record",
            "Process memory per record after a restart, bytes",
            per_record["clean"],
            _MEMORY_GOAL,
            {
                "killed_bytes": per_record["killed"].median,
                "populated_bytes": (folders.populated_bytes - empty) / records,
                "empty_mib": empty / 1024**2,
                "resident_mib": spread([s["resident_bytes"] for s in samples["clean"]]).median / 1024**2,
                "records": records,
            },
            samples,
        )
    )
    return [row for row in rows if row.name in names]


async def _empty_bytes(bench: Bench) -> int:
    """Returns the memory of a restarted server that has answered a Get and holds one record."""
    data = bench.work / "one-record"
    async with await start_server(data, bench.logs) as server:
        await bench.load.ask("attach", target="one", address=server.address, callers=1)
        await bench.load.ask("populate", target="one", records=1)
        await bench.load.ask("detach", target="one")
        await server.stop()
    async with await start_server(data, bench.logs) as server:
        await bench.load.ask("first_get", address=server.address, record=0)
        resident = server.resident_bytes()
        await server.stop()
    return resident


async def _restart(bench: Bench, data: Path, record: int) -> dict[str, float]:
    async with await start_server(data, bench.logs) as server:
        answered = await bench.load.ask("first_get", address=server.address, record=record)
        resident, cpu = server.resident_bytes(), server.cpu_seconds()
        await bench.load.ask("check_records", address=server.address, records=bench.plan.records_large)
        stop = await server.stop()
    return {
        "first_get_s": answered["monotonic_s"] - server.started,
        "listening_s": server.listening_since - server.started,
        "resident_bytes": resident,
        "cpu_s": cpu,
        "stop_s": stop,
    }


async def _scan_row(bench: Bench, folders: Folders) -> Row:
    plan = bench.plan
    samples: dict[str, list[dict[str, Any]]] = {"idle": [], "scan": []}
    scans: list[dict[str, Any]] = []
    async with contextlib.AsyncExitStack() as stack:
        data = await stack.enter_async_context(_copy(bench, folders.clean))
        server = await stack.enter_async_context(await start_server(data, bench.logs))
        # A process of its own: decoding pages must not delay the caller whose latency is measured.
        scanner = await stack.enter_async_context(await start_worker("load", bench.logs, "scanner"))
        for number, (worker, target) in enumerate(((bench.load, "writer"), (scanner, "scanner"))):
            # Each has keys of its own, so they never conflict.
            await worker.ask("attach", target=target, address=server.address, callers=1, first=number)
        await bench.load.ask("run", target="writer", work="put", calls=plan.warm_calls, callers=1)
        for pair in range(plan.scan_pairs):
            for kind in ("idle", "scan") if pair % 2 == 0 else ("scan", "idle"):
                if kind == "scan":
                    await scanner.ask("scan_start", target="scanner", records=plan.records_large)
                taken = await bench.load.ask("run", target="writer", work="put", calls=plan.scan_puts, callers=1)
                samples[kind].append(taken)
                if kind == "scan":
                    scans.append(await scanner.ask("scan_stop", target="scanner"))
        await bench.load.ask("verify", target="writer")
        await bench.load.ask("detach", target="writer")
        await scanner.ask("detach", target="scanner")
        await server.stop()
    figures = {
        f"{kind}_{figure}": spread([sample[figure] for sample in taken]).median
        for kind, taken in samples.items()
        for figure in ("p50_ms", "p99_ms")
    }
    figures |= {
        "calls": plan.scan_puts,
        "records": plan.records_large,
        "scanned_per_s": sum(scan["records"] for scan in scans) / sum(scan["seconds"] for scan in scans),
        "passes": sum(scan["records"] for scan in scans) / plan.records_large,
    }
    return Row(
        "put_beside_scan",
        "Put p99 while another caller scans, ms",
        spread([sample["p99_ms"] for sample in samples["scan"]]),
        None,
        figures,
        {**samples, "scans": scans},
    )


async def _profile(bench: Bench, row: Row, folders: Folders) -> list[Profile]:
    records = bench.plan.records_large
    folder = folders.killed if row.name == "restart_killed" else folders.clean
    mode = "memory" if row.name == "memory_per_record" else "start"
    async with _copy(bench, folder) as data, await start_profiled(data, bench.logs, mode) as server:
        recorded = await _recorded_start(bench, server, records // 2)
    if mode == "memory":
        return [memory_profile(row.what, recorded, records)]
    return start_profiles(row.what, recorded)


async def _recorded_start(bench: Bench, server: Child, record: int) -> dict[str, Any]:
    await bench.load.ask("first_get", address=server.address, record=record)
    server.signal(signal.SIGUSR2)
    recorded: dict[str, Any] = json.loads(await server.line(START_SECONDS_MAX))
    await server.stop()
    return recorded
