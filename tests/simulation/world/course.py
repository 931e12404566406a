"""The course of a simulation: agents work while faults last, everything heals, and then the truth is told.

Safety holds all the time: what was acknowledged is there or is said to be lost, and nothing is done twice. Liveness
holds within :data:`LIVELY_SECONDS` of healing: a newcomer gets work of every kind done, and every agent something.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import structlog
from tests.support.worker import BOARD, SPACE

from noosphere.client import Client, NotFound, RetryPolicy, connect
from noosphere.client._local import Surroundings, surrounding
from noosphere.consistency import Refusal
from noosphere.server.checking import Recorder
from noosphere.server.storage.embedded import StoreFailed
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

from .agents import FACTS, HEALED, LOCKED, NOTES, Rover, Surrounding, finish_tasks, prepare, recorded_worker, watcher
from .disk import SimDisk, mounted
from .folders import folder as _folder
from .guards import sealed
from .lives import Agent, kill_some
from .loop import SimLoop, family, run
from .network import Network
from .probing import Prober
from .trace import Trace
from .witness import Witness

ADDRESS = "servers:7443"
LIVELY_SECONDS = 30.0
"""After healing everybody has got something done within so much virtual time."""
SECONDS_MAX = 2_000.0
"""Virtual time after which a run is stuck."""


@dataclass(frozen=True)
class Size:
    """How much happens.

    Attributes:
        workers: agents whose calls are recorded.
        rovers: agents that do everything else.
        fault_seconds: how long faults last.
        tasks: how many there are on the board.
    """

    workers: int = 2
    rovers: int = 2
    fault_seconds: float = 8.0
    tasks: int = 12


class World(Protocol):
    """What agents work with: servers, and what goes wrong with them."""

    @property
    def disks(self) -> Sequence[SimDisk]:
        """The disks of all machines."""
        ...

    def channel(self, chance: Any, recorder: Any) -> Any:
        """Returns a client's way to the servers, for use on the present host."""
        ...

    async def begin(self) -> None:
        """Starts all servers."""
        ...

    async def trouble(self, seconds: float, agents: Sequence[str]) -> None:
        """Has things go wrong for some time."""
        ...

    async def heal(self) -> None:
        """Ends everything that is wrong, for good."""
        ...

    async def end(self) -> None:
        """Stops all servers in good order."""
        ...

    def survived(self, space: str) -> list[tuple[int, int]]:
        """Returns what of a namespace has really survived: the epoch that began, and the newest revision by then."""
        ...

    @property
    def knows_facts(self) -> bool:
        """Whether there is a place for facts."""
        ...

    @property
    def may_lose(self) -> bool:
        """Whether acknowledged commits may be lost, if that is told."""
        ...

    def problems(self) -> Sequence[str]:
        """Returns what must not have happened to servers."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a seed has come to.

    Attributes:
        seed: the seed.
        digest: names everything that happened.
        problems: what must not be.
        steps: what was done, and how often.
    """

    seed: int
    digest: str
    problems: tuple[str, ...]
    steps: dict[str, int]


Survived = dict[str, list[tuple[int, int]]]
"""What survived each epoch's beginning, by namespace: the epoch, and the newest revision before it."""

MakeWorld = Callable[[Network, Path], World]


def simulate(
    seed: int,
    make: MakeWorld,
    size: Size = Size(),  # immutable
    *,
    shows: bool = False,
) -> Outcome:
    """Runs one seed.

    Args:
        seed: decides everything.
        make: makes the world of servers, given the network and a folder for disks.
        size: how much happens.
        shows: also print every event.
    """
    loop = SimLoop(seed, Trace(shows))
    network = Network(loop)
    witness = Witness()
    cuts: Survived = {}
    ended = False
    with _folder() as folder, _undisturbed(loop):
        world = make(network, folder)
        with sealed(loop), mounted(*world.disks):
            try:
                cuts = run(loop, _course(loop, network, world, witness, size), SECONDS_MAX)
            except Exception as error:
                witness.wrong(f"the run ended with {type(error).__name__}: {error}")
            else:
                ended = True
        if ended:
            really = {space: world.survived(space) for space in cuts}
            witness.check_fences(really)
            witness.check_history([SPACE], cuts, really, world.may_lose)
        for problem in world.problems():
            witness.wrong(problem)
    for failure in loop.failures:
        witness.wrong(f"unhandled: {failure!r}")
    return Outcome(seed, loop.trace.digest, tuple(witness.problems), dict(sorted(witness.steps.items())))


async def _course(loop: SimLoop, network: Network, world: World, witness: Witness, size: Size) -> Survived:
    """Lets everything happen; returns what survived each epoch's beginning, by namespace."""
    plan = loop.chance("plan")
    recorders: dict[str, Recorder | None] = {}

    def made(agent: str) -> Surroundings:
        chance = loop.chance(f"{agent} {loop.time()}")
        channel = world.channel(chance, recorders[agent])
        return Surroundings(channel, loop.time, asyncio.sleep, RetryPolicy(chance=chance.random))

    def life(name: str, number: int = 1) -> Surrounding:
        # Another life is another process, whose calls are numbered from 1 again.
        recorders.pop(name, None)

        def recorder() -> Recorder:
            full_name = name if number == 1 else f"{name}.{number}"
            return Recorder(cast("Any", witness.journal), full_name, lambda: round(loop.time() * 1e9))

        def connected(coalesce: bool) -> contextlib.AbstractAsyncContextManager[Client]:
            if coalesce:
                recorders[name] = None
            elif recorders.get(name) is None:
                # Through all its connections: it numbers the calls of the history.
                recorders[name] = recorder()
            return connect(ADDRESS, agent=name, takeover=True, coalesce=coalesce)

        return Surrounding(name, number, loop.chance(f"{name} {number}"), witness, connected)

    with surrounding(ADDRESS, made):
        return await _live(loop, network, world, witness, size, life, plan)


