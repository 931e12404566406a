"""``noosphere`` that dies as by ``kill -9`` at a chosen commit: in the middle of what it does, on any machine.

A test that kills a server from outside, when it has heard of something, kills it wherever it has come to by then: a
quick one may have ended all of it, a slow one may have begun nothing. Here the process itself ends after so many
commits of its working store, before anybody is told of the last.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.process import ServerProcess
from tests.support.warm import TRIGGER

from noosphere.server.storage.embedded.sqlite import FILE


class DyingServer(ServerProcess):
    """A server that is told when to die; started again, it lives on until it is told once more.

    Args:
        data: the data folder; a file beside it tells the process when.
        options: further options of ``noosphere serve``.
    """

    def __init__(self, data: Path, options: Sequence[str] = ()) -> None:
        self._trigger = data.with_name(f"{data.name}.dies")
        super().__init__(data, options, environment={TRIGGER: str(self._trigger)})

    def die_after(self, commits: int) -> None:
        """Has the process die when it has synced so many groups of commits from now on.

        Args:
            commits: at least 1.
        """
        written = self._trigger.with_suffix(".new")
        written.write_text(str(commits))
        written.rename(self._trigger)

    async def dead(self) -> None:
        """Returns once the process is dead, which it must be by its own hand."""
        assert await asyncio.to_thread(self.wait) == -signal.SIGKILL
        self._trigger.unlink()


class _Dying(sqlite3.Connection):
    """A connection to the working store's file."""

    trigger = Path()
    left = 0

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        done = super().execute(sql, *parameters)
        if sql == "COMMIT" and (self.left or self.trigger.exists()):
            self.left = (self.left or int(self.trigger.read_text())) - 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return done


def arm(trigger: str) -> None:
    """Has this process die when the file says so, once there is one: after how many more commits."""
    _Dying.trigger = Path(trigger)
    real_connect = sqlite3.connect

    def connect(path: str | Path, **options: Any) -> sqlite3.Connection:
        return real_connect(path, **options, factory=_Dying if Path(path).name == FILE else sqlite3.Connection)

    sqlite3.connect = connect  # type: ignore[assignment] # what the storage calls of it
