"""One life of a test's server: the real engine on its data folder, and the real gRPC server on its port."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from noosphere.server.app import Engine, open_engine
from noosphere.server.config import Settings
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.faces import Faces
from noosphere.server.rpc.server import RpcServer

from ._calls import ServerClock
from ._clock import REST_SECONDS
from ._plan import Plan
from ._service import ObservedContexts, ObservedCoordination, ObservedFacts, ObservedMemory, ObservedSessions
from ._streams import Streams
from ._tape import TapedJournal

HOST = "127.0.0.1"
_DRAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Life:
    """A server that answers calls.

    Attributes:
        engine: its services and store.
        journal: what it has written.
        port: where it listens.
    """

    engine: Engine
    journal: TapedJournal
    port: int
    rpc: RpcServer

    async def end(self, *, orderly: bool) -> None:
        """Stops answering: in good order, or by breaking every connection."""
        if orderly:
            await self.rpc.stop(_DRAIN_SECONDS)
        else:
            await self.rpc.abort()


@asynccontextmanager
async def life(
    data: Path,
    workshop: Path,
    port: int,
    clock: ServerClock,
    plan: Plan,
    streams: Streams,
    on_fatal: Callable[[BaseException], None],
) -> AsyncIterator[Life]:
    """Runs a server; the data folder is closed in order at the end.

    Args:
        data: the data folder.
        workshop: a folder of this life's own, for what a crash needs.
        port: where to listen; 0 lets the system choose.
        clock: the source of time.
        plan: what goes wrong.
        streams: the watches of clients in this process.
        on_fatal: called if the disk fails.
    """
    # Durability `os`: a test cuts the power by leaving commits out, not by pulling the plug. The server's own
    # sweeper rests: whoever moves time sweeps, at the moments that count. Facts are found by their words: a model that
    # is still being loaded would make the first searches of a test differ from the later ones.
    settings = Settings(data=data, listen=f"{HOST}:0", durability="os", sweep_seconds=REST_SECONDS, embedder="none")
    journal = TapedJournal(data, workshop)
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(settings, clock=clock, journal=journal, on_fatal=on_fatal))
        rpc = RpcServer(enable_reflection=False)
        rpc.serve(
            Faces(
                engine.memory.signals,
                ObservedMemory(engine.memory, clock.calls, plan, streams),
                AdminRpc(engine.memory, clock, dumper=engine.dumper, agents=engine.agents),
                ObservedSessions(engine.sessions, engine.transitions, clock.calls, plan),
                ObservedContexts(engine.contexts, clock.calls, plan),
                ObservedFacts(engine.facts, engine.owners, clock.calls, plan),
                ObservedCoordination(engine.coordination, clock.calls, plan, streams),
            )
        )
        bound = await rpc.start(f"{HOST}:{port}")
        stack.push_async_callback(rpc.abort)
        yield Life(engine, journal, bound, rpc)
