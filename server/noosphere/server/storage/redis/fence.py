"""The epoch fence: nothing is executed by a Redis process that has not been looked at.

Who it is, is asked on the very connection that the scripts are loaded on and executed over. If it is not the one of
the newest epoch's record, a new epoch begins first, under which everything that the old one held past what is left is
known as lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.coordinator import Coordinator
from .instance import Identity, Instance, UnfitRedis, look_at
from .scripts import LoadedScripts, scripts_of
from .wire import Address, CommandError, Wire, WireLost

META = "noosphere:{catalogue}:meta"
"""A hash: ``e`` the newest epoch that was used here, ``t`` store time at the last orderly end, ``owed`` erasures."""

TRIES_MAX = 5
"""How often an epoch may be overtaken by another one while its scripts are being loaded."""

log = logging.getLogger("noosphere.storage.redis")


class Fenced(NamedTuple):
    """A connection over which the scripts of one epoch can be executed."""

    wire: Wire
    address: Address
    epoch: int
    scripts: LoadedScripts
    instance: Instance


def channel_of(address: Address) -> str:
    """Returns the channel of moved heads; channels are not kept apart by database."""
    return f"noosphere:heads:{address.database}"


async def find_primary(addresses: Sequence[Address], known: Identity | None) -> tuple[Wire, Address, Instance]:
    """Connects to the known instance if it answers as a primary, else to the first address where a primary does.

    An old primary that comes back takes itself for one as well. Whoever took the first that answers would begin one
    epoch after the other, each of which loses what the one before has been given.

    Raises:
        WireLost: there is none.
        UnfitRedis: there is one that cannot be used.
    """
    problems = []
    another: tuple[Wire, Address, Instance] | None = None
    try:
        for address in addresses:
            try:
                wire = await Wire.connect(address)
            except (WireLost, CommandError) as error:
                problems.append(f"{address}: {error}")
                continue
            try:
                instance = await look_at(wire)
            except (WireLost, CommandError) as error:
                wire.abort("not looked at")
                problems.append(f"{address}: {error}")
                continue
            except BaseException:
                wire.abort("unfit")
                raise
            if not instance.is_primary:
                wire.abort("a replica")
                problems.append(f"{address}: is a replica, or still loads")
            elif known is None or instance.identity == known:
                if another is not None:
                    another[0].abort("another one is known")
                return wire, address, instance
            elif another is None:
                another = wire, address, instance
            else:
                wire.abort("not the first one")
    except BaseException:
        if another is not None:
            another[0].abort("not chosen")
        raise
    if another is None:
        raise WireLost(f"no Redis primary answers ({'; '.join(problems)})", sent=False)
    return another


async def fence(addresses: Sequence[Address], coordinator: Coordinator) -> Fenced:
    """Finds the primary, settles the epoch under which it is used, and loads the scripts.

    Raises:
        WireLost: no primary answers.
        UnfitRedis: it cannot be used, or the coordinator is not the one it was used with.
        CommandError: it refuses what is needed.
    """
    for _ in range(TRIES_MAX):
        records = await coordinator.epochs()
        known = Identity.told_in(records[-1].recovered) if records else None
        wire, address, instance = await find_primary(addresses, known)
        try:
            epoch = await _settle_epoch(wire, instance, coordinator)
            scripts = scripts_of(epoch, channel_of(address))
            for text in scripts.texts.values():
                await wire.call("SCRIPT", "LOAD", text)
            # Another process may have begun a later epoch meanwhile; from here on its flush would be noticed.
            if (await coordinator.epochs())[-1].epoch == epoch:
                return Fenced(wire, address, epoch, scripts, instance)
        except BaseException:
            wire.abort("not fenced")
            raise
        # That epoch may be of another primary than this one.
        wire.abort("overtaken")
    raise WireLost(f"epochs follow each other too fast: {TRIES_MAX} while scripts were loaded", sent=False)


async def _settle_epoch(wire: Wire, instance: Instance, coordinator: Coordinator) -> int:
    """Returns the epoch of an instance; begins one if the newest is that of another."""
    records = await coordinator.epochs()
    known = records[-1].epoch if records else 0
    reached = int(await wire.call("HGET", META, "e") or 0)
    if known < reached:
        raise UnfitRedis(
            f"the coordinator knows epochs up to {known}, this Redis has reached {reached}: they do not belong together"
        )
    last = Identity.told_in(records[-1].recovered) if records else None
    if last == instance.identity:
        return known
    names = await wire.call("ZCARD", "noosphere:{catalogue}:names")
    cause = "created" if not reached else "unclean: Redis was restarted, or another one was promoted"
    epoch = await coordinator.begin_epoch(cause, f"{instance.identity}: {names} namespaces", known + 1)
    log.warning("epoch %d begins: %s; %d namespaces", epoch, cause, names)
    # Only whoever begins an epoch ends the earlier ones so; two versions of the scripts can share one.
    await wire.call("SCRIPT", "FLUSH")
    await wire.call("HSET", META, "e", epoch)
    return epoch