async def _live(
    loop: SimLoop,
    network: Network,
    world: World,
    witness: Witness,
    size: Size,
    life: Callable[..., Surrounding],
    plan: random.Random,
) -> Survived:
    await world.begin()
    observer = life("observer")
    async with observer.connect(False) as client:
        await prepare(observer, client, size.tasks)
    stop, mercy = asyncio.Event(), asyncio.Event()

    def agent(name: str, doing: Callable[[Surrounding], Any]) -> Agent:
        return Agent(network, name, lambda number: doing(life(name, number)))

    agents = [agent(f"worker-{n}", lambda one: recorded_worker(one, stop)) for n in range(size.workers)]
    agents += [agent(f"rover-{n}", lambda one: Rover(one).run(stop)) for n in range(size.rovers)]
    agents.append(agent("watcher", lambda one: watcher(one, SPACE)))
    killing = loop.create_task(kill_some(agents, loop.chance("killer"), mercy))
    await world.trouble(size.fault_seconds * plan.uniform(0.5, 1.5), [one.name for one in agents])
    mercy.set()
    await killing
    await world.heal()
    loop.trace("healed")
    until = loop.time() + LIVELY_SECONDS
    await Prober(life("prober"), knows_facts=world.knows_facts).run(until)
    stop.set()
    async with observer.connect(False) as client:
        await client.namespace(SPACE).put(HEALED, True, blind=True, timeout=max(0.1, until - loop.time()))
    # They end with the next step that goes well: whoever has ended gets something done.
    tasks = [one.task for one in agents]
    _, late = await asyncio.wait(tasks, timeout=max(0.0, until - loop.time()))
    for task in sorted(late, key=hash):
        witness.wrong(f"{task.get_name()} gets nothing done {LIVELY_SECONDS:g} s after everything has healed")
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            witness.wrong(f"{task.get_name()} ended with {type(error).__name__}: {error}")
    await finish_tasks(life("finisher"), LIVELY_SECONDS)
    cuts = await _look(life("judge"), observer, witness, may_lose=world.may_lose)
    await world.end()
    return cuts


async def _look(judge: Surrounding, observer: Surrounding, witness: Witness, *, may_lose: bool) -> Survived:
    """Reads what there is, and compares it with what agents were told; returns what survived, by namespace."""
    cuts: Survived = {}
    async with judge.connect(True) as client:
        stub: Any = AdminServiceStub(client.channel)
        epoch = (await client.server_info()).epoch
        for space in sorted({SPACE, LOCKED, NOTES, *(space for space, _ in witness.places)} - {FACTS}):
            try:
                request = admin.GetNamespaceRequest(namespace=space)
                info = (await client.call(stub.GetNamespace, request)).namespace
            except NotFound:
                # That nothing of it is there says that all of it is lost.
                cuts[space] = [(epoch, 0)]
            else:
                cuts[space] = [(cut.epoch, cut.cut) for cut in info.cuts]
        for space, place in sorted(witness.places):
            # The words of facts have a file of their own: where commits may be lost, they may be, and no epoch tells.
            told = {FACTS: [(1, 0)]} if may_lose else {}
            witness.check_place(space, place, await _found(client, space, place), told | cuts)
    async with observer.connect(False) as client:
        await client.namespace(SPACE).get_many(["tally", "document", "pair/left", "pair/right"])
    return cuts


async def _found(client: Client, space: str, place: str) -> list[str]:
    if space == FACTS:
        return [fact.text async for fact in client.facts.list(place)]
    if not space.startswith("sessions/"):
        if place == BOARD:
            return [task.key.removeprefix(BOARD) async for task in client.namespace(space).board(BOARD).list()]
        record = await client.namespace(space).get(place)
        return [] if record is None else list(record.value)
    async with client.session(space.removeprefix("sessions/")) as session:
        if place == "tools":
            return [call.call_id async for call in session.tool_calls() if call.status == "done"]
        if place == "tool calls":
            return [call.call_id async for call in session.tool_calls()]
        return [message.id async for message in session.messages() if message.role == "user"]


@contextmanager
def _undisturbed(loop: SimLoop) -> Iterator[None]:
    """Keeps the collector from running at moments that no seed decides, and logs from being written."""

    def note(_: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        error = event.get("exc_info")
        own = family.get()
        mistake = isinstance(error, Exception) and not isinstance(error, (Refusal, StoreFailed))
        if mistake and (own is None or not own.dead):
            loop.failures.append(f"logged as {level}: {event['event']}: {error!r}")
        raise structlog.DropEvent

    kept = structlog.get_config()
    logging.disable(logging.CRITICAL)
    structlog.configure(processors=[note])
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        structlog.configure(**kept)
        logging.disable(logging.NOTSET)
