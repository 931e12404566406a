"""Child processes: servers whose CPU time and memory are read from /proc, and workers that obey commands.

Server, floor and load generator are each a process of their own: what one of them costs is then never
charged to another, and the kernel does the accounting.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 120.0
"""A loaded machine takes long to read a model; a server that fails ends at once, whatever the limit."""
ANSWER_SECONDS_MAX = 240.0
_LINE_BYTES_MAX = 64 * 1024 * 1024
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LOG_TAIL_BYTES = 4_000
_END_SECONDS_MAX = 10.0
LOG_FOLLOWS = "its log ends with:"
"""What an error says before it quotes a log."""


class BenchError(Exception):
    """The run cannot go on: a child failed, or something answered wrongly."""


class Child:
    """A process of the run.

    Attributes:
        name: what it is, for messages.
        started: monotonic seconds just before it was started.
        address: where it listens, if it is a server.
        listening_since: monotonic seconds at which it said so.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, started: float) -> None:
        self.name = name
        self.started = started
        self.address = ""
        self.listening_since = 0.0
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, argv: list[str], logs: Path, environment: Mapping[str, str] | None = None) -> Self:
        """Starts ``python argv…``, with more in its environment; its standard error goes to a file in ``logs``."""
        # Configuration of whoever runs the benchmark must not become the server's.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("NOOSPHERE_", "GRPC_"))}
        # As the command line has it; workers that run services in process do not go through it.
        inherited["OPENBLAS_NUM_THREADS"] = "1"
        log = logs / f"{name.replace(' ', '-')}.log"
        with log.open("ab") as stderr:
            started = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *argv,
                cwd=ROOT,
                env={**inherited, **(environment or {})},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=_LINE_BYTES_MAX,
            )
        return cls(name, process, log, started)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def line(self, seconds_max: float) -> str:
        """Returns the next line of its standard output.

        Raises:
            BenchError: it ended, or said nothing in time.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds_max):
                raw = await self._process.stdout.readline()
        except TimeoutError:
            raise BenchError(f"{self.name} said nothing for {seconds_max:.0f} s{self._tail()}") from None
        if not raw.endswith(b"\n"):
            raise BenchError(f"{self.name} ended {await self._how()}{self._tail()}")
        return raw.decode().rstrip("\n")

    async def listening(self, prefix: str) -> None:
        """Waits for the line that tells its address."""
        line = await self.line(START_SECONDS_MAX)
        self.listening_since = time.monotonic()
        if not line.startswith(prefix):
            raise BenchError(f"{self.name} said {line!r} instead of {prefix!r}{self._tail()}")
        self.address = line.removeprefix(prefix).strip()
        if not self._uses_uvloop():
            raise BenchError(f"{self.name} does not run on uvloop, so it cannot be compared")

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command to a worker and returns its answer.

        Raises:
            BenchError: the worker failed, or something that it called answered wrongly.
        """
        assert self._process.stdin is not None
        # A worker that has ended is noticed by the line that never comes.
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            await self._process.stdin.drain()
        answer: dict[str, Any] = json.loads(await self.line(ANSWER_SECONDS_MAX))
        if "error" in answer:
            raise BenchError(f"{self.name}, {do}: {answer['error']}")
        return answer

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all its threads so far, user and system."""
        return cpu_seconds_of(self.pid)

    def resident_bytes(self) -> int:
        """Returns its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"{self.name} has no resident memory")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    async def stop(self) -> float:
        """Ends it in an orderly way; returns how many seconds that took.

        Raises:
            BenchError: it did not end, or not with exit code 0.
        """
        start = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                code = await self._process.wait()
        except TimeoutError:
            raise BenchError(f"{self.name} did not end within {START_SECONDS_MAX:.0f} s{self._tail()}") from None
        if code != 0:
            raise BenchError(f"{self.name} ended with exit code {code}{self._tail()}")
        return time.monotonic() - start

    async def kill(self) -> None:
        """Kills it, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _uses_uvloop(self) -> bool:
        return "/uvloop/" in Path(f"/proc/{self.pid}/maps").read_text()

    async def _how(self) -> str:
        """Tells how it ended, once its output has."""
        try:
            async with asyncio.timeout(_END_SECONDS_MAX):
                code = await self._process.wait()
        except TimeoutError:
            return "its output, and still runs"
        return f"with exit code {code}" if code >= 0 else f"by signal {-code}"

    def _tail(self) -> str:
        text = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return f"; {LOG_FOLLOWS}\n{text}" if text else "; its log is empty"


def cpu_seconds_of(pid: int) -> float:
    """Returns the CPU time of all threads of a process so far, user and system."""
    # The command name may contain spaces and parentheses, so fields are counted from the last ")".
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


async def start_server(
    data: Path,
    logs: Path,
    name: str = "noosphere",
    environment: Mapping[str, str] | None = None,
    listen: str = "127.0.0.1:0",
) -> Child:
    """Starts the shipped server, as its users do, and waits until it listens; ``environment`` configures it."""
    words = ["serve", "--listen", listen, "--data", str(data), "--log-level", "warning"]
    child = await Child.start(name, ["-m", "noosphere.server.cli", *words], logs, environment)
    return await _listening(child, "noosphere serves on ")


async def start_profiled(data: Path, logs: Path, mode: str, environment: Mapping[str, str] | None = None) -> Child:
    """Starts the server under a profiler (``window``, ``start`` or ``memory``); see :mod:`tests.bench.profiled`."""
    words = ["--listen", "127.0.0.1:0", "--data", str(data), "--mode", mode]
    child = await Child.start(f"profiled {mode}", ["-m", "tests.bench.profiled", *words], logs, environment)
    return await _listening(child, "listening on ")


async def start_floor(replies: Path, logs: Path) -> Child:
    """Starts the echo server that answers with the given replies."""
    child = await Child.start("floor", ["-m", "tests.bench.floor", "--replies", str(replies)], logs)
    return await _listening(child, "listening on ")


async def start_worker(role: str, logs: Path, name: str | None = None) -> Child:
    """Starts a worker: ``load``, ``engine``, ``fast``, ``threads``, ``facts``, ``contender`` or ``overload``."""
    return await Child.start(name or role, ["-m", f"tests.bench.{role}"], logs)


async def _listening(child: Child, prefix: str) -> Child:
    try:
        await child.listening(prefix)
    except BaseException:
        await child.kill()
        raise
    return child
