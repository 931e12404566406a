"""The process of one caller of the sync client, a process of its own because each event loop costs gRPC's others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from noosphere.client.sync import Client, Key, Record, connect

from .commands import WrongAnswer, main, obey
from .profiling import Window
from .stats import percentile
from .workloads import CALL_TIMEOUT, KEYS_PER_CALLER, NAMESPACE, key_of, value_of


class Threads:
    """The commands; each is carried out in a thread without an event loop."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._client: Client | None = None
        self._records: list[Record[Any]] = []
        self._keys: list[Key[Any]] = []
        self._written = 0
        self._window = Window()

    async def open(self, address: str, name: str) -> dict[str, Any]:
        """Connects, and writes every key once."""
        await asyncio.to_thread(self._open, address, name)
        return {}

    async def run(self, work: str, calls: int) -> dict[str, Any]:
        """Makes calls one after the other; ``work`` is get or put."""
        return await asyncio.to_thread(self._get if work == "get" else self._put, calls)

    async def close(self) -> dict[str, Any]:
        """Closes the client."""
        await asyncio.to_thread(self._stack.close)
        return {}

    async def profile_begin(self) -> dict[str, Any]:
        """Profiles the client's loop thread from now on."""

        async def begin() -> None:
            self._window.begin()

        await asyncio.to_thread(self._portal.run, begin)
        return {}

    async def profile_end(self) -> dict[str, Any]:
        """Returns what was recorded."""

        async def end() -> dict[str, Any]:
            return self._window.end()

        return await asyncio.to_thread(self._portal.run, end)

    @property
    def _portal(self) -> Any:
        assert self._client is not None
        return self._client._portal

    def _open(self, address: str, name: str) -> None:
        self._client = self._stack.enter_context(
            connect(address, agent=f"bench/{name}", takeover=True, timeout=CALL_TIMEOUT)
        )
        space = self._client.namespace(NAMESPACE)
        self._keys = [space.key(f"{name}/{key_of(0, slot)}") for slot in range(KEYS_PER_CALLER)]
        self._records = [key.put(self._next(), expected_version=0) for key in self._keys]

    def _get(self, calls: int) -> dict[str, Any]:
        latencies_ns: list[int] = []
        cpu, begun = time.process_time(), time.perf_counter()
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            start = time.perf_counter_ns()
            record = self._keys[slot].get()
            latencies_ns.append(time.perf_counter_ns() - start)
            if record is None or record.value != self._records[slot].value:
                raise WrongAnswer(f"{self._keys[slot].name!r} was read with another value than was written")
        return _figures(latencies_ns, time.perf_counter() - begun, time.process_time() - cpu)

    def _put(self, calls: int) -> dict[str, Any]:
        latencies_ns: list[int] = []
        cpu, begun = time.process_time(), time.perf_counter()
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            value, before = self._next(), self._records[slot]
            start = time.perf_counter_ns()
            record = before.replace(value)
            latencies_ns.append(time.perf_counter_ns() - start)
            if (record.version or 0) <= (before.version or 0):
                raise WrongAnswer(f"version {record.version} does not follow {before.version}")
            self._records[slot] = record
        return _figures(latencies_ns, time.perf_counter() - begun, time.process_time() - cpu)

    def _next(self) -> Any:
        self._written += 1
        return json.loads(value_of(700_000_000_000 + self._written))


def _figures(latencies_ns: list[int], seconds: float, cpu_s: float) -> dict[str, Any]:
    return {
        "calls": len(latencies_ns),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "mean_us": sum(latencies_ns) / len(latencies_ns) / 1e3,
        "p50_ms": percentile(latencies_ns, 0.5) / 1e6,
        "p99_ms": percentile(latencies_ns, 0.99) / 1e6,
    }


async def run() -> None:
    threads = Threads()
    await obey({name: getattr(threads, name) for name in ("open", "run", "close", "profile_begin", "profile_end")})


if __name__ == "__main__":
    main(run)
