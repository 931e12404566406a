"""A real Redis Cluster: primaries that share the slots evenly, some with a replica."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.redis import RedisError, RedisProcess, catch_up

from noosphere.server.storage.redis.slots import SLOTS, slot_of

WAITS_MAX = 20_000
WAIT_SECONDS = 0.005


class ClusterNode(RedisProcess):
    """One of its processes.

    Attributes:
        bus_port: where the nodes talk to each other.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.bus_port = free_port()
        super().__init__(
            folder,
            **{
                "cluster-enabled": "yes",
                "cluster-port": str(self.bus_port),
                "cluster-node-timeout": "1000",
                # One that has been cut off for long may be promoted all the same: that is what is to be tested.
                "cluster-replica-validity-factor": "0",
                "cluster-require-full-coverage": "no",
                # Which replica follows whom, and who is promoted when, is up to the test.
                "cluster-replica-no-failover": "yes",
                "cluster-migration-barrier": "100",
                **settings,
            },
        )

    @property
    def id(self) -> str:
        """What the cluster calls it."""
        return str(self.ask("CLUSTER", "MYID").decode())

    def state(self) -> dict[str, str]:
        """Returns what it says of the cluster."""
        lines = self.ask("CLUSTER", "INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class RedisCluster:
    """See the module. Not started by construction.

    Args:
        folder: where the files of all go.
        primaries: how many there are.
        replicas: how many of them, from the first, have a replica.

    Attributes:
        primaries: as they were in the beginning.
        replicas: in the same order.
    """

    def __init__(self, folder: Path, primaries: int = 3, replicas: int = 0, **settings: str) -> None:
        self.primaries = [ClusterNode(folder / f"node-{i}", **settings) for i in range(primaries)]
        self.replicas = [ClusterNode(folder / f"replica-{i}", **settings) for i in range(replicas)]
        bounds = [SLOTS * i // primaries for i in range(primaries + 1)]
        self._ranges = [range(low, high) for low, high in itertools.pairwise(bounds)]

    @property
    def nodes(self) -> list[ClusterNode]:
        """All processes."""
        return [*self.primaries, *self.replicas]

    @property
    def urls(self) -> list[str]:
        """The addresses of the primaries."""
        return [node.url for node in self.primaries]

    def start(self) -> None:
        """Starts all; returns once every node says that all is well."""
        for node in self.nodes:
            node.start()
        for number, (node, slots) in enumerate(zip(self.primaries, self._ranges, strict=True), 1):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number)
            node.ask("CLUSTER", "ADDSLOTSRANGE", slots.start, slots.stop - 1)
        self.meet(*self.nodes[1:])
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", primary.id)
        self.settle()
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            catch_up(primary, replica)

    def meet(self, *others: ClusterNode) -> None:
        """Makes others known to the first node, and waits until everybody knows them."""
        first = self.nodes[0]
        for other in others:
            first.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        known = {first.id, *(other.id for other in others)}
        for node in (first, *others):
            await_that(functools.partial(_knows, node, known), "the nodes do not get to know each other")

    def settle(self, *nodes: ClusterNode) -> None:
        """Returns when every node (of some) says that all is well."""
        for node in nodes or self.nodes:
            await_that(functools.partial(_is_well, node), "the cluster is not well")

    def kill(self) -> None:
        """Ends all without warning."""
        for node in self.nodes:
            node.kill()

    def empty(self) -> None:
        """Removes everything that is stored."""
        for node in self.primaries:
            node.ask("FLUSHALL")

    def of(self, key: bytes) -> ClusterNode:
        """Returns the primary that had the key in the beginning."""
        slot = slot_of(key)
        return next(node for node, slots in zip(self.primaries, self._ranges, strict=True) if slot in slots)

    def ask(self, key: bytes, *command: str | bytes | int) -> Any:
        """Sends a command to the primary that has a key."""
        return self.of(key).ask(*command)

    def cut_off(self, number: int) -> None:
        """Lets a replica have everything up to now, and nothing from now on."""
        primary, replica = self.primaries[number], self.replicas[number]
        catch_up(primary, replica)
        # It has to say a password that is not asked for, which is refused.
        replica.ask("CONFIG", "SET", "masterauth", "wrong")
        replica.ask("CONFIG", "SET", "masteruser", "nobody")
        primary.ask("CLIENT", "KILL", "TYPE", "replica")
        await_that(
            lambda: replica.info("replication")["master_link_status"] == "down", "the replica is still connected"
        )

    def fail_over(self, number: int) -> None:
        """Kills a primary and puts its replica in its place."""
        primary, replica = self.primaries[number], self.replicas[number]
        primary.kill()
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        for node in self.nodes:
            if node is not primary:
                await_that(functools.partial(_serves, node, replica), "the replica is not promoted")


@contextlib.contextmanager
def started_cluster(folder: Path, primaries: int = 3, replicas: int = 0) -> Iterator[RedisCluster]:
    """Yields a cluster that is well."""
    cluster = RedisCluster(folder, primaries, replicas)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def await_that(holds: Callable[[], bool], otherwise: str) -> None:
    """Returns when something holds."""
    for _ in range(WAITS_MAX):
        with contextlib.suppress(OSError, RedisError):
            if holds():
                return
        time.sleep(WAIT_SECONDS)
    raise AssertionError(otherwise)


def _lines_at(node: ClusterNode) -> Sequence[list[str]]:
    return [line.split() for line in node.ask("CLUSTER", "NODES").decode().splitlines()]


def _knows(node: ClusterNode, ids: set[str]) -> bool:
    return ids <= {line[0] for line in _lines_at(node) if "handshake" not in line[2]}


def _is_well(node: ClusterNode) -> bool:
    state = node.state()
    return state["cluster_state"] == "ok" and state["cluster_slots_assigned"] == str(SLOTS)


def _serves(at: ClusterNode, node: ClusterNode) -> bool:
    """Returns whether a node sees another one as a primary with slots."""
    own = next(line for line in _lines_at(at) if f":{node.port}@" in line[1])
    return "master" in own[2] and len(own) > 8
