"""What one agent does in each scenario. It runs beside the adapter, and says what it has seen happen.

What it says is the log that is judged: ids that the product has acknowledged, what a model was shown and when, and
which task was begun. Times are those of the system's one monotonic clock, in seconds, so that the logs of several
processes can be put in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .adapter import Adapter
from .model import Thoughts

Say = Callable[[Mapping[str, Any]], None]

PLAN, PAD, BOARD, GUARD = "plan", "pad", "board", "goal"
_IDLE_S = 0.02
_AFTER_FAILURE_S = 0.1


class TimeUp(Exception):
    """A scenario takes too long; whoever wants to think is told to stop."""


class Role:
    """One agent in one run.

    Args:
        adapter: its way to the product.
        thoughts: its model.
        options: of the run; see the scenarios.
        say: takes what is logged.
    """

    def __init__(self, adapter: Adapter, thoughts: Thoughts, options: Mapping[str, Any], say: Say) -> None:
        self._adapter = adapter
        self._thoughts = thoughts
        self._options = options
        self._agent = adapter.agent
        self._calls = 0
        self._told = 0
        self._say_line = say

    async def play(self, scenario: str) -> None:
        """Plays its part to the end, or until its time is up."""
        part = {
            "plan": self._edits,
            "notes": self._notes,
            "tasks": self._tasks,
            "decide": self._decides,
            "late": self._late,
            "failover": self._endures,
        }[scenario]
        with contextlib.suppress(TimeUp):
            await part()

    async def _edits(self) -> None:
        for number in range(self._options["each"]):
            item = f"{self._agent}-{number}"

            async def think(_: Any, item: str = item) -> str:
                await self._think()
                return item

            await self._committed(item, partial(self._adapter.edit, PLAN, think))

    async def _notes(self) -> None:
        for number in range(self._options["each"]):
            item = f"{self._agent}-{number}"
            await self._think()
            await self._committed(item, partial(self._adapter.note, PAD, item))

    async def _endures(self) -> None:
        """Takes notes, come what may; what was not acknowledged is not written again."""
        for number in range(self._options["from"].get(self._agent, 0), self._options["each"]):
            item = f"{self._agent}-{number}"
            await self._think()
            if not await self._committed(item, lambda item=item: self._adapter.note(PAD, item)):  # type: ignore[misc] # As above.
                await asyncio.sleep(_AFTER_FAILURE_S)
        await self._adapter.settle()
        self._tell()

    async def _tasks(self) -> None:
        tasks: list[str] = self._options["tasks"]
        # Agents that all look at the same task first would only measure that.
        first = sum(map(ord, self._agent)) % len(tasks)
        left = tasks[first:] + tasks[:first]
        while left and time.monotonic() < self._options["until"]:
            task, accepted = await self._take(left)
            if accepted:
                left.remove(task)
            elif not task:
                left = [task for task in left if not await self._adapter.finished(BOARD, task)]
                await asyncio.sleep(_IDLE_S)

    async def _take(self, left: list[str]) -> tuple[str, bool]:
        """Returns which task was taken, empty if there was none, and whether the product takes it for done."""
        began: dict[str, Any] = {"asked": time.monotonic()}

        async def perform(task: str) -> None:
            began.update(task=task, at=time.monotonic())
            self._say({"begun": task, **began})
            await self._think(self._options["times"])

        accepted, error = False, ""
        try:
            accepted = bool(await self._adapter.take(BOARD, left, self._options["lease_s"], perform))
        except Exception as failure:
            error = repr(failure)[:300]
            await asyncio.sleep(_IDLE_S)
        if "task" in began:
            self._say(
                {"ended": began["task"], **began, "until": time.monotonic(), "accepted": accepted, "error": error}
            )
        return began.get("task", ""), accepted

    async def _decides(self) -> None:
        if self._agent == self._options["changer"]:
            await self._changes()
            return
        for number in range(self._options["each"]):
            await self._decision(f"{self._agent}-{number}", f"next/{self._agent}", self._adapter.decide, again=True)

    async def _changes(self) -> None:
        """Changes what all others decide on, until they are done."""
        for revision in range(2, self._options["changes"] + 2):
            await self._think()
            await self._change(GUARD, revision)

    async def _change(self, guard: str, revision: int) -> None:
        async def next_one(_: Any) -> Any:
            return {"revision": revision}

        began = time.monotonic()
        try:
            await self._adapter.change(guard, next_one)
        except Exception as error:
            failed = {"began": began, "at": time.monotonic(), "calls": 0, "error": repr(error)[:300]}
            self._say({"failed": f"{guard}-{revision}", **failed})
            return
        self._say({"changed": guard, "revision": revision, "began": began, "at": time.monotonic()})

    async def _late(self) -> None:
        """A slow call of a tool, or what overtakes it: the goal is changed, and the tool called for the new one."""
        part = self._options["parts"][self._agent]
        for round_ in range(self._options["each"]):
            # Rounds begin together, so that the slow call is under way when the goal changes.
            begins = self._options["start"] + round_ * self._options["slot_s"]
            await asyncio.sleep(max(begins - time.monotonic(), 0.0))
            call = f"{part['pair']}-{round_}"
            if part["slow"]:
                await self._decision(f"{call}-slow", f"result/{call}", self._adapter.late, times=self._options["slow"])
            else:
                await self._think()
                await self._change(f"{GUARD}/{call}", 2)
                await self._decision(f"{call}-quick", f"result/{call}", self._adapter.decide, again=True)

    async def _decision(self, item: str, target: str, decide: Any, times: float = 1.0, **how: Any) -> None:
        guard = GUARD if target.startswith("next/") else f"{GUARD}/{target.partition('/')[2]}"
        seen: dict[str, Any] = {}

        async def think(value: Any) -> Any:
            seen.update(revision=value["revision"], looked=time.monotonic())
            await self._think(times)
            seen["thought"] = time.monotonic()
            self._say({"considered": guard, "item": item, **seen})
            return {"item": item, "revision": seen["revision"]}

        async def commit() -> bool:
            written: bool = await decide(guard, target, think, **how)
            return written

        await self._committed(item, commit, {"guard": guard, "target": target}, seen)

    async def _think(self, times: float = 1.0) -> None:
        if time.monotonic() > self._options["until"]:
            raise TimeUp("the scenario's time is up")
        self._calls += 1
        await asyncio.sleep(self._thoughts.next_s() * times)

    async def _committed(
        self, item: str, commit: Callable[[], Any], more: Mapping[str, Any] | None = None, seen: Any = None
    ) -> bool:
        before, began = self._calls, time.monotonic()
        try:
            accepted = await commit() is not False
        except Exception as error:
            said = {"began": began, "at": time.monotonic(), "calls": self._calls - before, "error": repr(error)[:300]}
            self._say({"failed": item, **said})
            return False
        finally:
            self._tell()
        said = {"began": began, "at": time.monotonic(), "calls": self._calls - before, **(more or {}), **(seen or {})}
        self._say({"acked" if accepted else "dropped": item, **said})
        return accepted

    def _tell(self) -> None:
        """Says what the product has told to be lost since the last time."""
        for item in self._adapter.told[self._told :]:
            self._say({"told": item})
        self._told = len(self._adapter.told)

    def _say(self, what: Mapping[str, Any]) -> None:
        self._say_line({"agent": self._agent, **what})
