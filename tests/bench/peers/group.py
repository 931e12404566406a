"""Processes of agents that use one product, as the harness sees them: it starts them, and collects what they log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .adapter import Place
from .catalogue import Variant
from .environments import environment

ROOT = Path(__file__).resolve().parents[3]
ANSWER_SECONDS_MAX = 120.0
_LINE_BYTES_MAX = 64 * 1024 * 1024
_TAIL_BYTES = 600

Log = Mapping[str, Any]


class PeerError(Exception):
    """A product, or its adapter, has failed; the message says how."""


class PeerUnsupported(PeerError):
    """The product has nothing of this kind."""


class PeerProcess:
    """One process of agents. Made by :meth:`start`.

    Attributes:
        agents: who is in it.
    """

    def __init__(self, process: asyncio.subprocess.Process, agents: Sequence[str], log: Path) -> None:
        self.agents = list(agents)
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, python: str, agents: Sequence[str], folder: Path) -> Self:
        """Starts it with the interpreter of an environment; what it complains about goes to a file in ``folder``."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("NOOSPHERE_", "GRPC_", "PYTHON", "VIRTUAL_ENV"))
        }
        # Nothing here may call home, and gRPC has nothing to say that belongs between the lines.
        quiet = {"MEM0_TELEMETRY": "False", "LANGSMITH_TRACING": "false", "ANONYMIZED_TELEMETRY": "False"}
        own = {"MEM0_DIR": str(folder / "mem0"), "GRPC_VERBOSITY": "NONE", "PYTHONUNBUFFERED": "1"}
        log = folder / f"agents-{agents[0]}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                python,
                "-m",
                "tests.bench.peers.host",
                cwd=ROOT,
                env={**kept, **quiet, **own},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,
            )
        return cls(process, agents, log)

    async def ask(self, do: str, on_log: Callable[[Log], None] | None = None, **arguments: Any) -> Any:
        """Sends a command, and returns the answer; see ``host``.

        Raises:
            PeerUnsupported: the product has nothing of this kind.
            PeerError: it has failed, or the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            await self._process.stdin.drain()
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                # An answer that comes later must not be taken for that of the next command.
                await self.kill()
                raise PeerError(f"{do}: no answer for {ANSWER_SECONDS_MAX:.0f} s{self._tail()}") from None
            if not line.endswith(b"\n"):
                raise PeerError(f"{do}: the process has ended{self._tail()}")
            said = json.loads(line)
            if "log" in said:
                if on_log is not None:
                    on_log(said["log"])
            elif "error" in said:
                raise (PeerUnsupported if said["unsupported"] else PeerError)(f"{do}: {said['error']}")
            else:
                return said["ok"]

    def pause(self) -> None:
        """Stops it where it stands."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Ends it, if it still runs, and returns when it is gone."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _tail(self) -> str:
        text = self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().replace("\n", " · ")
        return f"; it says: {text}" if text else ""


class Group:
    """All agents of one variant, spread over its processes.

    Args:
        variant: what they use.
        place: where that keeps its state.
        agents: their names.
        folder: for logs.
        install: whether its environment may be made.
    """

    def __init__(
        self, variant: Variant, place: Place, agents: Sequence[str], folder: Path, *, install: bool = True
    ) -> None:
        self.variant = variant
        self.agents = list(agents)
        self.processes: list[PeerProcess] = []
        self._place = place
        self._folder = folder
        self._install = install

    async def __aenter__(self) -> Self:
        """Starts the processes and connects the agents.

        Raises:
            Uninstallable: the product cannot be had here.
            PeerError: it cannot be opened.
        """
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the processes."""
        await self.kill()

    async def start(self) -> None:
        """Starts processes for all agents, and connects them."""
        name, install = self.variant.environment, self._install
        python = str(await asyncio.to_thread(environment, name, install=install)) if name else sys.executable
        count = min(self.variant.processes, len(self.agents))
        for number in range(count):
            self.processes.append(await PeerProcess.start(python, self.agents[number::count], self._folder))
        place = {"folder": self._place.folder, "address": self._place.address}

        def opened(process: PeerProcess) -> Coroutine[Any, Any, Any]:
            return process.ask("open", adapter=self.variant.adapter, place=place, agents=process.agents)

        # One before the others: products prepare their files when they are first opened.
        first, *others = self.processes
        await opened(first)
        await _all([opened(process) for process in others])

    async def begin(self, space: str, *, prepare: bool = True) -> None:
        """Has everybody go to the keys of a run, which are fresh ones and to be prepared, or not."""
        first, *others = self.processes
        await first.ask("begin", space=space, prepare=prepare)
        for process in others:
            await process.ask("begin", space=space, prepare=False)

    async def call(self, method: str, *args: Any) -> Any:
        """Has one agent do one thing; see ``Adapter``."""
        return await self.processes[0].ask("call", method=method, args=list(args))

    async def put(self, key: str, value: Any) -> None:
        """Has one agent write a key."""
        await self.processes[0].ask("put", key=key, value=value)

    async def play(
        self, scenario: str, seed: int, think_ms: float, options: Log, on_log: Callable[[Log], None]
    ) -> None:
        """Has all agents play a scenario.

        Raises:
            PeerError: one of the processes has failed; the others have ended their parts.
        """
        arguments = {"scenario": scenario, "seed": seed, "think_ms": think_ms, "options": dict(options)}
        await _all([process.ask("play", on_log, **arguments) for process in self.processes])

    async def time(self, what: str, calls: int, value_bytes: int) -> list[dict[str, Any]]:
        """Has all agents do one thing so many times at once; see ``timing``. Returns one result per agent."""
        asks = [process.ask("time", what=what, calls=calls, value_bytes=value_bytes) for process in self.processes]
        return [one for found in await _all(asks) for one in found]

    async def kill(self) -> None:
        """Ends all processes, as ``kill -9`` does."""
        for process in self.processes:
            await process.kill()
        self.processes = []


async def _all(asked: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Waits for every answer, also after a failure: a late one would be taken for that of the next command."""
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
