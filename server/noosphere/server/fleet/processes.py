"""Processes that outlive whoever started them, and that nobody else is mistaken for."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

POLL_SECONDS = 0.02
ASK_AGAIN_SECONDS = 1.0
_TAIL_BYTES = 2_000
_PORT_MIN, _PORT_MAX = 10_000, 32_767
_TRIES_MAX = 100


class FleetError(Exception):
    """Something about the fleet cannot be done; the message is one line that says what and why."""


class Identity(msgspec.Struct, frozen=True):
    """One process for good: the system uses a pid again, but not with the same start.

    Attributes:
        pid: its number.
        started: when it started, as the system says it, in which run of the system; only to be compared.
    """

    pid: int
    started: str


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Puts off signals that would end this process: between the start of another one and the note of it, say."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Identity:
    """Starts a program in a session of its own: Ctrl-C and the end of its starter do not reach it.

    Args:
        command: the program, with its path, and its arguments.
        log: the file to which its output is added.
        environment: its environment; None for that of this process.

    Raises:
        FleetError: it ended at once.
    """
    pid = os.posix_spawn(
        command[0],
        list(command),
        os.environ if environment is None else environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # As a shell would start it, whatever its starter ignores.
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        setsigmask=[],
    )
    found = identify(pid)
    if found is None:
        raise FleetError(f"{command[0]} ended at once: {tail(log)}")
    return found


def identify(pid: int) -> Identity | None:
    """Returns the process that has this number now; None if there is none, or only what a dead one left."""
    try:
        # After the name, which may hold anything: state first, threads 18th, start time 20th.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        state, started = fields[0], f"{_boot()} {fields[19]}"
        if int(fields[17]) > 1:
            # The first thread may have ended before the others, which hold the ports until they have, too.
            state = "R"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
        told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True)
        state, _, started = told.stdout.strip().partition(" ")
    except ProcessLookupError:
        return None
    return Identity(pid, started.strip()) if state and state[0] not in "ZX" else None


@functools.cache
def _boot() -> str:
    """Returns which run of the system this is: start times are counted from its beginning."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def is_alive(process: Identity | None) -> bool:
    """Tells whether a process runs (or is stopped, but there)."""
    return process is not None and identify(process.pid) == process


def send(process: Identity | None, sign: signal.Signals) -> bool:
    """Sends a signal to a process if it is still there, and to no other.

    Returns:
        Whether it was there.
    """
    if process is None:
        return False
    with contextlib.suppress(ProcessLookupError), _held(process.pid) as handle:
        if not is_alive(process):
            return False
        if handle is None:
            os.kill(process.pid, sign)
        else:
            signal.pidfd_send_signal(handle, sign)
        return True
    return False


@contextlib.contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """Gives a handle of the process which no later one can take over, where the system has such."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def end(process: Identity | None, seconds: float) -> bool:
    """Asks a process to end, kills it after so many seconds, and returns when it is gone.

    It is asked every second: Redis refuses while it writes its file for the first time.

    Returns:
        Whether it was there.
    """
    if not send(process, signal.SIGTERM):
        return False
    deadline = time.monotonic() + seconds
    while not _gone(process, min(ASK_AGAIN_SECONDS, seconds)):
        if time.monotonic() > deadline:
            kill(process)
            break
        send(process, signal.SIGTERM)
    return True


def kill(process: Identity | None, seconds: float = 10.0) -> bool:
    """Kills a process, and returns when it is gone: it gets no chance to say or to write anything.

    Returns:
        Whether it was there.
    """
    return send(process, signal.SIGKILL) and _gone(process, seconds)


def _gone(process: Identity | None, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    if process is not None:
        # One of our own is only gone for the system once its end was asked for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return True


def free_address() -> str:
    """Returns an address of the loopback interface whose port is free now.

    Above those that are tried first, the kernel gives ports to outgoing connections: to one of them, perhaps, while the
    program that has this one is restarted.
    """
    for _ in range(_TRIES_MAX):
        address = f"127.0.0.1:{_PORT_MIN + secrets.randbelow(_PORT_MAX - _PORT_MIN + 1)}"
        if usable(address):
            return address
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def usable(address: str) -> bool:
    """Tells whether an address is free to listen at."""
    with socket.socket() as probe:
        # As servers do: what a closed connection left behind is not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(split(address))
        except OSError:
            return False
        return True


def split(address: str) -> tuple[str, int]:
    """Returns host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def tail(log: Path, lines: int = 3) -> str:
    """Returns the last lines of a log, as one."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        text = ""
    return " · ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip()) or "it said nothing"
