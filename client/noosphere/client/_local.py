"""Servers of tests in this process: what clients that connect to one of them live by.

``noosphere.testing`` registers its server's address here, and ``connect`` looks there. So the code under
test connects exactly as it does in production, and still follows the time of the test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from ._retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one client lives by instead of the machine's.

    Attributes:
        channel: its way to the server; closed with the client.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
        retry: when to try again, unless the client was told otherwise.
    """

    channel: grpc.aio.Channel
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    retry: RetryPolicy


_BY_ADDRESS: dict[str, Callable[[str], Surroundings]] = {}


@contextmanager
def surrounding(address: str, make: Callable[[str], Surroundings]) -> Iterator[None]:
    """Has every client that connects to ``address`` live by what ``make`` returns for its agent's name."""
    _BY_ADDRESS[address] = make
    try:
        yield
    finally:
        del _BY_ADDRESS[address]


def surroundings_of(address: str, agent: str) -> Surroundings | None:
    """Returns what a client lives by, None for any server that is not a test's in this process."""
    make = _BY_ADDRESS.get(address)
    return None if make is None else make(agent)
