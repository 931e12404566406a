"""The epoch fence: nothing is executed by a Redis process that has not been looked at.

Who it is, is asked on the very connection that the scripts are loaded on and executed over. If it is not of the newest
epoch's record, a new epoch begins first, under which everything that the old one held past what is left is known as
lost. Of a cluster the record names every primary, and one that it does not name begins an epoch for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal

from ...ports.coordinator import Coordinator
from .instance import UnfitRedis
from .record import FORMAT, History, Members
from .scripts import LoadedScripts, scripts_of
from .slots import slot_of
from .survey import Kept, Node, Survey, survey
from .wire import Address, CommandError, Reply, WireLost

META = b"noosphere:{catalogue}:meta"
"""A hash: ``e`` the newest epoch that was used here, ``of`` whose Redis this is, ``t`` store time at the last orderly
end, ``named`` the epoch in which the names were last gone over, ``restoring`` while a restore has not ended, ``owed``
erasures whose end is open, ``erased`` whether there ever was one."""

NAMES = b"noosphere:{catalogue}:names"
"""The names of all namespaces; on the same node."""

QUEUE = b"noosphere:{queue}"
"""The stem of all keys of the fact queue. One hash slot, so that a script can look at all of them in one step."""

TRIES_MAX = 5
"""How often another process may begin an epoch while one is being settled, or its scripts are being loaded."""

log = logging.getLogger("noosphere.storage.redis")


class Fenced(NamedTuple):
    """Connections over which the scripts of one epoch can be executed.

    Attributes:
        nodes: to all primaries that were reached.
        slots: who serves each hash slot, None where that one was not reached; None if there is one primary for all.
    """

    epoch: int
    scripts: LoadedScripts
    nodes: tuple[Node, ...]
    slots: Sequence[Node | None] | None

    def node_of(self, key: bytes) -> Node | None:
        """Returns who has a key, None if that one cannot be reached."""
        node = self.nodes[0] if self.slots is None else self.slots[slot_of(key)]
        return node if node is not None and not node.wire.lost else None

    @property
    def whole(self) -> bool:
        """Whether every primary is reached: whoever has to do with all of them cannot do with less."""
        return all(not node.wire.lost for node in self.nodes) and (self.slots is None or None not in self.slots)

    @property
    def durability(self) -> str:
        """What all of them promise: ``fsync`` only if each answers a write only when that is on disk."""
        return "fsync" if all(node.instance.durability == "fsync" for node in self.nodes) else "os"


def heads_suffix(address: Address) -> str:
    """Returns what names the channel of a namespace's moves, after its stem; databases do not keep channels apart."""
    return f":heads:{address.database}"


async def fence(
    addresses: Sequence[Address], coordinator: Coordinator, kept: Kept, *, restores: bool = False
) -> Fenced:
    """Finds the primaries, settles the epoch under which they are used, and loads the scripts.

    Args:
        addresses: where they may be.
        coordinator: knows the epochs.
        kept: connections of before.
        restores: whether it is used by a restore; nobody else takes what one has left half done.

    Raises:
        WireLost: no primary answers.
        UnfitRedis: it cannot be used, a restore into it has not ended, or the coordinator is not the one it was used
            with.
        CommandError: it refuses what is needed.
        Refusal: ENGINE_UNAVAILABLE, from the coordinator.
    """
    used, found = dict(kept), None
    try:
        for _ in range(TRIES_MAX):
            history = History(await coordinator.epochs())
            if history.later:
                raise UnfitRedis(
                    f"epoch {history.epoch} was recorded in format {history.later} by a newer version, this one knows "
                    f"{FORMAT}: upgrade this server"
                )
            found = await survey(addresses, used, history)
            if not restores:
                await _check_whole(found)
            used = {node.address: node for node in found.nodes}
            epoch = await _settle_epoch(found, history, coordinator)
            if not epoch:
                continue
            scripts = scripts_of(epoch, heads_suffix(addresses[0]))
            await _load(found, epoch, scripts)
            # Another process may have begun a later epoch meanwhile; from here on its flush would be noticed.
            history = History(await coordinator.epochs())
            if history.epoch == epoch:
                await _claim(found, history)
                return Fenced(epoch, scripts, found.nodes, found.slots)
    except BaseException:
        _let_go(found, kept)
        raise
    _let_go(found, kept)
    raise WireLost(f"epochs follow each other too fast: others were faster {TRIES_MAX} times", sent=False)


def _let_go(found: Survey | None, kept: Kept) -> None:
    """Closes connections that nobody gets to use."""
    for node in found.nodes if found is not None else ():
        if node not in kept.values():
            node.wire.abort("not fenced")


async def begin_above(nodes: Sequence[Node], coordinator: Coordinator, cause: str, at_least: int) -> None:
    """Begins an epoch on the same processes, for a restore; connections have to be fenced anew.

    Raises:
        Refusal: CONTENTION or ENGINE_UNAVAILABLE.
        WireLost, CommandError: a process does not answer.
    """
    history = History(await coordinator.epochs())
    members = Members(frozenset(node.digest for node in nodes), history.cluster_epoch)
    epoch = await coordinator.begin_epoch(cause, members.told(0), at_least, history.epoch)
    log.warning("epoch %d begins: %s", epoch, cause)
    await asyncio.gather(*(node.wire.call("SCRIPT", "FLUSH") for node in nodes))


