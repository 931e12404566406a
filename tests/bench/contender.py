"""One of many processes that change the same key: through our server, or through redis-py at Redis itself."""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from typing import Any

from noosphere.client import Conflict, Key, connect

from .commands import WrongAnswer, main, obey
from .stats import percentile
from .workloads import CALL_TIMEOUT, NAMESPACE, value_of

KEY = "contended"
COUNTER = "counted"
_ATTEMPTS_MAX = 10_000
"""Of one change; only a server that lets nobody through needs so many."""


class Contender:
    """The commands. A change reads a number, and writes the next one in place of what it has read."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._key: Key[Any]
        self._counter: Key[Any]
        self._redis: Any = None
        self._watch_error: type[Exception] = Exception

    async def open(self, number: int, address: str, port: int) -> dict[str, Any]:
        """Connects to our server as an agent of its own, and to Redis; the first one writes what all begin with."""
        client = await self._stack.enter_async_context(
            connect(address, agent=f"bench/contender-{number:02d}", takeover=True, timeout=CALL_TIMEOUT)
        )
        self._key, self._counter = (client.namespace(NAMESPACE).key(name) for name in (KEY, COUNTER))
        # Imported here: without redis-py nobody runs this, but it is looked at by tools.
        redis = importlib.import_module("redis")
        self._watch_error = redis.WatchError
        self._redis = redis.Redis(host="127.0.0.1", port=port)
        if number == 0:
            await self._key.put(_value(0), expected_version=0)
            await self._counter.increment(0)
            self._redis.set(KEY, value_of(0))
        return {"version": redis.__version__}

    async def update(self, seconds: float, reserve: str) -> dict[str, Any]:
        """Changes the key through our server for so long, as an agent does who has to see it first."""
        tally = _Tally()

        def following(value: Any, conflict: Conflict[Any] | None) -> Any:
            tally.attempts += 1
            return _value(int(value["n"]) + 1)

        while tally.seconds < seconds:
            start = time.perf_counter_ns()
            await self._key.update(following, attempts=_ATTEMPTS_MAX, reserve=reserve)  # type: ignore[arg-type] # One of its words.
            tally.done(start)
        return tally.figures()

    async def increment(self, seconds: float) -> dict[str, Any]:
        """Changes the counter through our server for so long, by operations, which always apply."""
        tally = _Tally()
        while tally.seconds < seconds:
            start = time.perf_counter_ns()
            await self._counter.increment()
            tally.attempts += 1
            tally.done(start)
        return tally.figures()

    async def theirs(self, seconds: float) -> dict[str, Any]:
        """Changes the key at Redis for so long; nothing else runs in this process meanwhile."""
        tally = _Tally()
        with self._redis.pipeline() as pipe:
            while tally.seconds < seconds:
                start = time.perf_counter_ns()
                for _ in range(_ATTEMPTS_MAX):
                    tally.attempts += 1
                    pipe.watch(KEY)
                    # Only the number is looked at: that costs less than reading JSON.
                    number = int(pipe.get(KEY)[6:18])
                    pipe.multi()
                    pipe.set(KEY, value_of(number + 1))
                    try:
                        pipe.execute()
                        break
                    except self._watch_error:
                        continue
                else:
                    raise WrongAnswer(f"a change was not made in {_ATTEMPTS_MAX} attempts")
                tally.done(start)
        return tally.figures()

    async def counted(self) -> dict[str, Any]:
        """Returns what was counted: by updates, by increments, and at Redis."""
        record, counter = await self._key.read(), await self._counter.read()
        number = int(self._redis.get(KEY)[6:18])
        return {"update": int(record.value["n"]), "increment": int(counter.value), "theirs": number}

    async def close(self) -> dict[str, Any]:
        """Disconnects."""
        await self._stack.aclose()
        self._redis.close()
        return {}


class _Tally:
    def __init__(self) -> None:
        self.attempts = 0
        self._latencies_ns: list[int] = []
        self._cpu, self._start = time.process_time(), time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def done(self, start_ns: int) -> None:
        self._latencies_ns.append(time.perf_counter_ns() - start_ns)

    def figures(self) -> dict[str, Any]:
        found = self._latencies_ns
        return {
            "commits": len(found),
            "attempts": self.attempts,
            "seconds": self.seconds,
            "cpu_s": time.process_time() - self._cpu,
            "p50_ms": percentile(found, 0.5) / 1e6,
            "p99_ms": percentile(found, 0.99) / 1e6,
        }


def _value(number: int) -> Any:
    return json.loads(value_of(number))


async def run() -> None:
    contender = Contender()
    await obey(
        {name: getattr(contender, name) for name in ("open", "update", "increment", "theirs", "counted", "close")}
    )


if __name__ == "__main__":
    main(run)
