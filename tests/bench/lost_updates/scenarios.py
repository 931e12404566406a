"""The scenarios, as the harness directs them: it prepares keys, has the agents play, meddles, and looks at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.peers.group import Group, Log, PeerError
from tests.bench.peers.roles import BOARD, GUARD, PAD, PLAN
from tests.bench.peers.sites import Site

from .oracle import Played

LEASE_S = 1.0
"""The shortest that ours grants."""

_STOPPED_S = 1.6
_STOP_AFTER_S = 0.25
_TASK_TIMES = 8.0
_SLOW_TIMES = 5.0
_LOSE_MIN = 20
_LOSE_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is played.

    Attributes:
        edits: of the plan, by each agent.
        notes: by each agent.
        tasks: for each agent.
        decisions: by each agent.
        rounds: of late results, by each pair of agents.
        endured: notes by each agent while the store fails.
        scenario_seconds_max: longer ones of peers are cut off, or sooner where the whole comparison takes too long.
    """

    edits: int
    notes: int
    tasks: int
    decisions: int
    rounds: int
    endured: int
    scenario_seconds_max: float


FULL = Sizes(edits=3, notes=6, tasks=2, decisions=8, rounds=3, endured=20, scenario_seconds_max=15.0)
QUICK = Sizes(edits=2, notes=3, tasks=2, decisions=4, rounds=2, endured=15, scenario_seconds_max=15.0)

OURS_SECONDS_MAX = 60.0
"""A scenario of ours that is cut off is a missed gate, which a busy machine must not cause."""


class Director:
    """Directs one variant's agents.

    Args:
        group: them.
        site: what they use.
        sizes: how much is played.
        seed: decides the lengths of thoughts.
        think_ms: their median.
    """

    def __init__(self, group: Group, site: Site, sizes: Sizes, seed: int, think_ms: float) -> None:
        self._group = group
        self._site = site
        self._sizes = sizes
        self._seed = seed
        self._think_ms = think_ms
        self._logs: list[Log] = []
        self._acked = self._awaited = 0
        self._limit_s = OURS_SECONDS_MAX if group.variant.ours else sizes.scenario_seconds_max
        self._reached = asyncio.Event()

    async def play(self, scenario: str, limit_s: float | None = None) -> Played:
        """Plays a scenario on fresh keys, for ``limit_s`` at most if that is given.

        Raises:
            PeerError: the product, or its adapter, has failed.
        """
        self._limit_s = limit_s or self._limit_s
        self._logs = []
        self._acked = 0
        await self._group.begin(f"run-{scenario}")
        play: Callable[[], Any] = getattr(self, f"_{scenario}")
        played: Played = await play()
        return played

    async def _plan(self) -> Played:
        why = await self._act("plan", {"each": self._sizes.edits})
        return self._played("plan", why, items=await self._group.call("items", PLAN))

    async def _notes(self) -> Played:
        why = await self._act("notes", {"each": self._sizes.notes})
        return self._played("notes", why, items=await self._group.call("items", PAD))

    async def _tasks(self) -> Played:
        tasks = [f"task-{number:03}" for number in range(self._sizes.tasks * len(self._group.agents))]
        await self._group.call("post", BOARD, tasks)
        options = {"tasks": tasks, "lease_s": LEASE_S, "times": _TASK_TIMES}
        stopping = asyncio.create_task(self._stop_one_process())
        try:
            why = await self._act("tasks", options)
        finally:
            await stopping
        values = {task: await self._group.call("finished", BOARD, task) for task in tasks}
        return self._played("tasks", why, values=values, tasks=len(tasks), lease_s=LEASE_S)

    async def _stop_one_process(self) -> None:
        """Agents that stand still for longer than their lease, and then go on as if nothing had been."""
        await asyncio.sleep(_STOP_AFTER_S)
        process = self._group.processes[-1]
        process.pause()
        try:
            await asyncio.sleep(_STOPPED_S)
        finally:
            process.resume()

    async def _decide(self) -> Played:
        await self._group.put(GUARD, {"revision": 1})
        changer, *deciders = self._group.agents
        changes = 2 * self._sizes.decisions
        why = await self._act("decide", {"each": self._sizes.decisions, "changer": changer, "changes": changes})
        targets = [f"next/{agent}" for agent in deciders]
        values = {target: await self._group.call("get", target) for target in targets}
        return self._played("decide", why, values=values)

    async def _late(self) -> Played:
        agents = self._group.agents
        pairs = [(slow, quick) for slow, quick in zip(agents[::2], agents[1::2], strict=False)]
        parts = {agent: {"pair": agent, "slow": True} for agent in agents}
        for slow, quick in pairs:
            parts[quick] = {"pair": slow, "slow": False}
        calls = [f"{agent}-{number}" for agent in agents[::2] for number in range(self._sizes.rounds)]
        for call in calls:
            await self._group.put(f"{GUARD}/{call}", {"revision": 1})
        times = {"start": time.monotonic() + 0.1, "slot_s": 2 * _SLOW_TIMES * self._think_ms / 1e3}
        why = await self._act("late", {"each": self._sizes.rounds, "parts": parts, "slow": _SLOW_TIMES, **times})
        values = {f"result/{call}": await self._group.call("get", f"result/{call}") for call in calls}
        return self._played("late", why, values=values)

    async def _failover(self) -> Played:
        options: dict[str, Any] = {"each": self._sizes.endured, "from": {}}
        playing = asyncio.create_task(self._act("failover", options))
        try:
            await self._acks(self._sizes.endured * len(self._group.agents) // 4, playing)
            await self._site.prepare_failure()
            await self._acks(self._acked + _LOSE_MIN, playing)
            died = await self._site.fail(self._group)
            why = await playing
        finally:
            playing.cancel()
        if died:
            options["from"] = {agent: self._tried(agent) for agent in self._group.agents}
            await self._group.start()
            await self._group.begin("run-failover", prepare=False)
            why = await self._act("failover", options)
        return self._played("failover", why, items=await self._group.call("items", PAD))

    async def _acks(self, count: int, playing: asyncio.Task[str]) -> None:
        """Waits for so many acknowledgements, or until there is nothing more to wait for."""
        self._awaited, reached = count, self._reached
        reached.clear()
        self._look()
        waiting = asyncio.create_task(reached.wait())
        try:
            await asyncio.wait([waiting, playing], timeout=_LOSE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _log(self, log: Log) -> None:
        self._logs.append(log)
        self._acked += "acked" in log
        self._look()

    def _look(self) -> None:
        if self._acked >= self._awaited:
            self._reached.set()

    def _tried(self, agent: str) -> int:
        """How many notes an agent has begun: the last one may have died with it."""
        found: int = 1 + sum(log["agent"] == agent and ("acked" in log or "failed" in log) for log in self._logs)
        return found

    async def _act(self, scenario: str, options: Log) -> str:
        """Has the agents play; returns why that ended early, empty if it did not."""
        until = time.monotonic() + self._limit_s
        timed = {**options, "until": until}
        try:
            await self._group.play(scenario, self._seed, self._think_ms, timed, self._log)
        except PeerError as error:
            if scenario != "failover":
                raise
            return str(error)
        return f"cut off after {self._limit_s:.0f} s" if time.monotonic() > until else ""

    def _played(self, scenario: str, why: str, **found: Any) -> Played:
        return Played(scenario, len(self._group.agents), tuple(self._logs), not_run=why, **found)
