"""No way out: inside a simulation time, chance and threads are the seed's, whichever library asks for them.

What the program takes from its surroundings comes through its seams (see ``ports.runtime``). Libraries have none:
those that ask for the time get the virtual one, those that ask for randomness get the seed's. What no seed could
decide fails: a thread, a socket, a generator that seeds itself from the machine, and our own code wherever it goes
past a seam.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .loop import SimLoop

WALL_SECONDS = 1_800_000_000.0
"""What the wall clock of a world is ahead of its monotonic one, about; nothing may depend on it."""

_OURS = "noosphere."
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@contextmanager
def sealed(loop: SimLoop) -> Iterator[None]:
    """Seals the calling thread's surroundings off for the length of the block. Other threads notice nothing."""
    inside = threading.get_ident()
    entropy = loop.chance("entropy")
    kept = random.getstate()
    undo: list[Callable[[], None]] = []

    def replace(owner: Any, name: str, new: Callable[[Any], Any]) -> None:
        old = getattr(owner, name)
        setattr(owner, name, new(old))
        undo.append(lambda: setattr(owner, name, old))

    def here() -> bool:
        return threading.get_ident() == inside

    def clock(name: str) -> Callable[[Any], Any]:
        def sealing(real: Any) -> Any:
            def now() -> float | int:
                if not here():
                    answer: float | int = real()
                    return answer
                caller = sys._getframe(1).f_globals.get("__name__", "")
                if caller.startswith(_OURS):
                    raise loop.escaped(f"{caller} asks time.{name}")
                seconds = loop.time() + (WALL_SECONDS if name.startswith("time") else 0)
                return round(seconds * 1e9) if name.endswith("_ns") else seconds

            return now

        return sealing

    def drawn(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        return lambda count: entropy.randbytes(count) if here() else real(count)

    def failing(what: str) -> Callable[[Any], Any]:
        def sealing(real: Any) -> Any:
            def fail(*args: Any, **options: Any) -> Any:
                if not here():
                    return real(*args, **options)
                raise loop.escaped(what)

            return fail

        return sealing

    def seeded(real: Any) -> Any:
        def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None and here():
                raise loop.escaped("a generator seeds itself from the machine")
            real(self, a, version)

        return seed

    # What runs off the loop may sleep: it takes as long as the seed decides anyway.
    awake = failing("the event loop sleeps")
    random.seed(f"{loop.seed}/module")
    for name in _CLOCKS:
        replace(time, name, clock(name))
    replace(os, "urandom", drawn)
    # What `secrets` and `random.SystemRandom` draw from.
    replace(random, "_urandom", drawn)
    replace(random.Random, "seed", seeded)
    replace(threading.Thread, "start", failing("a thread is started"))
    replace(time, "sleep", lambda real: lambda seconds: None if here() and loop.blocking else awake(real)(seconds))
    replace(socket, "socket", failing("a socket is made"))
    try:
        yield
    finally:
        for again in reversed(undo):
            again()
        random.setstate(kept)


def sim_loop() -> SimLoop:
    """Returns the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "only inside a simulation"
    return loop
