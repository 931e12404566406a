"""How long a product takes for single things: timed beside the adapter, without the pipe to whoever asks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .adapter import Adapter

BATCH_KEYS = 100
KINDS = ("get", "put", "append", "watch", "rmw", "batch")
"""In the order in which they are measured: who takes too long for one is not asked for those after it."""

_WATCH_SECONDS_MAX = 10.0


async def time_calls(adapter: Adapter, what: str, calls: int, value_bytes: int) -> dict[str, Any]:
    """Does one thing so many times, one after the other.

    Args:
        adapter: the agent's.
        what: one of ``KINDS``: ``get`` a key of the agent's own, ``put`` it, ``append`` an item to a list of its own,
            ``rmw`` a counter that all agents share, ``watch`` how long a change takes to a watcher in this agent,
            ``batch`` of 100 keys.
        calls: how often.
        value_bytes: the size of a value; an item of a list is an eighth of it.

    Returns:
        ``began`` and ``ended``, in seconds of the monotonic clock, and ``ns``, the length of each in nanoseconds.
    """
    text = "x" * (value_bytes - 2)
    key = f"timed/{adapter.agent}"
    if what in ("get", "watch"):
        await adapter.put(key, text)
    elif what == "append":
        text = "x" * (value_bytes // 8)
    if what == "watch":
        return await _watched(adapter, key, calls, value_bytes)
    lengths_ns: list[int] = []
    began = time.monotonic()
    for number in range(calls):
        start = time.perf_counter_ns()
        match what:
            case "get":
                found = await adapter.get(key)
                if found != text:
                    raise ValueError(f"{key}: is not what was put there")
            case "put":
                await adapter.put(key, f"{number:06}{text[6:]}")
            case "append":
                await adapter.note(f"timed/list/{adapter.agent}", text)
            case "rmw":
                await adapter.change("timed/shared", _plus_one)
            case "batch":
                values = {f"timed/batch/{adapter.agent}/{index}": text for index in range(BATCH_KEYS)}
                await adapter.batch(values)
            case _:
                raise ValueError(f"{what}: is none of {', '.join(KINDS)}")
        lengths_ns.append(time.perf_counter_ns() - start)
    return {"began": began, "ended": time.monotonic(), "ns": lengths_ns}


async def _plus_one(value: Any) -> Any:
    return (value or 0) + 1


async def _watched(adapter: Adapter, key: str, calls: int, value_bytes: int) -> dict[str, Any]:
    """Times from before a put until the agent's own watch has shown it."""
    changes = adapter.watch(key)
    lengths_ns: list[int] = []
    try:
        async with asyncio.timeout(_WATCH_SECONDS_MAX):
            await anext(changes)
        began = time.monotonic()
        for number in range(calls):
            text = f"{number:06}".ljust(value_bytes - 2, "x")
            start = time.perf_counter_ns()
            async with asyncio.timeout(_WATCH_SECONDS_MAX):
                await adapter.put(key, text)
                while await anext(changes) != text:
                    pass
            lengths_ns.append(time.perf_counter_ns() - start)
    finally:
        await changes.aclose()  # type: ignore[attr-defined] # Adapters write generators.
    return {"began": began, "ended": time.monotonic(), "ns": lengths_ns}
