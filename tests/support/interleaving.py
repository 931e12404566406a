"""Makes calls that run side by side in one process take turns, as they would with a store that is far away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.engine import LocalServer


def interleave(server: LocalServer, rng: random.Random) -> None:
    """Lets other calls run before each step of a call that asks the store for something.

    The embedded store answers most of what it is asked at once, so that calls which run side by side here would
    otherwise do so one after the other.
    """
    store = server.engine.store

    def yielding(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*args: Any, **kwargs: Any) -> Any:
            # Mostly a little, now and then so long that others get through everything they do.
            for _ in range(rng.randrange(4 if rng.random() < 0.9 else 40)):
                await asyncio.sleep(0)
            return await method(*args, **kwargs)

        return called

    for name in ("read", "scan", "commit", "stats"):
        setattr(store, name, yielding(getattr(store, name)))
