"""A real program of somebody else's, on one folder: started, killed, stopped, paused, and always cleaned up."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

EXIT_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.005


class EngineProcess(ABC):
    """One process of an engine. Not started by construction.

    Args:
        folder: where its files go.

    Attributes:
        folder: where its files are.
        process: the newest process.
        log: where its output goes.
    """

    program: ClassVar[str]
    """What it is called."""
    start_seconds_max: ClassVar[float] = 30.0

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / f"{self.program}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Returns its command line."""

    def environment(self) -> Mapping[str, str] | None:
        """Returns its environment; None for that of this process."""
        return None

    @abstractmethod
    def is_up(self) -> bool:
        """Tells whether it answers."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running.pid

    def start(self) -> None:
        """Starts it; returns once it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + self.start_seconds_max
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.program} does not start:\n{self.log.read_text()}")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Ends it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(EXIT_SECONDS_MAX)

    def stop(self) -> None:
        """Ends it in order: it writes what it has in memory."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(EXIT_SECONDS_MAX)

    def pause(self) -> None:
        """Stops it where it stands: connections stay, nothing is answered."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._running.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Ends it without warning and starts it on the same files."""
        self.kill()
        self.start()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "it has not been started"
        return self.process
