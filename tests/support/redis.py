"""A real ``redis-server`` process: started on a free port, killed, stopped, promoted, and always cleaned up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from noosphere.server.fleet import RedisError, engines
from noosphere.server.fleet.processes import free_address, split

__all__ = ["RedisError", "RedisProcess", "catch_up", "free_port", "needs_redis"]

START_SECONDS_MAX = 30.0
EXIT_SECONDS_MAX = 30.0

PROGRAM = shutil.which("redis-server")
REASON = "redis-server is not installed (Debian: apt-get install redis-server), so nothing is tested on Redis"

needs_redis = pytest.mark.engine(program=PROGRAM, reason=REASON)


class RedisProcess:
    """One Redis on one folder. Not started by construction.

    Args:
        folder: where its files go.
        settings: further settings, as in its configuration file.

    Attributes:
        port: where it listens, the same one over restarts.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._settings = {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            # A replica begins at once.
            "repl-diskless-sync-delay": "0",
            # What is on disk can be searched for bytes so.
            "rdbcompression": "no",
            **settings,
        }

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Starts it; returns once it answers and has loaded its files."""
        assert PROGRAM is not None, "a test that starts one is marked `needs_redis`"
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                engines.redis_command(self._address, self.folder, self._settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.ask("PING")
                return
            except (OSError, RedisError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.folder / "redis.log").read_text()) from None
            time.sleep(0.005)

    def kill(self) -> None:
        """Ends it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(EXIT_SECONDS_MAX)

    def promote(self) -> None:
        """Makes a replica a primary, also when it is started again."""
        self._settings.pop("replicaof", None)
        self.ask("REPLICAOF", "NO", "ONE")

    def pause(self) -> None:
        """Stops it where it stands."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Ends it without warning and starts it on the same files."""
        self.kill()
        self.start()

    def ask(self, *command: str | bytes | int) -> Any:
        """Sends one command over a connection of its own and returns the reply.

        Raises:
            RedisError: Redis has refused it.
        """
        return engines.ask(self._address, *command, seconds=START_SECONDS_MAX)

    def info(self, section: str) -> dict[str, str]:
        """Returns a section of what it says of itself."""
        return engines.info(self._address, section)

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.port}"


def catch_up(primary: RedisProcess, replica: RedisProcess) -> None:
    """Returns when the replica has everything."""
    engines.catch_up(f"127.0.0.1:{primary.port}", f"127.0.0.1:{replica.port}")


def free_port() -> int:
    """Returns a port that is free now."""
    return split(free_address())[1]