async def _check_whole(found: Survey) -> None:
    """Checks that no restore was cut off.

    Raises:
        UnfitRedis: one was, or is under way.
    """
    catalogue = _catalogue_of(found)
    if catalogue is not None and await _ask(catalogue, "HGET", META, "restoring"):
        raise UnfitRedis(
            "a restore into this Redis is under way or was cut off: what is there is not complete; run `noosphere "
            "restore --replace` to its end"
        )


async def _settle_epoch(found: Survey, history: History, coordinator: Coordinator) -> int:
    """Returns the epoch of what was found, a new one if the newest is that of others; 0 if somebody else was faster."""
    known = history.epoch
    catalogue = _catalogue_of(found)
    reached = names = 0
    if catalogue is not None:
        told, fleet = await catalogue.wire.call("HMGET", META, "e", "of")
        reached = int(told or 0)
        _check_fleet(fleet, history)
    if known < reached:
        if History(await coordinator.epochs()).epoch >= reached:
            # Somebody else has begun it since it was asked for.
            return 0
        raise UnfitRedis(
            f"the coordinator (etcd below etcd_root, or the data folder) knows epochs up to {known}, this Redis has "
            f"reached {reached}: they do not belong together"
        )
    strange = [node for node in found.nodes if not history.has(node.digest)]
    if not strange and not found.gone:
        return known
    if catalogue is not None:
        names = await catalogue.wire.call("ZCARD", NAMES)
    if history.newest is None and not reached:
        cause = "created"
    elif strange:
        cause = "unclean: Redis was restarted, or another one was promoted"
    else:
        cause = "unclean: a node of the Redis cluster is gone"
    recovered = Members(frozenset(node.digest for node in found.nodes), found.cluster_epoch).told(names)
    if not known:
        # The first record names the fleet: others may begin theirs on the same Redis in the same millisecond.
        recovered += f", for {secrets.token_hex(8)}"
    try:
        epoch = await coordinator.begin_epoch(cause, recovered, known + 1, known)
    except Refusal as refusal:
        if refusal.reason is not Reason.CONTENTION:
            raise
        # Somebody else has begun one, as like as not for the very same.
        return 0
    who = ", ".join(f"{node.address} {node.instance.identity}" for node in strange)
    log.warning("epoch %d begins: %s; %d namespaces; new: %s", epoch, cause, names, who or "nobody")
    # Only whoever begins an epoch ends the earlier ones so; two versions of the scripts can share one.
    await asyncio.gather(*(_ask(node, "SCRIPT", "FLUSH") for node in found.nodes))
    if catalogue is not None:
        await _ask(catalogue, "HSET", META, "e", epoch)
        if any(node.instance.identity.was_replica for node in strange) and await _ask(
            catalogue, "HGET", META, "erased"
        ):
            # Replicas do not erase: what the old primary has rewritten, the files of the new one still tell.
            await _ask(catalogue, "HINCRBY", META, "owed", 1)
    return epoch


async def _claim(found: Survey, history: History) -> None:
    """Notes whose working store this is, if nobody has; of two fleets that come to a new Redis at once, one has it."""
    if (catalogue := _catalogue_of(found)) is not None:
        # Asked first: a Redis that refuses writes at present can be read.
        if not await _ask(catalogue, "HEXISTS", META, "of"):
            await _ask(catalogue, "HSETNX", META, "of", history.fleet)
        _check_fleet(await _ask(catalogue, "HGET", META, "of"), history)


def _check_fleet(fleet: bytes | None, history: History) -> None:
    if fleet is not None and history.fleet and fleet.decode() != history.fleet:
        # It would be two fleets, each with its own locks and incarnations, on the same records.
        raise UnfitRedis(
            "this Redis is the working store of other servers, which have another coordinator (another etcd, etcd_root "
            "or data folder): they do not belong together"
        )


def _catalogue_of(found: Survey) -> Node | None:
    return found.nodes[0] if found.slots is None else found.slots[slot_of(META)]


async def _load(found: Survey, epoch: int, scripts: LoadedScripts) -> None:
    """Loads the scripts of an epoch wherever this connection has not loaded them yet."""

    async def onto(node: Node) -> None:
        await asyncio.gather(*(_ask(node, "SCRIPT", "LOAD", text) for text in scripts.texts))
        node.epoch = epoch

    await asyncio.gather(*(onto(node) for node in found.nodes if node.epoch != epoch))
    if all(node.wire.lost for node in found.nodes):
        raise WireLost("no Redis primary answers any more", sent=False)


async def _ask(node: Node, *command: str | bytes | int) -> Reply:
    """Asks one of several; that it is gone is seen by whoever needs it."""
    try:
        return await node.wire.call(*command)
    except WireLost:
        return None
    except CommandError:
        node.wire.abort("refuses what is needed")
        raise
