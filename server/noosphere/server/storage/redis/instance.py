"""Which Redis process answers, and whether it can be trusted with a working store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from .wire import TRUST, Address, CommandError, Trust, Wire

VERSION_MIN = (7, 0)
"""The first with flags in scripts: those that write are refused as a whole when memory is exhausted."""

NOEVICTION = "noeviction"

URLS_MAX = 128
"""Most processes that are named: each of them is asked whenever a primary is looked for."""


class UnfitRedis(Exception):
    """A Redis that would lose or forget what it is given. The text says what to change."""


class Identity(NamedTuple):
    """One life of one process as a primary.

    The replication id does not tell that: a primary takes a new one when its first replica comes, with no change to
    what it holds. What it takes over when it is promoted does, and stays.

    Attributes:
        run_id: of the process.
        followed: the id of the history that it has followed before it was promoted, and how far; zeros if it has not.
    """

    run_id: str
    followed: str

    @classmethod
    def told_by(cls, info: dict[str, str]) -> Identity:
        """Returns who has told this."""
        return cls(info["run_id"], f"{info['master_replid2']}:{info['second_repl_offset']}")

    def __str__(self) -> str:
        """Returns what an operator can compare with what Redis says."""
        return f"run_id={self.run_id} followed={self.followed}"

    @property
    def was_replica(self) -> bool:
        """Whether it has followed another one before it was promoted."""
        return bool(self.followed.partition(":")[0].strip("0"))

    @property
    def digest(self) -> str:
        """80 bits that stand for it."""
        return hashlib.blake2b(f"{self.run_id} {self.followed}".encode(), digest_size=10).hexdigest()


class Instance(NamedTuple):
    """What a process says of itself. ``durability`` is ``fsync`` if it answers a write only when that is on disk."""

    identity: Identity
    is_primary: bool
    durability: str
    saves: bool
    in_cluster: bool


def addresses_of(urls: Sequence[str], trust: Trust = TRUST) -> tuple[Address, ...]:
    """Returns where the processes of one working store are, each once.

    Args:
        urls: their addresses.
        trust: what is read for those under TLS.

    Raises:
        UnfitRedis: there is none, or too many, one has another form, or they name different databases.
    """
    if not 1 <= len(urls) <= URLS_MAX:
        raise UnfitRedis(f"redis_urls: {len(urls)} urls; 1 to {URLS_MAX} are needed")
    found: dict[Address, None] = {}
    for number, url in enumerate(urls, 1):
        try:
            found[Address.parse(url, trust)] = None
        except ValueError as error:
            # By its number, because it is a secret.
            raise UnfitRedis(f"redis_urls: url {number} of {len(urls)} {error}") from None
    databases = sorted({address.database for address in found})
    if len(databases) > 1:
        named = ", ".join(map(str, databases))
        raise UnfitRedis(f"redis_urls: databases {named}; a primary and its replicas have the same one")
    return tuple(found)


async def look_at(wire: Wire, address: Address) -> Instance:
    """Asks who answers, and goes to the database of the address.

    Raises:
        UnfitRedis: it is too old, evicts, or has no such database.
        CommandError, WireLost: it does not answer that.
    """
    info = await told(wire)
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < VERSION_MIN:
        raise UnfitRedis(f"Redis {info['redis_version']} is too old: 7.0 or newer is needed")
    policy = info["maxmemory_policy"]
    if policy != NOEVICTION:
        raise UnfitRedis(f"maxmemory-policy is {policy}: records would vanish; it has to be {NOEVICTION}")
    in_cluster = info.get("cluster_enabled", "0") != "0"
    if address.database:
        if in_cluster:
            raise UnfitRedis(f"redis url: database {address.database}: {address} is of a cluster, which has only 0")
        await wire.call("SELECT", address.database)
    return Instance(
        Identity.told_by(info),
        info["role"] == "master" and info["loading"] == "0",
        "fsync" if info["aof_enabled"] == "1" and await _setting(wire, "appendfsync") == "always" else "os",
        # Where it may not be asked, what costs more is assumed.
        await _setting(wire, "save") != "",
        in_cluster,
    )


async def is_still(wire: Wire, instance: Instance) -> bool:
    """Returns whether who answers is still the same primary: one that was a replica in between is not.

    Raises:
        CommandError, WireLost: it does not answer that.
    """
    info = await told(wire, "server", "replication")
    return info["role"] == "master" and Identity.told_by(info) == instance.identity


async def told(wire: Wire, *sections: str) -> dict[str, str]:
    """Returns what INFO says, by name."""
    text = (await wire.call("INFO", *sections)).decode("utf-8", "replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


async def _setting(wire: Wire, name: str) -> str | None:
    """Returns a setting, None where settings may not be read, as on many a hosted Redis."""
    try:
        pairs = await wire.call("CONFIG", "GET", name)
    except CommandError:
        return None
    return pairs[1].decode() if pairs else None
