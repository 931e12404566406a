"""Redis Cluster's hash slots: which one a key belongs to, and which node serves it, as the nodes themselves tell."""

from __future__ import annotations

import binascii
from typing import NamedTuple

from .wire import Address, Reply, Wire, WireLost

SLOTS = 16_384

TRIES_MAX = 8
"""How often a cluster may change while it is being looked at."""


class Shard(NamedTuple):
    """A primary and the ranges of slots it serves, both ends included; none for one that serves none."""

    primary: Address
    ranges: tuple[tuple[int, int], ...]


class ClusterView(NamedTuple):
    """The cluster as one of its nodes sees it. Failovers and moves of slots raise ``epoch``, unless by force."""

    healthy: bool
    epoch: int
    shards: tuple[Shard, ...]

    @property
    def covered(self) -> int:
        """How many slots are served."""
        return sum(last - first + 1 for shard in self.shards for first, last in shard.ranges)


def slot_of(key: bytes) -> int:
    """Returns the slot of a key or channel: that of its hash tag, if it has one."""
    start = key.find(b"{") + 1
    if start and (end := key.find(b"}", start)) > start:
        key = key[start:end]
    return binascii.crc_hqx(key, 0) % SLOTS


async def view_from(wire: Wire, address: Address) -> ClusterView:
    """Asks a node.

    Args:
        wire: a connection to it.
        address: where that goes; other nodes are spoken to as this one is.

    Raises:
        WireLost, CommandError: it does not answer.
    """
    healthy, epoch = await _state(wire)
    for _ in range(TRIES_MAX):
        shards = [_shard(_named(shard), address) for shard in await wire.call("CLUSTER", "SHARDS")]
        before, (healthy, epoch) = epoch, await _state(wire)
        # Otherwise what has changed in between might be taken for older than it is.
        if epoch == before:
            return ClusterView(healthy, epoch, tuple(shard for shard in shards if shard is not None))
    raise WireLost("the cluster changes too fast", sent=False)


async def _state(wire: Wire) -> tuple[bool, int]:
    text = (await wire.call("CLUSTER", "INFO")).decode()
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return info["cluster_state"] == "ok", int(info["cluster_current_epoch"])


def _shard(shard: dict[bytes, Reply], asked: Address) -> Shard | None:
    primaries = [node for node in map(_named, shard[b"nodes"]) if node[b"role"] == b"master"]
    if not primaries:
        return None
    # Beside the one that has taken over there may be the one that has failed.
    primary = next((node for node in primaries if node[b"health"] == b"online"), primaries[0])
    # A node that was never told its own address leaves it out: it is where it was asked.
    endpoint = primary[b"endpoint"] or primary[b"ip"] or b""
    port = primary.get(b"tls-port" if asked.tls else b"port")
    host = asked.host if endpoint in (b"", b"?") else endpoint.decode()
    bounds = shard[b"slots"]
    ranges = tuple(zip(bounds[::2], bounds[1::2], strict=True))
    return Shard(asked._replace(host=host, port=asked.port if port is None else int(port), database=0), ranges)


def _named(pairs: list[Reply]) -> dict[bytes, Reply]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
