"""A real server that shares Redis and etcd with others, on a simulated machine: epochs end and begin as in production.

Services are closed and opened anew whenever Redis fails over, by the very code that does so in ``noosphere serve``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from noosphere.consistency import Refusal
from noosphere.server.assembly import Engine, open_services
from noosphere.server.authentication import authorizing
from noosphere.server.config import Settings
from noosphere.server.coordination import Leadership, Membership, ServerInfo, Servers
from noosphere.server.drivers import Lasting, StartupError, open_drivers
from noosphere.server.generations import Generations
from noosphere.server.models import Models
from noosphere.server.models import build as build_models
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.faces import COORDINATION, Faces
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.gate import Gate
from noosphere.server.rpc.health import Health
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.server import RpcServer
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.server.rpc.steps.authorization import AuthorizationStep
from noosphere.server.rpc.steps.limits import limits_step
from noosphere.server.rpc.steps.shedding import shedding_step
from noosphere.server.rpc.switchboard import Switchboard
from noosphere.server.security.limit_rules import LimitRules
from noosphere.server.storage.etcd import Access, EtcdCoordinator, UnfitEtcd
from noosphere.server.supervision import cancel, supervise

from .channel import SimChannel
from .loop import SimLoop
from .network import Network
from .process import Process
from .server import PORT, STALL_SECONDS, SimServer
from .serving import Endpoint

AGAIN_SECONDS = 1.0
"""After so long a server that cannot start is started again, as its supervisor does."""


class _Answering(RpcServer):
    """What answers calls, without the sockets: what becomes of services is the real one's business."""

    def __init__(self, gate: Gate, shedding: Any) -> None:
        self.health = Health()
        self.switchboard = self._switchboard = Switchboard(gate, shedding)
        self._faces = None
        self._absent = frozenset()
        self._told = {}
        self._probe = None


class SimReplica(SimServer):
    """See the module.

    Args:
        network: what it is reached through.
        name: its host.
        redis_urls: where it looks for Redis.
        etcd_endpoints: where it looks for etcd.
        settings: further settings.
    """

    def __init__(
        self, network: Network, name: str, redis_urls: Sequence[str], etcd_endpoints: Sequence[str], **settings: Any
    ) -> None:
        given = {"redis_urls": ",".join(redis_urls), "etcd_endpoints": ",".join(etcd_endpoints), **settings}
        super().__init__(network, None, name, **given)  # type: ignore[arg-type] # It has no disk.
        self._endpoints = tuple(etcd_endpoints)

    def crash(self, *, power: bool = False) -> None:
        """Ends a life without warning."""
        self.running.clear()
        if self._process is not None:
            self._process.kill()

    async def _live(self, process: Process) -> None:
        def failed(error: BaseException) -> None:
            if not process.family.dead:
                self.fatal.append(error)
                self._network.loop.trace("fatal", self.name, type(error).__name__)
                self._stop.set()

        while not self._stop.is_set() and not process.family.dead:
            try:
                async with self._opened(failed):
                    self.running.set()
                    await self._stop.wait()
                    self.running.clear()
            except (StartupError, Refusal, UnfitEtcd) as error:
                self._network.loop.trace("not started", self.name, type(error).__name__)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._stop.wait()
            except Exception as error:
                failed(error)
            finally:
                if not process.family.dead:
                    self.running.clear()
                    self._network.crash(self.name)

    @contextlib.asynccontextmanager
    async def _opened(self, on_fatal: Callable[[BaseException], None]) -> AsyncIterator[None]:
        loop: SimLoop = self._network.loop
        settings = Settings(listen=f"127.0.0.1:{PORT}", **{"embedder": "none", "sweep_seconds": 5, **self._settings})
        clock = self.clock
        entropy = loop.chance(f"{self.name} {loop.time()}")
        async with contextlib.AsyncExitStack() as stack:
            models = build_models(settings, clock=clock, rng=loop.chance("models"), plugins=())
            stack.push_async_callback(models.aclose)
            access = Access(connect=partial(SimChannel, self._network))
            coordinator = await EtcdCoordinator.open(self._endpoints, clock=clock, access=access)
            stack.push_async_callback(coordinator.close)
            lasting = Lasting(coordinator, None, None, None)
            own = ServerInfo(entropy.randbytes(8).hex(), self.address, "simulated", clock.wall_ms(), leads=False)
            servers = Servers(coordinator, own, shared=True)
            leadership = Leadership(coordinator.locks, own.id, clock)
            authorization = await stack.enter_async_context(authorizing(settings, clock, on_fatal))
            limits = LimitRules(coordinator, settings)
            shedding = shedding_step(settings, clock, loop.chance("shedding"))
            gate = Gate((shedding, authorization, limits_step(limits, clock)))
            rpc = _Answering(gate, shedding)
            generations = Generations(
                lambda on_epoch: self._working(settings, lasting, models, leadership, entropy, on_fatal, on_epoch),
                partial(self._faces, servers, gate, limits, authorization),
                rpc,
                clock,
                may_end=True,
                probes={COORDINATION: coordinator.epochs},
            )
            stack.push_async_callback(generations.close)
            await generations.open()
            endpoint = Endpoint(loop, rpc.switchboard.service)
            listener = self._network.listen(self.name, PORT, endpoint)
            membership = Membership(coordinator, servers, clock)
            tasks = [
                asyncio.create_task(work, name=f"noosphere-{name}")
                for name, work in (
                    ("generations", generations.run()),
                    ("membership", membership.run()),
                    ("leadership", leadership.run()),
                )
            ]
            supervise(tasks, on_fatal)
            try:
                yield
            finally:
                listener.close()
                await cancel(tasks)
                await leadership.close()
                await membership.close()
                await endpoint.drain()

    @contextlib.asynccontextmanager
    async def _working(
        self,
        settings: Settings,
        lasting: Lasting,
        models: Models,
        leadership: Leadership,
        entropy: Any,
        on_fatal: Callable[[BaseException], None],
        on_epoch: Callable[[int], None],
    ) -> AsyncIterator[Engine]:
        """Opens what an epoch ends."""
        loop: SimLoop = self._network.loop
        ends: list[int] = []

        def begun(epoch: int) -> None:
            loop.trace("epoch", self.name, epoch)
            ends.append(epoch)
            on_epoch(epoch)

        async with (
            open_drivers(settings, lasting, clock=self.clock, on_fatal=on_fatal, on_epoch=begun) as drivers,
            open_services(
                settings,
                drivers,
                models,
                clock=self.clock,
                leads=leadership,
                on_fatal=on_fatal,
                is_over=lambda: bool(ends),
                entropy=entropy.randbytes,
                rng=lambda: loop.chance(f"services {entropy.random()}"),
            ) as engine,
        ):
            self.engine = engine
            try:
                yield engine
            finally:
                self.engine = None

    def _faces(
        self, servers: Servers, gate: Gate, limits: LimitRules, authorization: AuthorizationStep, engine: Engine
    ) -> Faces:
        authorization.decide_by(engine.memory.core.access)
        return Faces(
            engine.memory.signals,
            MemoryRpc(engine.memory, STALL_SECONDS, gate),
            AdminRpc(
                engine.memory,
                self.clock,
                self.clock.monotonic_ms(),
                servers,
                dumper=engine.dumper,
                agents=engine.agents,
                limits=limits,
            ),
            SessionRpc(engine.sessions, engine.transitions),
            ContextRpc(engine.contexts),
            FactRpc(engine.facts, engine.owners),
            CoordinationRpc(engine.coordination, STALL_SECONDS),
        )
