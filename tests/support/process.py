"""A real ``noosphere serve`` process: started on a free port, killed, stopped, restarted, and always cleaned up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ports import free_port
from tests.support.warm import WarmProcess

NOOSPHERE = Path(sysconfig.get_path("scripts")) / "noosphere"
START_SECONDS_MAX = 60.0
EXIT_SECONDS_MAX = 60.0
_ADDRESS = re.compile(r"noosphere serves on (\S+)")


class ServerProcess:
    """One server on one data folder. Not started by construction.

    Args:
        data: the data folder.
        options: further options of ``noosphere serve``.
        command: what to run from nothing; None: the installed ``noosphere``, warm.
        cwd: where to run it.
        sheds: whether it refuses calls when they have to wait, as it does in earnest. Most tests ask as they please,
            not as a client does that comes back later, and a machine that runs tests is a busy one.
        environment: what it has in its environment besides ours.

    Attributes:
        address: where the running server listens.
        process: the newest process.
    """

    def __init__(
        self,
        data: Path,
        options: Sequence[str] = (),
        command: Sequence[str] | None = None,
        cwd: Path | None = None,
        sheds: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.options = (*(() if sheds else ("--limits-server-lag-ms-max", "0")), *options)
        self.address = ""
        self.process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._command = command
        self._cwd = cwd
        self._environment = dict(environment or {})
        self._stderr: list[str] = []
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def stderr(self) -> str:
        """What the newest process has written to standard error; whole once it has ended."""
        if self._reader is not None and self.process is not None and self.process.poll() is not None:
            self._reader.join(EXIT_SECONDS_MAX)
        return "".join(self._stderr)

    def start(self, listen: str | None = None) -> str:
        """Starts a process and returns its address once it answers calls.

        Args:
            listen: where; None: at a port that stays its own while it is down.
        """
        assert self.process is None or self.process.poll() is not None, "the previous process still runs"
        arguments = ["serve", "--listen", listen or f"127.0.0.1:{free_port()}", "--data", str(self.data), *self.options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
        environment |= self._environment
        if self._command is None:
            self.process = WarmProcess(arguments, environment, cwd=self._cwd)
        else:
            self.process = subprocess.Popen(
                [*self._command, *arguments],
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Signals of the terminal are for pytest; the server gets those that a test sends.
                start_new_session=True,
                env=environment,
            )
        # Each process gets a list of its own: a late line of the previous one belongs to that one.
        self._stderr = []
        self._reader = threading.Thread(target=_drain, args=(self.process, self._stderr), daemon=True)
        self._reader.start()
        self.address = self._await_address(self.process)
        return self.address

    def restart(self) -> str:
        """Starts the next process on the same address, so that clients find it again."""
        return self.start(self.address)

    def kill(self) -> None:
        """Ends the process as ``kill -9`` does and waits until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.wait()

    def terminate(self) -> int:
        """Asks the process to end and returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def pause(self) -> None:
        """Stops the process where it stands."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        assert self.process is not None
        code = self.process.wait(EXIT_SECONDS_MAX)
        if self._reader is not None:
            self._reader.join(EXIT_SECONDS_MAX)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def close(self) -> None:
        """Ends whatever still runs; for finalizers."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.wait()

    def resident_bytes(self) -> int:
        """Returns the resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _await_address(self, process: subprocess.Popen[bytes] | WarmProcess) -> str:
        assert process.stdout is not None
        timer = threading.Timer(START_SECONDS_MAX, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                if found := _ADDRESS.search(line.decode()):
                    return found[1]
        finally:
            timer.cancel()
        self.wait()
        raise AssertionError(f"the server ended with {process.returncode} before it served:\n{self.stderr}")


def _drain(process: subprocess.Popen[bytes] | WarmProcess, lines: list[str]) -> None:
    assert process.stderr is not None
    with process.stderr:
        lines.extend(line.decode() for line in process.stderr)
