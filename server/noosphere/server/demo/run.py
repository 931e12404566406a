"""Runs the demo: sets the job up, lets the agents work, kills one, and compares."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from noosphere.client import Client, Namespace, NamespacePolicy, connect
from noosphere.server.checking import (
    HistoryWriter,
    Recorder,
    check_history,
    collect_history,
    new_header,
    read_history,
)
from noosphere.v1 import admin_service_pb2, admin_service_pb2_grpc

from .agent import BOARD, CALL_LIMIT_S, CONTROL, INDEX, LONGEST, OUTLINE, SECTIONS, WORDS
from .chaos import Disaster, FleetFaults, account
from .display import Display
from .figures import Figures, Takeover, Tally
from .job import SHELVES, JobResult, Outline, Shelf, Task, serial_result
from .processes import (
    START_LIMIT_S,
    AgentProcess,
    DemoError,
    agent_process,
    delete_namespace,
    own_server,
    require_server,
)
from .protocol import GO, PAUSE, Claimed, Completed, Event, Holding, Orders, Ready
from .settings import DemoSettings
from .text import InputError, Section, default_texts, read_texts, split

COORDINATOR = "demo"
ITEM_BYTES_MAX = 64 * 1024
CHAOS_TIMES = 2
"""What a disaster costs is not held against the job."""


async def run(settings: DemoSettings, display: Display) -> Figures:
    """Runs the demo once.

    Raises:
        InputError: the text cannot be used.
        DemoError: a process failed, it took too long, or the given server does not answer.
        NoosphereError: the server refused or could not be reached.
        OSError: the history cannot be written.
    """
    source, sections = _input(settings)
    faults = FleetFaults(settings.fleet) if settings.lose is not None else None
    names = [f"agent-{number}" for number in range(1, settings.agents + 1)]
    namespace = f"shared/demo-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noosphere-demo-")))
        server = settings.server
        if faults is not None:
            server = await _fleet_of(faults, settings)
        if server is None:
            server = await stack.enter_async_context(own_server(folder))
        else:
            await require_server(server)
        client = await stack.enter_async_context(_recorded_client(server, folder / COORDINATOR))
        await client.ensure_namespace(namespace, NamespacePolicy(item_bytes_max=ITEM_BYTES_MAX))
        if settings.server is not None or faults is not None:
            # One's own server goes with its folder; somebody else's is left as it was.
            stack.push_async_callback(delete_namespace, server, namespace)
        space = client.namespace(namespace)
        board = space.board(BOARD, Task)
        for section in sections:
            task = Task(number=section.name, title=section.title, source=section.source, content=section.content)
            await board.add(task, section.name)
        display.begin(source, names, len(sections))
        agents = [
            await stack.enter_async_context(
                agent_process(_orders(settings, name, at, namespace, folder), folder / f"{name}.log")
            )
            for name, at in zip(names, spread(server, len(names)), strict=True)
        ]
        started = time.monotonic()
        disaster = None
        if faults is not None and settings.lose is not None:
            disaster = Disaster(faults, namespace, settings.lose, len(agents), display.happened)
        job = _Job(agents, random.Random(settings.seed).choice(agents), len(sections), display, disaster)
        limit_s = settings.limit_s * (CHAOS_TIMES if disaster is not None else 1)
        try:
            async with asyncio.timeout(limit_s):
                await job.run()
        except TimeoutError:
            done = job.tally.completions.total()
            raise DemoError(f"{done} of {len(sections)} sections were done after {limit_s:g} s") from None
        seconds = time.monotonic() - started
        shared, done, control = await _read_result(space)
        for agent in agents:
            await agent.stop()
        history = settings.history or folder / "history"
        cuts = {namespace: await _cuts(client, namespace)} if disaster is not None else {}
        collect_history(
            [folder / name for name in (COORDINATOR, *names)],
            history,
            new_header(
                {"agents": settings.agents, "seed": settings.seed, "think_ms": settings.think_ms}, [namespace], cuts
            ),
        )
        losses = None
        if disaster is not None and settings.lose is not None:
            old, new = await disaster.look_back()
            alive = [agent.name for agent in agents if not agent.killed]
            calls = [call for call in read_history(history).calls if call.namespace == namespace]
            losses = account(calls, old, new, disaster.signals, settings.lose, alive)
        return Figures(
            source=source,
            agents=settings.agents,
            seconds=seconds,
            serial=serial_result(sections),
            shared=shared,
            done=done,
            tally=job.tally,
            takeover=job.takeover,
            control=control,
            verdict=await asyncio.to_thread(check_history, history),
            conflicts_min=settings.conflicts_min,
            servers=len(server.split(",")),
            losses=losses,
            damage=disaster.damage if disaster is not None else None,
        )


async def _fleet_of(faults: FleetFaults, settings: DemoSettings) -> str:
    """Returns the servers of the fleet that is to be damaged.

    Raises:
        DemoError: it is not whole.
        InputError: other servers were asked for.
    """
    fleet = await asyncio.to_thread(faults.check)
    known = fleet.server.split(",")
    if settings.server is not None and not set(map(str.strip, settings.server.split(","))) <= set(known):
        raise InputError(
            f"--server: {settings.server} is not of the fleet in {settings.fleet}, which is {fleet.server}"
        )
    return fleet.server


def spread(server: str, count: int) -> list[str]:
    """Returns for each agent the servers, each first for as many agents as any other."""
    servers = server.split(",")
    return [",".join(servers[index:] + servers[:index]) for index in (number % len(servers) for number in range(count))]


async def _cuts(client: Client, namespace: str) -> list[tuple[int, int]]:
    """Returns what survived each failover in a namespace, by epoch."""
    stub = admin_service_pb2_grpc.AdminServiceStub(client.channel)
    reply = await client.call(stub.GetNamespace, admin_service_pb2.GetNamespaceRequest(namespace=namespace))
    return [(cut.epoch, cut.cut) for cut in reply.namespace.cuts if cut.cut]


def _input(settings: DemoSettings) -> tuple[str, list[Section]]:
    if settings.files:
        source = ", ".join(str(path) for path in settings.files)
        sections = split(read_texts(settings.files))
    else:
        source, texts = default_texts()
        sections = split(texts)
    return source, sections[: settings.sections_max]


def _orders(settings: DemoSettings, name: str, server: str, namespace: str, folder: Path) -> Orders:
    return Orders(
        agent=name,
        server=server,
        namespace=namespace,
        journal=str(folder / name),
        seed=settings.seed,
        think_ms=settings.think_ms,
        lease_ms=settings.lease_ms,
        limit_s=settings.limit_s * (CHAOS_TIMES if settings.lose is not None else 1),
        chaos=settings.lose is not None,
    )


@asynccontextmanager
async def _recorded_client(server: str, journal: Path) -> AsyncIterator[Client]:
    with HistoryWriter(journal) as writer:
        async with connect(
            server, timeout=CALL_LIMIT_S, coalesce=False, interceptors=[Recorder(writer, COORDINATOR)]
        ) as client:
            yield client


class _Job:
    """The time from the start of the agents to their end."""

    def __init__(
        self,
        agents: list[AgentProcess],
        victim: AgentProcess,
        sections: int,
        display: Display,
        disaster: Disaster | None = None,
    ) -> None:
        self.agents = agents
        self.victim = victim
        self.sections = sections
        self.display = display
        self.tally = Tally()
        self.takeover: Takeover | None = None
        self.killed_at = 0.0
        self.disaster = disaster
        self._begin = asyncio.Event()

    async def run(self) -> None:
        """Starts all agents at once, kills one half way, and waits until the others have done the rest."""
        ready = asyncio.Barrier(len(self.agents) + 1)
        async with asyncio.TaskGroup() as group:
            for agent in self.agents:
                group.create_task(self._follow(agent, ready))
            try:
                async with asyncio.timeout(START_LIMIT_S):
                    await ready.wait()
            except TimeoutError:
                raise DemoError(f"not all agents were ready within {START_LIMIT_S:g} s") from None
            for agent in self.agents:
                agent.tell(GO)
            if self.disaster is not None:
                await self._begin.wait()
                await self.disaster.happen()

    async def _follow(self, agent: AgentProcess, ready: asyncio.Barrier) -> None:
        async for event in agent.events():
            self.tally.add(agent.name, event)
            if self.disaster is not None:
                self.disaster.add(agent.name, event)
            self.display.event(agent.name, event, self.tally)
            if isinstance(event, Ready):
                await ready.wait()
            self._react(agent, event)

    def _react(self, agent: AgentProcess, event: Event) -> None:
        match event:
            case Completed() if self.tally.completions.total() == self._pause_at:
                self.victim.tell(PAUSE)
            case Completed() if self.disaster is not None and len(self.tally.completions) == self.sections:
                self.disaster.work_is_over()
            case Holding(section):
                agent.kill()
                self.killed_at = time.monotonic()
                self.takeover = Takeover(section, agent.name)
                self.display.killed(agent.name, section)
            case Claimed(section) if self.takeover is not None and self.takeover.awaits(section):
                self.takeover.by = agent.name
                self.takeover.after_s = time.monotonic() - self.killed_at
                self._begin.set()

    @property
    def _pause_at(self) -> int:
        """How many sections are done when an agent is killed; before a disaster, which needs the rest of them."""
        return self.sections // (2 if self.disaster is None else 6)


async def _read_result(space: Namespace) -> tuple[JobResult, int, int]:
    """Returns what the agents left behind, how many tasks are done, and the control."""
    outline = await space.get(OUTLINE, Outline)
    index: dict[str, list[str]] = {}
    for shelf in SHELVES:
        if (record := await space.get(INDEX + shelf, Shelf)) is not None:
            index.update(record.value.terms)
    words, sections, longest, control = await space.get_many([WORDS, SECTIONS, LONGEST, CONTROL], int)
    done = 0
    async for task in space.board(BOARD, Task).list():
        done += task.claim is not None and task.claim.done
    result = JobResult(
        outline=outline.value.sections if outline is not None else {},
        index=index,
        words=words.value if words.exists else 0,
        sections=sections.value if sections.exists else 0,
        longest=longest.value if longest.exists else 0,
    )
    return result, done, control.value if control.exists else 0


def cancel_on_sigterm() -> None:
    """Makes SIGTERM end the running task in order, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
