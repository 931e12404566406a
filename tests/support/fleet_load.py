"""Recorded clients that load a fleet whatever happens to it, and what must hold of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from tests.support.api import Api
from tests.support.worker import SPACE, Worker, prepare, recorded

from noosphere.client import AckedWritesLost, ClaimLost, Client, LimitExceeded
from noosphere.consistency import LostRange
from noosphere.server.checking import Verdict, check_history, collect_history, new_header, read_history

_LOOKS_MAX = 15_000
"""A bound against hanging, far above any outage that a test makes and what follows it."""

_EPOCHS_MAX = 1_000
"""The same of the epochs of a run."""


class FleetLoad:
    """Workers (see :mod:`tests.support.worker`), each a client of its own.

    Args:
        folder: where their journals go.
        servers: for each worker, the addresses that it may use, separated by commas.
        seed: decides who of those that are told of a loss writes again what was lost.

    Attributes:
        steps: what each worker has done.
        losses: for each worker and namespace, which revisions it was told are lost.
        resubmitted: writes that were written again.
        full: calls that were refused because the store was full.
    """

    def __init__(self, folder: Path, servers: Sequence[str], seed: int = 0) -> None:
        self._folder = folder
        self._servers = {f"worker-{number}": given for number, given in enumerate(servers)}
        self._names = list(self._servers)
        self._chance = random.Random(seed)
        self._stopping = False
        self.steps: Counter[str] = Counter(dict.fromkeys(self._names, 0))
        self.losses: dict[tuple[str, str], list[LostRange]] = defaultdict(list)
        self.resubmitted = 0
        self.full = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs for the length of the block; everybody then ends what it has begun, and looks once more."""
        async with recorded(self._servers[self._names[-1]], "setup", self._journal("setup")) as client:
            await prepare(client)
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(self._work(name))
            try:
                yield
            finally:
                self._stopping = True

    async def more(self, count: int) -> None:
        """Waits until all workers together have done so much more."""
        goal = self.steps.total() + count
        await self._until(lambda: self.steps.total() >= goal)

    async def refused(self, count: int) -> None:
        """Waits until so many more calls were refused because the store was full."""
        goal = self.full + count
        await self._until(lambda: self.full >= goal)

    async def everybody(self, count: int = 1) -> None:
        """Waits until each worker has done so much more: nobody was forgotten."""
        goals = {name: done + count for name, done in self.steps.items()}
        await self._until(lambda: all(self.steps[name] >= goal for name, goal in goals.items()))

    async def check(self, api: Api) -> Verdict:
        """Judges the whole history, by branches, and whether each worker was told of every loss of its own.

        Args:
            api: any replica.
        """
        own = [f"agents/{name}" for name in self._names]
        cuts = {}
        for namespace in (SPACE, *own):
            found = [(cut.epoch, cut.cut) for cut in (await api.get_namespace(namespace)).cuts]
            cuts[namespace] = found
        history = self._folder / "history.jsonl"
        journals = [self._journal(name) for name in ("setup", *self._names)]
        collect_history(journals, history, new_header(complete=(SPACE, *own), cuts=cuts))
        for call in read_history(history).calls:
            revision = call.applied.revision if call.applied is not None else 0
            lost = any(cut < revision <= epoch << 40 for epoch, cut in cuts.get(call.namespace, ()))
            if lost and call.process in self.steps:
                told = self.losses[call.process, call.namespace]
                assert any(loss.after < revision <= loss.through for loss in told), f"untold: {call.describe()}"
        return check_history(history)

    def _journal(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    async def _work(self, name: str) -> None:
        async with recorded(self._servers[name], name, self._journal(name)) as client:
            worker = Worker(client, name, steps_per_tally=400)
            while not self._stopping:
                await self._told(client, name, worker.step())
                self.steps[name] += 1
            # What nobody has presented nobody was told of: a causal read presents all that was seen, and is refused for
            # one epoch at a time.
            for space in (client.namespace(SPACE), client.private):
                for _ in range(_EPOCHS_MAX):
                    heard = len(self.losses[name, space.name])
                    await self._told(client, name, space.get("anything", consistency="causal"))
                    if len(self.losses[name, space.name]) == heard:
                        break
                else:
                    raise AssertionError(f"{name} is told of losses for ever: {self.losses[name, space.name]}")

    async def _told(self, client: Client, name: str, doing: Awaitable[object]) -> None:
        """Waits for a call, and takes note of the loss if it was refused for one."""
        try:
            await doing
        except LimitExceeded:
            self.full += 1
        except ClaimLost as ended:
            # A claim may be lost while nobody answers: whoever takes the task over goes on with it.
            if isinstance(ended.__cause__, AckedWritesLost):
                await self._lost(client, name, ended.__cause__)
        except AckedWritesLost as lost:
            await self._lost(client, name, lost)

    async def _lost(self, client: Client, name: str, lost: AckedWritesLost) -> None:
        for namespace, after, through in ((lost.namespace, lost.lost_after, lost.lost_through), *lost.others):
            self.losses[name, namespace].append(LostRange(after, through))
        if lost.own_writes and self._chance.random() < 0.5:
            with contextlib.suppress(AckedWritesLost, LimitExceeded):
                results = await client.resubmit(lost)
                self.resubmitted += sum(result.revision > 0 for result in results)
                for again in dict.fromkeys(result.error for result in results):
                    if isinstance(again, AckedWritesLost):
                        self.losses[name, again.namespace].append(LostRange(again.lost_after, again.lost_through))

    async def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(_LOOKS_MAX):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"the load does not go on: {dict(self.steps)}")
