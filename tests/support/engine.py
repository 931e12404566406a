"""The real server in this process: real handlers, real embedded store, a clock that the test moves.

A crash is a copy: SQLite's backup takes what is committed at a transaction boundary, which is exactly what
the files hold after ``kill -9``, or (an earlier copy) after a loss of power that took the end of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import disk
from tests.support.api import Api
from tests.support.transport import HandlerTransport, ScatteringTransport

from noosphere.server.app import Engine, open_engine
from noosphere.server.assembly import open_services
from noosphere.server.config import Settings
from noosphere.server.coordination.leadership import AlwaysLeads
from noosphere.server.drivers import open_drivers, open_lasting
from noosphere.server.models import build as build_models
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

_DISK_PAUSE_SECONDS = 0.0005
_DISK_SECONDS_MAX = 2.0
"""A disk that takes longer is one that the test itself holds up."""


class LocalServer:
    """One server in this process.

    Args:
        folder: where its data folders go; each life after a crash has its own.
        clock: its clock.
        replicas: how many whole sets of services work on the one set of drivers, as replicas in processes of their own
            would; each call goes to any of them.
        settles: whether replicas write what they have gathered before each call; otherwise when its time has come.
        settings: further settings; the sweeper rests unless ``sweep_seconds`` is given.

    Attributes:
        clock: its clock.
        api: calls its handlers.
        fatal: errors that would have ended the process.
    """

    def __init__(
        self,
        folder: Path,
        clock: ManualClock | None = None,
        *,
        replicas: int = 1,
        settles: bool = True,
        **settings: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.fatal: list[BaseException] = []
        self._folder = folder
        self._lives = 0
        # Loading a model takes a second of each test that has facts; those about meaning ask for it.
        self._settings = {"durability": "os", "sweep_seconds": REST_SECONDS, "embedder": "none", **settings}
        self._stack = contextlib.AsyncExitStack()
        self._replicas = replicas
        self._settles = settles
        self._engines: list[Engine] = []
        self._apis: list[Api] = []
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """Calls the handlers of the present life."""
        assert self._api is not None, "not started"
        return self._api

    @property
    def engine(self) -> Engine:
        """The present life's services and store."""
        assert self._engines, "not started"
        return self._engines[0]

    @property
    def engines(self) -> Sequence[Engine]:
        """The present life's services, of each replica."""
        return self._engines

    @property
    def apis(self) -> Sequence[Api]:
        """Calls the handlers of each replica."""
        return self._apis

    @property
    def data(self) -> Path:
        """The present life's data folder."""
        return self._folder / f"life-{self._lives}"

    async def start(self) -> None:
        """Opens the data folder of the present life."""
        settings = Settings(data=self.data, listen="127.0.0.1:0", **self._settings)
        if self._replicas == 1:
            self._engines = [
                await self._stack.enter_async_context(
                    open_engine(settings, clock=self.clock, on_fatal=self.fatal.append)
                )
            ]
        else:
            self._engines = await self._open_replicas(settings)
        transports = [self._transport(engine) for engine in self._engines]
        self._apis = [Api(transport) for transport in transports]
        self._api = Api(ScatteringTransport(transports, self._settle_all)) if len(transports) > 1 else self._apis[0]

    async def _open_replicas(self, settings: Settings) -> list[Engine]:
        """Opens the drivers once, and on them several sets of services that know nothing of each other."""
        enter, clock, on_fatal = self._stack.enter_async_context, self.clock, self.fatal.append
        models = build_models(settings, clock=clock)
        lasting = await enter(open_lasting(settings, clock=clock, models=models, on_fatal=on_fatal))
        drivers = await enter(open_drivers(settings, lasting, clock=clock, on_fatal=on_fatal, on_epoch=lambda _: None))
        shared = drivers._replace(shared=True)
        return [
            await enter(open_services(settings, shared, models, clock=clock, leads=AlwaysLeads(), on_fatal=on_fatal))
            for _ in range(self._replicas)
        ]

    async def _settle_all(self, _: str) -> None:
        """Has every replica write what it gathers for a moment, as it does before anybody comes to another one."""
        if not self._settles:
            return
        for engine in self._engines:
            await engine.transitions.notes.settle()

    def _transport(self, engine: Engine) -> HandlerTransport:
        return HandlerTransport(
            MemoryRpc(engine.memory),
            AdminRpc(engine.memory, self.clock, dumper=engine.dumper, agents=engine.agents),
            SessionRpc(engine.sessions, engine.transitions),
            ContextRpc(engine.contexts),
            FactRpc(engine.facts, engine.owners),
            CoordinationRpc(engine.coordination),
        )

    async def fold(self) -> None:
        """Lets the working store put its house in order, which it does at any time."""
        store = self.engine.store
        assert isinstance(store, EmbeddedStore)
        await store._keeper.fold_all()

    async def stop(self) -> None:
        """Closes in order."""
        await self._stack.aclose()
        self._engines, self._apis, self._api = [], [], None

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
        for engine in self._engines:
            await engine.memory.upkeep.round()
            await engine.sessions.upkeep.round()

    async def elapse(self, by_ms: int) -> None:
        """Lets time pass, once whoever runs has come to wait for it, and lets those run who waited."""
        await _settle()
        self.clock.advance(by_ms)
        await _settle()


@contextlib.asynccontextmanager
async def local_server(
    folder: Path, clock: ManualClock | None = None, *, replicas: int = 1, settles: bool = True, **settings: Any
) -> AsyncIterator[LocalServer]:
    """Runs a server in this process, or several on the same drivers."""
    server = LocalServer(folder, clock, replicas=replicas, settles=settles, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def _settle() -> None:
    """Lets whatever can run without time run until it waits, however slow the disk."""
    given_up = time.monotonic() + _DISK_SECONDS_MAX
    while True:
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)
        if disk.is_idle() or time.monotonic() > given_up:
            return
        await asyncio.sleep(_DISK_PAUSE_SECONDS)


def _copy(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as original, contextlib.closing(sqlite3.connect(target)) as copy:
        original.backup(copy)
