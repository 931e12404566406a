"""The story from beginning to end, against a running server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from noosphere.client import DeadlineExceeded, NoosphereError, Unavailable

from .cast import Cast, gather
from .conflict import be_refused, fall_behind
from .decision import think_twice
from .handover import hand_over
from .siblings import keep_both
from .telling import Account, Step, StepFailed


class _Scene(NamedTuple):
    name: str
    title: str
    play: Callable[[Cast, Step], Awaitable[None]]


SCENES = (
    _Scene("history", "Who had seen what", fall_behind),
    _Scene("conflict", "A write that had not seen everything, and its resolution", be_refused),
    _Scene("decision", "A decision whose grounds changed while it was being thought", think_twice),
    _Scene("handover", "Ben reads after Ada told Ben", hand_over),
    _Scene("siblings", "Two values kept, and joined", keep_both),
)


async def tell(server: str, *, tidy: Callable[[str], Awaitable[None]] | None = None) -> Account:
    """Plays the story; it ends where a line does not hold.

    Args:
        server: the server's address.
        tidy: called with the namespace at the end.

    Raises:
        NoosphereError: the server cannot be reached, or not in time, or refuses the agents.
    """
    started = time.monotonic()
    steps: list[Step] = []
    async with gather(server) as cast:
        try:
            for scene in SCENES:
                step = Step(scene.name, scene.title)
                steps.append(step)
                try:
                    await scene.play(cast, step)
                except StepFailed:
                    break
                except (Unavailable, DeadlineExceeded):
                    raise
                except NoosphereError as error:
                    step.failed(error)
                    break
        finally:
            if tidy is not None:
                await tidy(cast.namespace)
    missing = tuple(scene.name for scene in SCENES[len(steps) :])
    return Account(tuple(steps), missing, time.monotonic() - started)
