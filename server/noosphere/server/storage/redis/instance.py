"""Which Redis process answers, and whether it can be trusted with a working store."""

from __future__ import annotations

import re
from typing import NamedTuple

from .wire import CommandError, Wire

VERSION_MIN = (7, 0)
"""The first with flags in scripts: those that write are refused as a whole when memory is exhausted."""

_TOLD = re.compile(r"\bredis run_id=(\w+) replid=(\w+)")


class UnfitRedis(Exception):
    """A Redis that would lose or forget what it is given. The text says what to change."""


class Identity(NamedTuple):
    """One life of one process within one history of replication."""

    run_id: str
    replication_id: str

    def __str__(self) -> str:
        """Returns what an epoch's record says of it."""
        return f"redis run_id={self.run_id} replid={self.replication_id}"

    @classmethod
    def told_in(cls, text: str) -> Identity | None:
        """Returns whom an epoch's record tells of, None if it tells of something else."""
        found = _TOLD.search(text)
        return cls(found[1], found[2]) if found is not None else None


class Instance(NamedTuple):
    """What a process says of itself. ``durability`` is ``fsync`` if it answers a write only when that is on disk."""

    identity: Identity
    is_primary: bool
    durability: str
    saves: bool


async def look_at(wire: Wire) -> Instance:
    """Asks who answers.

    Raises:
        UnfitRedis: it is too old, evicts, or is part of a cluster.
        CommandError, WireLost: it does not answer that.
    """
    info = await told(wire)
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < VERSION_MIN:
        raise UnfitRedis(f"Redis {info['redis_version']} is too old: 7.0 or newer is needed")
    policy = info["maxmemory_policy"]
    if policy != "noeviction":
        raise UnfitRedis(f"maxmemory-policy is {policy}: records would vanish; it has to be noeviction")
    if info.get("cluster_enabled", "0") != "0":
        raise UnfitRedis("cluster-enabled is yes: this version takes one primary, with or without replicas")
    return Instance(
        Identity(info["run_id"], info["master_replid"]),
        info["role"] == "master" and info["loading"] == "0",
        "fsync" if info["aof_enabled"] == "1" and await _setting(wire, "appendfsync") == "always" else "os",
        # Where it may not be asked, what costs more is assumed.
        await _setting(wire, "save") != "",
    )


async def told(wire: Wire) -> dict[str, str]:
    """Returns what INFO says, by name."""
    text = (await wire.call("INFO")).decode("utf-8", "replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


async def _setting(wire: Wire, name: str) -> str | None:
    """Returns a setting, None where settings may not be read, as on many a hosted Redis."""
    try:
        pairs = await wire.call("CONFIG", "GET", name)
    except CommandError:
        return None
    return pairs[1].decode() if pairs else None
