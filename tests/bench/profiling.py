"""Profiles of a running process: where its event loop's thread spends its time, and what holds its memory.

cProfile stretches code made of many small calls, so its figures rank functions; how long a call really
takes stands in the tables, measured without it.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import linecache
import pstats
import re
import signal
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .children import ROOT

_LINES_MAX = 400
"""Functions or lines that a profile reports, the costliest first."""


class Recorder(Protocol):
    """Something that records between two signals."""

    def begin(self) -> None:
        """Starts to record."""
        ...

    def end(self) -> dict[str, Any]:
        """Stops, and returns what was recorded, ready for JSON."""
        ...


class Window:
    """A cProfile of the calling thread, with the CPU time of that thread and of the whole process beside it.

    Enabled inside a callback of the loop it sees Python functions and what they call; gRPC's core, the
    protobuf codec and the loop itself call *into* Python and are the rest of the thread's CPU time.
    """

    def __init__(self) -> None:
        self._profile = cProfile.Profile()
        self._start = (0.0, 0.0, 0.0)
        self._spent = (0.0, 0.0, 0.0)

    def begin(self) -> None:
        self._start = _times()
        self._profile.enable()

    def pause(self) -> None:
        """Stops until it begins again; what was recorded adds up."""
        self._profile.disable()
        moments = zip(self._spent, self._start, _times(), strict=True)
        wall, thread, process = (spent + now - start for spent, start, now in moments)
        self._spent = (wall, thread, process)

    def end(self) -> dict[str, Any]:
        self.pause()
        return self.recorded()

    def recorded(self) -> dict[str, Any]:
        """Returns what was recorded, once it is paused."""
        wall, thread, process = self._spent
        functions = functions_of(self._profile)
        return {
            "wall_s": wall,
            "thread_cpu_s": thread,
            "process_cpu_s": process,
            "python_s": sum(function["own_s"] for function in functions),
            "functions": functions[:_LINES_MAX],
        }


class Memory:
    """Traces allocations from its construction on."""

    def __init__(self) -> None:
        tracemalloc.start(1)

    def begin(self) -> None:
        """Counts from the start of the process; there is nothing to do."""

    def end(self) -> dict[str, Any]:
        found = tracemalloc.take_snapshot().statistics("lineno")
        tracemalloc.stop()
        lines = [
            {
                "where": f"{_short(stat.traceback[0].filename)}:{stat.traceback[0].lineno}",
                "code": linecache.getline(stat.traceback[0].filename, stat.traceback[0].lineno).strip(),
                "bytes": stat.size,
                "blocks": stat.count,
            }
            for stat in found[:_LINES_MAX]
        ]
        return {"traced_bytes": sum(stat.size for stat in found), "lines": lines}


def on_signals(recorder: Recorder) -> None:
    """Begins on SIGUSR1; on SIGUSR2 ends and prints one line of JSON."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, recorder.begin)
    loop.add_signal_handler(signal.SIGUSR2, lambda: print(json.dumps(recorder.end()), flush=True))


def functions_of(profile: cProfile.Profile) -> list[dict[str, Any]]:
    """Returns the profiled functions by own time, the longest first."""
    profile.create_stats()
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profile).stats  # type: ignore[attr-defined] # typeshed leaves it out
    found = [
        {"where": _function(file, line, name), "calls": calls, "own_s": own, "cumulative_s": cumulative}
        for (file, line, name), (_, calls, own, cumulative, _) in stats.items()
    ]
    return sorted(found, key=lambda function: -float(function["own_s"]))


def _times() -> tuple[float, float, float]:
    return time.perf_counter(), time.thread_time(), time.process_time()


def _cell(code: str) -> str:
    # A bar ends a cell of a table, even inside code, unless it is escaped.
    return "`" + code.replace("|", "\\|") + "`" if code else ""


def _function(file: str, line: int, name: str) -> str:
    # Built-in functions have no file; addresses in their names would differ from run to run.
    return re.sub(r" at 0x[0-9a-f]+", "", name) if file == "~" else f"{_short(file)}:{line} {name}"


