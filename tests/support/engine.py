"""The real server in this process: real handlers, real embedded store, a clock that the test moves.

A crash is a copy: SQLite's backup takes what is committed at a transaction boundary, which is exactly what
the files hold after ``kill -9``, or (an earlier copy) after a loss of power that took the end of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.api import Api
from tests.support.transport import HandlerTransport

from noosphere.server.app import Engine, open_engine
from noosphere.server.config import Settings
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.server.storage.embedded import EmbeddedStore
from noosphere.server.storage.embedded.sqlite import FILE as WORKING_FILE
from noosphere.testing import REST_SECONDS, ManualClock

_SETTLE_TURNS = 32
"""More turns of the event loop than any chain of calls takes that waits for nothing."""


class LocalServer:
    """One server in this process.

    Args:
        folder: where its data folders go; each life after a crash has its own.
        clock: its clock.
        settings: further settings; the sweeper rests unless ``sweep_seconds`` is given.

    Attributes:
        clock: its clock.
        api: calls its handlers.
        fatal: errors that would have ended the process.
    """

    def __init__(self, folder: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        self.fatal: list[BaseException] = []
        self._folder = folder
        self._lives = 0
        # Loading a model takes a second of each test that has facts; those about meaning ask for it.
        self._settings = {"durability": "os", "sweep_seconds": REST_SECONDS, "embedder": "none", **settings}
        self._stack = contextlib.AsyncExitStack()
        self._engine: Engine | None = None
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """Calls the handlers of the present life."""
        assert self._api is not None, "not started"
        return self._api

    @property
    def engine(self) -> Engine:
        """The present life's services and store."""
        assert self._engine is not None, "not started"
        return self._engine

    @property
    def data(self) -> Path:
        """The present life's data folder."""
        return self._folder / f"life-{self._lives}"

    async def start(self) -> None:
        """Opens the data folder of the present life."""
        settings = Settings(data=self.data, listen="127.0.0.1:0", **self._settings)
        self._engine = await self._stack.enter_async_context(
            open_engine(settings, clock=self.clock, on_fatal=self.fatal.append)
        )
        memory = self._engine.memory
        sessions = SessionRpc(self._engine.sessions, self._engine.transitions)
        contexts = ContextRpc(self._engine.contexts)
        facts = FactRpc(self._engine.facts)
        coordination = CoordinationRpc(self._engine.coordination)
        admin = AdminRpc(memory, self.clock)
        self._api = Api(HandlerTransport(MemoryRpc(memory), admin, sessions, contexts, facts, coordination))

    async def fold(self) -> None:
        """Lets the working store put its house in order, which it does at any time."""
        store = self.engine.store
        assert isinstance(store, EmbeddedStore)
        await store._keeper.fold_all()

    async def stop(self) -> None:
        """Closes in order."""
        await self._stack.aclose()
        self._engine = self._api = None

    async def restart(self) -> None:
        """Closes in order and opens the same folder again."""
        await self.stop()
        await self.start()

    def image(self) -> Path:
        """Returns a copy of what is durable now, for a later :meth:`crash` back to it."""
        image = self._folder / f"image-{len(list(self._folder.glob('image-*')))}"
        shutil.copytree(self.data, image, ignore=shutil.ignore_patterns("*.sqlite3*", "LOCK"))
        for database in self.data.glob("*.sqlite3"):
            _copy(database, image / database.name)
        return image

    async def crash(self, image: Path | None = None) -> None:
        """Ends this life without warning and begins the next one on what the crash left.

        Args:
            image: an earlier :meth:`image`; what was written to the working store since is then lost. None:
                nothing is lost that was written.
        """
        now = self.image()
        await self.stop()
        self._lives += 1
        now.rename(self.data)
        if image is not None:
            (self.data / WORKING_FILE).unlink()
            shutil.copy(image / WORKING_FILE, self.data / WORKING_FILE)
        await self.start()

    async def sweep(self) -> None:
        """Runs the sweeper once over everything, and the upkeep of sessions."""
        await self.engine.memory.upkeep.round()
        await self.engine.sessions.upkeep.round()

    async def elapse(self, by_ms: int) -> None:
        """Lets time pass, once whoever runs has come to wait for it, and lets those run who waited."""
        await _settle()
        self.clock.advance(by_ms)
        await _settle()


@contextlib.asynccontextmanager
async def local_server(folder: Path, clock: ManualClock | None = None, **settings: Any) -> AsyncIterator[LocalServer]:
    """Runs a server in this process."""
    server = LocalServer(folder, clock, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def _settle() -> None:
    """Lets whatever can run without time or disk run until it waits."""
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)


def _copy(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as original, contextlib.closing(sqlite3.connect(target)) as copy:
        original.backup(copy)
