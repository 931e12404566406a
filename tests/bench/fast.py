"""The process of callers that share one client: coalesced and unary calls, a near cache, and redis-py beside it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

from noosphere.client import NearCache, Record, connect

from .commands import WrongAnswer, main, obey
from .profiling import Window
from .stats import percentile
from .through_client import ClientTarget
from .workloads import CALL_TIMEOUT, NAMESPACE, run_together, value_of

_BURST = 1_000
"""Reads between two turns of the event loop, in which the cache hears what was written."""

_PACED_KEY = "paced"
_CONNECT_SECONDS_MAX = 10.0
_CONNECT_PAUSE = 0.02


class Fast:
    """The commands."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._clients: dict[str, ClientTarget] = {}
        self._cache: NearCache | None = None
        self._redis: Any = None
        self._window: Window | None = None
        self._writing: asyncio.Task[None] | None = None
        self._acked_ns: list[int] = []

    async def open(self, name: str, address: str, callers: int, coalesce: bool) -> dict[str, Any]:
        """Connects a client for so many concurrent callers, who write their keys once."""
        self._clients[name] = await ClientTarget.open(address, callers, None, name=name, coalesce=coalesce)
        return {}

    async def run(self, name: str, work: str, calls: int) -> dict[str, Any]:
        """Runs every caller of a client concurrently; ``work`` is get or put."""
        callers = self._clients[name].callers
        sample = await run_together(
            [lambda own, caller=caller: getattr(caller, work)(calls, own) for caller in callers]  # type: ignore[misc] # bound per step
        )
        if sample.calls != calls * len(callers):
            raise WrongAnswer(f"{sample.calls} calls were answered instead of {calls * len(callers)}")
        return {
            "calls": sample.calls,
            "seconds": sample.seconds,
            "cpu_s": sample.generator_cpu_s,
            "mean_us": sum(sample.latencies_ns) / sample.calls / 1e3,
            "p50_ms": percentile(sample.latencies_ns, 0.5) / 1e6,
            "p99_ms": percentile(sample.latencies_ns, 0.99) / 1e6,
        }

    async def close(self, name: str) -> dict[str, Any]:
        """Reads back what every caller of a client wrote last, and closes it."""
        client = self._clients.pop(name)
        await client.verify()
        await client.close()
        return {}

    async def write_start(self, address: str, per_second: float) -> dict[str, Any]:
        """Begins to write one key at a steady pace, numbers that rise by one."""
        self._acked_ns = []
        begun = asyncio.Event()
        self._writing = asyncio.create_task(self._write(address, per_second, begun))
        await begun.wait()
        return {}

    async def write_stop(self) -> dict[str, Any]:
        """Stops; returns the monotonic time at which each number was acknowledged."""
        assert self._writing is not None
        if self._writing.done():
            self._writing.result()
        self._writing.cancel()
        await asyncio.wait([self._writing])
        return {"acked_ns": self._acked_ns}

    async def _write(self, address: str, per_second: float, begun: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        async with connect(address, agent="bench/paced", takeover=True, timeout=CALL_TIMEOUT) as client:
            space = client.namespace(NAMESPACE)
            record = await space.put(_PACED_KEY, _paced(0), blind=True)
            self._acked_ns.append(time.monotonic_ns())
            begun.set()
            start = loop.time()
            while True:
                await asyncio.sleep(max(0.0, start + len(self._acked_ns) / per_second - loop.time()))
                record = await record.replace(_paced(len(self._acked_ns)))
                self._acked_ns.append(time.monotonic_ns())

    async def cache_open(self, address: str) -> dict[str, Any]:
        """Opens a near cache on the writer's namespace."""
        client = await self._stack.enter_async_context(
            connect(address, agent="bench/cached", takeover=True, timeout=CALL_TIMEOUT)
        )
        self._cache = await self._stack.enter_async_context(client.namespace(NAMESPACE).cached())
        return {"records": len(self._cache)}

    async def cache_read(self, kind: str, reads: int) -> dict[str, Any]:
        """Reads the writer's key over and over; ``kind`` is raw, record or value (fresh JSON).

        The time is that of everything: the reads, and the turns in which the cache takes what was written.
        """
        cache = self._cache
        assert cache is not None
        reads_by_kind: dict[str, Callable[[str], Any]] = {"raw": cache.raw, "record": cache.get, "value": cache.value}
        read = reads_by_kind[kind]
        last_seen: dict[int, int] = {}
        done, cpu, start = 0, time.process_time(), time.perf_counter()
        while done < reads:
            for _ in range(_BURST):
                found = read(_PACED_KEY)
            done += _BURST
            # Looked at once a burst: a value that is shown at the end of it was shown all along, or came within it.
            last_seen[_number_of(found)] = time.monotonic_ns()
            await asyncio.sleep(0)
        seconds = time.perf_counter() - start
        numbers = list(last_seen)
        if numbers != sorted(numbers):
            raise WrongAnswer("the cache showed an older value after a newer one")
        return {
            "calls": done,
            "seconds": seconds,
            "cpu_s": time.process_time() - cpu,
            "last_seen_ns": list(last_seen.items()),
        }

    async def redis_open(self, port: int) -> dict[str, Any]:
        """Connects redis-py once a server listens on the port; writes the key that is read."""
        # Imported here: a benchmark without Redis needs neither package.
        redis = importlib.import_module("redis.asyncio")
        parser = importlib.import_module("redis._parsers.hiredis")
        pool = redis.ConnectionPool(host="127.0.0.1", port=port, max_connections=1)
        self._redis = redis.Redis(connection_pool=pool)
        end = time.monotonic() + _CONNECT_SECONDS_MAX
        while True:
            try:
                await self._redis.set(_PACED_KEY, value_of(0))
                break
            except redis.ConnectionError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(_CONNECT_PAUSE)
        (connection,) = pool._available_connections
        if not isinstance(connection._parser, parser._AsyncHiredisParser):
            raise WrongAnswer("redis-py does not parse with hiredis, so it cannot be compared")
        return {"version": importlib.import_module("redis").__version__}

    async def redis_get(self, calls: int) -> dict[str, Any]:
        """Gets the key, one call after the other on one connection."""
        get, want = self._redis.get, value_of(0)
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(calls):
            if await get(_PACED_KEY) != want:
                raise WrongAnswer("Redis returned another value than was written")
        return {"calls": calls, "seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}

    async def shut(self) -> dict[str, Any]:
        """Closes the cache and the connection to Redis."""
        await self._stack.aclose()
        if self._redis is not None:
            await self._redis.aclose()
        return {}

    async def profile_begin(self) -> dict[str, Any]:
        """Profiles this process from now on."""
        self._window = Window()
        self._window.begin()
        return {}

    async def profile_end(self) -> dict[str, Any]:
        """Returns what was recorded."""
        assert self._window is not None
        return self._window.end()


def _paced(number: int) -> Any:
    return json.loads(value_of(number))


def _number_of(found: Any) -> int:
    if isinstance(found, bytes):
        found = json.loads(found)
    elif isinstance(found, Record):
        found = found.value
    return int(found["n"])


async def run() -> None:
    fast = Fast()
    names = ("open", "run", "close", "write_start", "write_stop", "cache_open", "cache_read")
    more = ("redis_open", "redis_get", "shut", "profile_begin", "profile_end")
    await obey({name: getattr(fast, name) for name in (*names, *more)})


if __name__ == "__main__":
    main(run)