def _short(file: str) -> str:
    path = Path(file)
    if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv"):
        parts = path.relative_to(ROOT).parts
        return "/".join(parts[parts.index("noosphere") + 1 :] if "noosphere" in parts else parts)
    parts = path.parts
    for marker in ("site-packages", "python3.11", "python3.12", "python3.13"):
        if marker in parts:
            return "/".join(parts[parts.index(marker) + 1 :])
    return path.name


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, ready for the report.

    Attributes:
        title: what was profiled.
        summary: one sentence with the totals.
        header: the columns' names.
        rows: the costliest entries.
    """

    title: str
    summary: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def window_profiles(title: str, recorded: dict[str, Any], calls: int, top: int = 15) -> list[Profile]:
    """Returns the tables of a :class:`Window`: top functions by own and by cumulative time, in µs per call."""

    def each(seconds: float) -> str:
        return f"{seconds / calls * 1e6:.1f}"

    thread, python = recorded["thread_cpu_s"], recorded["python_s"]
    summary = (
        f"{calls:,} calls under cProfile: {each(recorded['process_cpu_s'])} µs of CPU each, of which "
        f"{each(thread)} in the event loop's thread. In that thread {each(python)} µs are Python functions and what "
        f"they call (waits for the interpreter lock included), {each(max(thread - python, 0))} µs are gRPC's core, "
        f"protobuf's codec and the loop, which call into Python."
    )
    header = ("function", "calls per call", "own µs", "cumulative µs")
    tables = []
    for order, key in (("own", "own_s"), ("cumulative", "cumulative_s")):
        ranked = sorted(recorded["functions"], key=lambda function: -float(function[key]))[:top]
        rows = [
            (_cell(f["where"]), f"{f['calls'] / calls:.2f}", each(f["own_s"]), each(f["cumulative_s"])) for f in ranked
        ]
        tables.append(Profile(f"{title}, by {order} time", summary, header, rows))
    return tables


def start_profiles(title: str, recorded: dict[str, Any], top: int = 20) -> list[Profile]:
    """Returns the tables of a :class:`Window` over one start of a process, in milliseconds."""
    summary = (
        f"From the first line of the process to the first reply, under cProfile: {recorded['wall_s']:.2f} s, "
        f"{recorded['process_cpu_s']:.2f} s of CPU, {recorded['thread_cpu_s']:.2f} s of it in the event loop's thread."
    )
    header = ("function", "calls", "own ms", "cumulative ms")
    tables = []
    for order, key in (("own", "own_s"), ("cumulative", "cumulative_s")):
        ranked = sorted(recorded["functions"], key=lambda function: -float(function[key]))[:top]
        rows = [
            (_cell(f["where"]), f"{f['calls']:,}", f"{f['own_s'] * 1e3:.1f}", f"{f['cumulative_s'] * 1e3:.1f}")
            for f in ranked
        ]
        tables.append(Profile(f"{title}, by {order} time", summary, header, rows))
    return tables


def memory_profile(title: str, recorded: dict[str, Any], records: int, top: int = 15) -> Profile:
    """Returns the table of a :class:`Memory`, in bytes per record."""
    traced = recorded["traced_bytes"] / records
    rows = [
        (
            _cell(line["where"]),
            _cell(line["code"]),
            f"{line['bytes'] / records:.0f}",
            f"{line['blocks'] / records:.2f}",
        )
        for line in recorded["lines"][:top]
    ]
    summary = f"Allocations of Python that lived after the first reply, traced: {traced:.0f} bytes for each record."
    return Profile(title, summary, ("line", "code", "bytes per record", "blocks per record"), rows)


def compared_profile(
    title: str, small: dict[str, Any], large: dict[str, Any], labels: tuple[str, str], calls: int, top: int = 15
) -> Profile:
    """Returns a table of the functions whose own time differs most between two windows."""
    own: dict[str, list[float]] = {}
    for index, recorded in enumerate((small, large)):
        for function in recorded["functions"]:
            own.setdefault(function["where"], [0.0, 0.0])[index] += function["own_s"] / calls * 1e6
    ranked = sorted(own.items(), key=lambda item: -(item[1][1] - item[1][0]))[:top]
    rows = [(_cell(where), f"{few:.2f}", f"{many:.2f}", f"{many - few:+.2f}") for where, (few, many) in ranked]
    header = ("function", f"own µs at {labels[0]}", f"own µs at {labels[1]}", "difference")
    return Profile(title, f"{calls:,} calls under cProfile at each size, in the event loop's thread.", header, rows)
