"""Real processes of ours that need not import everything first: forked from one that has.

A start from nothing takes ten times as long as most commands do. Each test run has one parent of such processes, which
is started when it is first needed and ends with the run. What is about the start itself starts from nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

REQUEST_BYTES_MAX = 64 * 1024
"""A longer request (arguments and environment) is for a process of its own."""

TRIGGER = "TEST_DYING_TRIGGER"
"""In the environment of a process that dies when it is told to: the file that tells it. See ``dying``."""

NUMBER = struct.Struct("!q")
_ROOT = Path(__file__).resolve().parents[2]


class WarmProcess:
    """A forked process; what it has of :class:`subprocess.Popen` means the same.

    Args:
        arguments: those of the command ``noosphere``.
        environment: all of its environment.
        stdin: what it reads; None: nothing.
        cwd: where it runs; None: where we do.

    Attributes:
        pid: its id.
        stdout: what it prints.
        stderr: what it complains about.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: bytes | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._returncode: int | None = None
        self._turn = threading.Lock()
        self._reply, theirs = socket.socketpair()
        # A pipe of stdin is filled by a thread: it may be larger than the pipe.
        standard_in, self._feed = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        out, standard_out = os.pipe()
        err, standard_err = os.pipe()
        with theirs:
            descriptors = (standard_in, standard_out, standard_err, theirs.fileno())
            _parent().ask(arguments, environment, cwd or Path.cwd(), descriptors)
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        self.stdout: IO[bytes] = open(out, "rb")  # noqa: SIM115 # whoever reads it closes it
        self.stderr: IO[bytes] = open(err, "rb")  # noqa: SIM115
        if stdin:
            threading.Thread(target=_feed, args=(self._feed, stdin), daemon=True).start()
        self.pid = self._receive(None) or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None until the end was noticed."""
        return self._returncode

    def poll(self) -> int | None:
        """Returns the exit code; None as long as the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process.

        Raises:
            TimeoutExpired: it has not ended within so many seconds.
        """
        with self._turn:
            if self._returncode is None:
                status = self._receive(timeout)
                if status is None:
                    raise subprocess.TimeoutExpired("noosphere", timeout or 0)
                self._returncode = os.waitstatus_to_exitcode(status)
                self._reply.close()
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process."""
        self.send_signal(signal.SIGKILL)

    def finish(self, timeout: float) -> tuple[bytes, bytes]:
        """Reads all output and waits for the end.

        Raises:
            TimeoutExpired: the process took longer than so many seconds, and was ended.
        """
        read: dict[str, bytes] = {}
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        complaints = threading.Thread(target=lambda: read.update(err=self.stderr.read()))
        complaints.start()
        began = time.monotonic()
        with self.stdout, self.stderr:
            read["out"] = self.stdout.read()
            complaints.join()
        self.wait(timeout)
        timer.cancel()
        if time.monotonic() - began >= timeout:
            raise subprocess.TimeoutExpired("noosphere", timeout, read["out"], read["err"])
        return read["out"], read["err"]

    def _receive(self, timeout: float | None) -> int | None:
        self._reply.settimeout(timeout)
        try:
            data = self._reply.recv(NUMBER.size, socket.MSG_WAITALL)
        except (TimeoutError, BlockingIOError):
            return None
        assert len(data) == NUMBER.size, "the parent of warm processes has ended"
        (number,) = NUMBER.unpack(data)
        return int(number)


def is_cold(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Returns whether a process has to start from nothing: the interpreter is told something, or much."""
    told = {name for name, value in environment.items() if os.environ.get(name) != value}
    told |= os.environ.keys() - environment.keys()
    return any(name.startswith(("PYTHON", "LC_", "LANG")) for name in told) or (
        len(_request(arguments, environment, Path.cwd())) > REQUEST_BYTES_MAX
    )


def _request(arguments: Sequence[str], environment: Mapping[str, str], cwd: Path) -> bytes:
    return json.dumps([list(arguments), dict(environment), str(cwd)]).encode()


def _feed(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as stream:
        stream.write(data)


class _Parent:
    """The process that forks."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends when nobody holds the other end any more.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm_parent", str(theirs.fileno())],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()

    def ask(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, descriptors: Sequence[int]
    ) -> None:
        with self._turn:
            socket.send_fds(self._control, [_request(arguments, environment, cwd)], descriptors)


@cache
def _parent() -> _Parent:
    return _Parent()
