"""A real ``redis-server`` process: started on a free port, killed, stopped, promoted, and always cleaned up."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import hiredis
import pytest

START_SECONDS_MAX = 30.0
EXIT_SECONDS_MAX = 30.0

PROGRAM = shutil.which("redis-server")
REASON = "redis-server is not installed (Debian: apt-get install redis-server), so nothing is tested on Redis"

needs_redis = pytest.mark.engine(program=PROGRAM, reason=REASON)


class RedisError(Exception):
    """What Redis has answered."""


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
        options = [part for name, value in self._settings.items() for part in (f"--{name}", value)]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), *options],
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

    def ask(self, *command: str | int) -> Any:
        """Sends one command over a connection of its own and returns the reply.

        Raises:
            RedisError: Redis has refused it.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS_MAX) as connection:
            connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # Its stub allows one part only.
            reader = hiredis.Reader(replyError=RedisError)
            while (reply := reader.gets()) is False:
                if not (data := connection.recv(65_536)):
                    raise ConnectionError("Redis has hung up")
                reader.feed(data)
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def info(self, section: str) -> dict[str, str]:
        """Returns a section of what it says of itself."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def catch_up(primary: RedisProcess, replica: RedisProcess) -> None:
    """Returns when the replica has everything. WAIT would wait only for what its own connection has written."""
    wanted = int(primary.info("replication")["master_repl_offset"])
    for _ in range(20_000):
        found = replica.info("replication")
        if found.get("master_link_status") == "up" and int(found["slave_repl_offset"]) >= wanted:
            return
        time.sleep(0.002)
    raise AssertionError("the replica does not catch up")


def free_port() -> int:
    """Returns a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
