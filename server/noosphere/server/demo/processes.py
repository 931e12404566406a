"""The demo's processes: its own server and its agents. Whatever happens, none of them is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from noosphere.client import DeadlineExceeded, InvalidArgument, NoosphereError, Unavailable, connect
from noosphere.v1 import admin_service_pb2, admin_service_pb2_grpc

from .protocol import EVENTS, Event, Orders, to_line
from .text import InputError

START_LIMIT_S = 60.0
REACH_LIMIT_S = 5.0
_STOP_LIMIT_S = 5.0
_TAIL_BYTES = 600


class DemoError(Exception):
    """The demo could not be run; the message is one line that says why."""


class ServerUnreachable(DemoError):
    """The given server does not answer."""


class DemoInterrupted(DemoError):
    """Somebody pressed Ctrl-C or sent SIGTERM."""


@asynccontextmanager
async def own_server(folder: Path) -> AsyncIterator[str]:
    """Runs ``noosphere serve`` on a free port of the loopback interface; gives its address.

    Raises:
        DemoError: it did not start.
    """
    log = folder / "server.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "noosphere.server.cli", "serve", "--json"),
            *("--listen", "127.0.0.1:0", "--data", str(folder / "data"), "--log-level", "warning"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            env=_environment(),
            # Ctrl-C is for the demo alone, which then stops the others in order.
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                line = await process.stdout.readline()
        except TimeoutError:
            raise DemoError(f"the server was not ready within {START_LIMIT_S:g} s: {_tail(log)}") from None
        if not line:
            # It is ending. Signalled before its end is noticed, it would be reaped twice, and asyncio would say so.
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_STOP_LIMIT_S)
            raise DemoError(f"the server did not start: {_refusal(log)}")
        yield json.loads(line)["address"]
    finally:
        await _stop(process)


async def require_server(server: str) -> None:
    """Checks that a server is there.

    Raises:
        InputError: its address is none.
        ServerUnreachable: it does not answer.
    """
    try:
        async with connect(server, timeout=REACH_LIMIT_S):
            pass
    except InvalidArgument as error:
        raise InputError(f"--{error.message}") from None
    except (Unavailable, DeadlineExceeded):
        raise ServerUnreachable(f"no server answers at {server} within {REACH_LIMIT_S:g} s") from None


async def delete_namespace(server: str, namespace: str) -> None:
    """Deletes what the demo has left on somebody else's server; one that went away has nothing to tidy."""
    request = admin_service_pb2.DeleteNamespaceRequest(namespace=namespace)
    with contextlib.suppress(NoosphereError):
        async with connect(server, timeout=REACH_LIMIT_S) as client:
            stub = admin_service_pb2_grpc.AdminServiceStub(client.channel)
            await client.call(stub.DeleteNamespace, request, changes=True)


class AgentProcess:
    """One agent's process.

    Attributes:
        name: the agent's name.
        killed: whether the demo killed it.
    """

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.killed = False
        self._process = process
        self._log = log

    async def events(self) -> AsyncIterator[Event]:
        """Yields what the agent says, until it ends.

        Raises:
            DemoError: it ended by an error.
        """
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            # The last line of a killed agent may be torn.
            if line.endswith(b"\n"):
                yield EVENTS.decode(line)
        code = await self._process.wait()
        if code != 0 and not self.killed:
            raise DemoError(f"{self.name} ended with exit code {code}: {_tail(self._log)}")

    def tell(self, line: bytes) -> None:
        """Gives the agent a command; one that has ended does not hear it."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    def kill(self) -> None:
        """Kills the agent with SIGKILL: it gets no chance to say, write or release anything."""
        self.killed = True
        self._process.kill()

    async def stop(self) -> None:
        """Ends the process if it still runs, and waits for it."""
        await _stop(self._process)


@asynccontextmanager
async def agent_process(orders: Orders, log: Path) -> AsyncIterator[AgentProcess]:
    """Runs an agent for the length of the block."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "noosphere.server.demo.agent"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            env=_environment(),
            start_new_session=True,
        )
    agent = AgentProcess(orders.agent, process, log)
    try:
        agent.tell(to_line(orders))
        yield agent
    finally:
        await agent.stop()


async def _stop(process: Process) -> None:
    """Asks the process to end, then insists; returns when it is gone, also if the caller is cancelled."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        process.send_signal(sign)
        waiting = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait([waiting], timeout=_STOP_LIMIT_S)
        except asyncio.CancelledError:
            process.kill()
            await waiting
            raise


def _environment() -> dict[str, str]:
    # The demo's own server must not be configured by what is meant for another one.
    return {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}


def _refusal(log: Path) -> str:
    """Returns what a server that speaks JSON has said last, in words; its last lines if that was no error."""
    tail = _tail(log, lines=1)
    try:
        return str(json.loads(tail)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return _tail(log)


def _tail(log: Path, lines: int = 3) -> str:
    text = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    return " · ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip()) or "it said nothing"
