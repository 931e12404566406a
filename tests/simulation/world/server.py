"""A real server on a simulated machine: services, drivers, gate and handlers as in production, but for the sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from noosphere.server.assembly import Engine, open_services
from noosphere.server.authentication import authorizing
from noosphere.server.config import Settings
from noosphere.server.coordination import AlwaysLeads
from noosphere.server.drivers import open_drivers, open_lasting
from noosphere.server.models import build as build_models
from noosphere.server.ports.store import WorkingStore
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.faces import Faces
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.gate import Gate
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.server.rpc.steps.limits import limits_step
from noosphere.server.rpc.steps.shedding import shedding_step
from noosphere.server.rpc.switchboard import Switchboard
from noosphere.server.security.limit_rules import LimitRules

from .disk import SimDisk
from .loop import SimLoop
from .network import Network
from .process import Process, SimClock
from .serving import Endpoint

PORT = 7443
STALL_SECONDS = 30.0


class SimServer:
    """A server on embedded drivers, through all its lives.

    Args:
        network: what it is reached through.
        disk: where its data folder is.
        name: its host.
        settings: further settings.

    Attributes:
        clock: its machine's clock.
        disk: its machine's disk.
        fatal: what has ended its lives, beside crashes.
        running: set while it answers calls.
        survived: what was there when each epoch began: the newest revision of each namespace.
    """

    def __init__(self, network: Network, disk: SimDisk, name: str = "server", **settings: Any) -> None:
        self.name = name
        self.disk = disk
        self.clock = SimClock(network.loop)
        self.fatal: list[BaseException] = []
        self.running = asyncio.Event()
        self.engine: Engine | None = None
        self.survived: dict[int, dict[str, int]] = {}
        self._network = network
        self._settings = settings
        self._process: Process | None = None
        self._stop = asyncio.Event()

    @property
    def address(self) -> str:
        """Where it is reached."""
        return f"{self.name}:{PORT}"

    @property
    def alive(self) -> bool:
        """Whether its process runs, answering or not."""
        main = None if self._process is None else self._process.main
        return main is not None and not main.done() and self._process is not None and not self._process.family.dead

    async def settled(self) -> None:
        """Returns once it answers calls, or its process has ended."""
        assert self._process is not None, "not started"
        assert self._process.main is not None, "not started"
        running = asyncio.ensure_future(self.running.wait())
        try:
            await asyncio.wait((running, self._process.main), return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()

    def start(self) -> None:
        """Begins a life."""
        self._stop = asyncio.Event()
        self._process = Process(self._network, self.name)
        self._process.start(self._live(self._process))

    async def stop(self) -> None:
        """Ends a life in good order."""
        if self._process is not None and self._process.main is not None:
            self._stop.set()
            await asyncio.wait([self._process.main])

    def crash(self, *, power: bool) -> None:
        """Ends a life without warning.

        Args:
            power: whether what was not synced is lost as well.
        """
        self.running.clear()
        if self._process is not None:
            self._process.kill()
        self.disk.crash(power=power)

    async def _live(self, process: Process) -> None:
        def failed(error: BaseException) -> None:
            # As `serve`: nothing is acknowledged any more, and the process stops.
            if not process.family.dead:
                self.fatal.append(error)
                self._network.loop.trace("fatal", self.name, type(error).__name__)
                self._stop.set()

        try:
            async with self._opened(failed):
                self.running.set()
                await self._stop.wait()
                self.running.clear()
        except Exception as error:
            if not process.family.dead:
                failed(error)
        finally:
            if not process.family.dead:
                self.running.clear()
                self._network.crash(self.name)

    @contextlib.asynccontextmanager
    async def _opened(self, on_fatal: Callable[[BaseException], None]) -> AsyncIterator[None]:
        loop: SimLoop = self._network.loop
        settings = Settings(
            data=self.disk.data,
            listen=f"127.0.0.1:{PORT}",
            **{"embedder": "none", "sweep_seconds": 5, **self._settings},
        )
        clock = self.clock
        worker = self.disk.worker()
        entropy = loop.chance(f"{self.name} {loop.time()}")
        models = build_models(settings, clock=clock, rng=loop.chance("models"), plugins=())
        async with contextlib.AsyncExitStack() as stack:
            lasting = await stack.enter_async_context(
                open_lasting(settings, clock=clock, models=models, on_fatal=on_fatal, worker=worker)
            )
            drivers = await stack.enter_async_context(
                open_drivers(settings, lasting, clock=clock, on_fatal=on_fatal, on_epoch=lambda _: None, worker=worker)
            )
            engine = await stack.enter_async_context(
                open_services(
                    settings,
                    drivers,
                    models,
                    clock=clock,
                    leads=AlwaysLeads(),
                    on_fatal=on_fatal,
                    entropy=entropy.randbytes,
                    rng=lambda: loop.chance(f"services {entropy.random()}"),
                )
            )
            if drivers.store.epoch not in self.survived:
                self.survived[drivers.store.epoch] = await _heads(drivers.store)
            authorization = await stack.enter_async_context(authorizing(settings, clock, on_fatal))
            authorization.decide_by(engine.memory.core.access)
            limits = LimitRules(lasting.coordinator, settings)
            shedding = shedding_step(settings, clock, loop.chance("shedding"))
            gate = Gate((shedding, authorization, limits_step(limits, clock)))
            switchboard = Switchboard(gate, shedding)
            faces = Faces(
                engine.memory.signals,
                MemoryRpc(engine.memory, STALL_SECONDS, gate),
                AdminRpc(engine.memory, clock, dumper=engine.dumper, agents=engine.agents, limits=limits),
                SessionRpc(engine.sessions, engine.transitions),
                ContextRpc(engine.contexts),
                FactRpc(engine.facts, engine.owners),
                CoordinationRpc(engine.coordination, STALL_SECONDS),
            )
            switchboard.connect(faces.handlers(), may_end=False)
            endpoint = Endpoint(loop, switchboard.service)
            listener = self._network.listen(self.name, PORT, endpoint)
            self.engine = engine
            try:
                yield
            finally:
                self.engine = None
                listener.close()
                faces.signals.drain()
                await endpoint.drain()


async def _heads(store: WorkingStore) -> dict[str, int]:
    """Returns the newest revision of every namespace."""
    heads: dict[str, int] = {}
    after = ""
    while page := await store.namespaces("", after, 256):
        after = page[-1].ref.name
        heads |= {summary.ref.name: summary.head for summary in page}
    return heads
