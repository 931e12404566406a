"""A real ``redis-server`` process: started on a free port, killed, stopped, promoted, and always cleaned up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_process import EngineProcess
from tests.support.ports import free_port

from noosphere.server.fleet import RedisError, engines

__all__ = ["RedisError", "RedisProcess", "catch_up", "needs_redis"]

ANSWER_SECONDS_MAX = 30.0

PROGRAM = shutil.which("redis-server")
REASON = "redis-server is not installed (Debian: apt-get install redis-server), so nothing is tested on Redis"

needs_redis = pytest.mark.engine(program=PROGRAM, reason=REASON)


class RedisProcess(EngineProcess):
    """One Redis on one folder. Not started by construction.

    Args:
        folder: where its files go.
        settings: further settings, as in its configuration file.

    Attributes:
        port: where it listens, the same one over restarts.
    """

    program = "redis"

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder)
        self.port = free_port()
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

    def command(self) -> list[str]:
        """Returns its command line."""
        assert PROGRAM is not None, "a test that starts one is marked `needs_redis`"
        return engines.redis_command(self._address, self.folder, self._settings)

    def is_up(self) -> bool:
        """Tells whether it answers and has loaded its files."""
        try:
            self.ask("PING")
        except (OSError, RedisError):
            return False
        return True

    def promote(self) -> None:
        """Makes a replica a primary, also when it is started again."""
        self._settings.pop("replicaof", None)
        self.ask("REPLICAOF", "NO", "ONE")

    def ask(self, *command: str | bytes | int) -> Any:
        """Sends one command over a connection of its own and returns the reply.

        Raises:
            RedisError: Redis has refused it.
        """
        return engines.ask(self._address, *command, seconds=ANSWER_SECONDS_MAX)

    def info(self, section: str) -> dict[str, str]:
        """Returns a section of what it says of itself."""
        return engines.info(self._address, section)

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.port}"


def catch_up(primary: RedisProcess, replica: RedisProcess) -> None:
    """Returns when the replica has everything."""
    engines.catch_up(f"127.0.0.1:{primary.port}", f"127.0.0.1:{replica.port}")
