"""What goes wrong in the same way in every world: one fault after the other, partitions, and bad weather."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from .network import Network, Weather

Fault = Callable[[Sequence[str]], Awaitable[None]]
"""Has something go wrong, given the agents' names; returns when it is over."""


async def one_after_the_other(
    faults: Sequence[tuple[int, Fault]], network: Network, rng: random.Random, seconds: float, agents: Sequence[str]
) -> None:
    """Has faults happen for some time, each as often as its weight says."""
    loop = network.loop
    ends = loop.time() + seconds
    while loop.time() < ends:
        await asyncio.sleep(rng.uniform(0.2, 2.5))
        [(_, fault)] = rng.choices(faults, [weight for weight, _ in faults])
        loop.trace("fault", fault.__name__)
        await fault(agents)


async def part(
    network: Network,
    rng: random.Random,
    agents: Sequence[str],
    server: Callable[[], str],
    seconds_max: Sequence[float],
) -> None:
    """Cuts some agents off, each from the server that is named then, in one direction or both, for some time."""
    for agent in rng.sample(agents, rng.randint(1, len(agents))):
        ends = [agent, server()]
        rng.shuffle(ends)
        network.cut(*ends, both=rng.random() < 0.6)
    await asyncio.sleep(rng.choice(seconds_max) * rng.random())
    network.heal()


async def blow(network: Network, rng: random.Random, weather: Weather) -> None:
    """Has the weather be bad for some time."""
    network.weather = weather
    await asyncio.sleep(rng.uniform(0.5, 4.0))
    network.weather = Weather()
