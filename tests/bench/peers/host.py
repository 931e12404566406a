"""A process of agents that use one product: obeys commands on stdin, and answers on stdout, a line of JSON each.

It runs in the environment of the product, so that nothing of a peer's comes near ours. Each answer has ``ok``, or
``error``; while agents play, what they log comes in between, as ``log``.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import traceback
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TextIO

from .adapter import Adapter, Place, Unsupported, settled
from .model import Thoughts
from .roles import Role
from .timing import time_calls

_LOCK = threading.Lock()


class _Lane:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class Host:
    """The commands; each method named ``do_…`` is one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._adapters: list[Adapter] = []
        self._lanes: list[_Lane] = []

    def do_open(self, adapter: str, place: Mapping[str, str], agents: list[str]) -> None:
        """Connects these agents, each with an adapter (``module:Class``) of its own."""
        module, _, name = adapter.partition(":")
        kind: type[Adapter] = getattr(importlib.import_module(module), name)
        common = _Lane()
        for agent in agents:
            self._adapters.append(kind(Place(**place), agent))
            self._lanes.append(common if kind.mode == "loop" else _Lane())
        self._everyone("open")

    def do_begin(self, space: str, prepare: bool) -> None:
        """Goes to the keys of another run; one process is told to prepare them."""
        self._everyone("begin", space)
        if prepare:
            self._lanes[0].start(_call(self._adapters[0], "prepare")).result()

    def do_call(self, method: str, args: list[Any]) -> Any:
        """Has the first agent do one thing, and returns the result."""
        return self._lanes[0].start(_call(self._adapters[0], method, *args)).result()

    def do_put(self, key: str, value: Any) -> None:
        """Has the first agent write a key."""
        self._lanes[0].start(self._adapters[0].put(key, value)).result()

    def do_play(self, scenario: str, seed: int, think_ms: float, options: Mapping[str, Any]) -> None:
        """Has all agents play a scenario to its end."""
        futures = []
        for adapter, lane in zip(self._adapters, self._lanes, strict=True):
            role = Role(adapter, Thoughts(seed, scenario, adapter.agent, think_ms), options, self._log)
            futures.append(lane.start(role.play(scenario)))
        for future in futures:
            future.result()

    def do_time(self, what: str, calls: int, value_bytes: int) -> Any:
        """Has all agents do one thing so many times at once, and returns how long each took; see ``timing``."""
        futures = [
            lane.start(time_calls(adapter, what, calls, value_bytes))
            for adapter, lane in zip(self._adapters, self._lanes, strict=True)
        ]
        return [future.result() for future in futures]

    def do_close(self) -> None:
        """Disconnects all agents."""
        self._everyone("close")
        self._adapters, self._lanes = [], []

    def _everyone(self, method: str, *args: Any) -> None:
        futures = [
            lane.start(_call(adapter, method, *args)) for adapter, lane in zip(self._adapters, self._lanes, strict=True)
        ]
        for future in futures:
            future.result()

    def _log(self, what: Mapping[str, Any]) -> None:
        self.answer({"log": what})

    def answer(self, line: Mapping[str, Any]) -> None:
        """Writes one line, at once: what a killed process has said before counts."""
        text = json.dumps(line)
        with _LOCK:
            self._out.write(text + "\n")
            self._out.flush()


async def _call(adapter: Adapter, method: str, *args: Any) -> Any:
    return await settled(getattr(adapter, method)(*args))


def main() -> None:
    """Obeys until stdin ends."""
    # Products print; what they say must not come between the lines.
    out, sys.stdout = sys.stdout, sys.stderr
    host = Host(out)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": getattr(host, f"do_{command.pop('do')}")(**command)}
        except Unsupported as error:
            answer = {"error": str(error), "unsupported": True}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": repr(error)[:1000], "unsupported": False}
        host.answer(answer)


if __name__ == "__main__":
    main()
