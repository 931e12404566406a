"""Asking again what may go well a little later."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...ports.models import ModelError
from ...ports.runtime import Clock

T = TypeVar("T")

ATTEMPTS_MAX = 3
_FIRST_PAUSE_SECONDS = 0.2
_GROWTH = 4


async def retried(call: Callable[[], Awaitable[T]], clock: Clock, rng: random.Random) -> T:
    """Makes a call up to three times, with pauses of about 0.2 and 0.8 s, each somewhat by chance.

    Raises:
        ModelError: the last attempt failed, or one did in a way that passes not by itself.
    """
    pause = _FIRST_PAUSE_SECONDS
    for left in reversed(range(ATTEMPTS_MAX)):
        try:
            return await call()
        except ModelError as error:
            if not left or not error.passing:
                raise
        # Many who failed together must not come back together.
        await clock.sleep(pause * (0.5 + rng.random()))
        pause *= _GROWTH
    raise AssertionError("the last attempt returns or raises")
