"""A Redis primary with its replica, and the ways in which the one takes the other's place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.redis import RedisProcess, catch_up

_NOWHERE = ("127.0.0.1", 1)
"""An address to replicate from at which nobody is."""


def cut_off(primary: RedisProcess, replica: RedisProcess) -> None:
    """Lets a replica have everything up to now, and nothing from now on: what follows is lost in a failover."""
    catch_up(primary, replica)
    replica.ask("REPLICAOF", *_NOWHERE)


def fail_over(primary: RedisProcess, replica: RedisProcess) -> None:
    """Kills a primary and promotes its replica."""
    primary.kill()
    replica.promote()


class RedisPair:
    """See the module. Made by :func:`redis_pair`.

    Attributes:
        primary: the one that is written to at first.
        replica: follows it.
    """

    def __init__(self, primary: RedisProcess, replica: RedisProcess) -> None:
        self.primary = primary
        self.replica = replica

    @property
    def urls(self) -> list[str]:
        """The addresses of both."""
        return [self.primary.url, self.replica.url]

    def cut_off(self) -> None:
        """Lets the replica have everything up to now, and nothing from now on: what follows is lost in a failover."""
        cut_off(self.primary, self.replica)

    def promote(self) -> None:
        """Makes the replica a primary, whatever becomes of the other one."""
        self.replica.promote()

    def fail_over(self) -> None:
        """Kills the primary and promotes the replica."""
        fail_over(self.primary, self.replica)


@contextlib.contextmanager
def redis_pair(folder: Path, **settings: str) -> Iterator[RedisPair]:
    """Runs both for the length of the block."""
    primary = RedisProcess(folder / "primary", **settings)
    primary.start()
    replica = RedisProcess(folder / "replica", replicaof=f"127.0.0.1 {primary.port}", **settings)
    try:
        replica.start()
        catch_up(primary, replica)
        yield RedisPair(primary, replica)
    finally:
        for server in (primary, replica):
            server.kill()
