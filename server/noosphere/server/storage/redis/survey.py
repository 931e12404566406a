"""Which processes hold the data now: the one primary, or the nodes of a cluster."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .instance import Instance, UnfitRedis, look_at
from .record import History
from .slots import SLOTS, ClusterView, view_from
from .wire import CONNECT_SECONDS_MAX, Address, CommandError, Wire, WireLost

ASKED_MAX = 16
"""Nodes of a cluster that are asked how they see it, beside those that were named."""

NODES_MAX = 512
"""Most primaries of a cluster: the record of each epoch names them all."""

VIEW_SECONDS = 0.2
"""How long more nodes may take to say how they see the cluster: the first one may be cut off from the others."""


class Node:
    """A process that was looked at, over the connection by which it is used.

    Attributes:
        epoch: whose scripts were loaded over this connection, 0 before.
        refused_writes_at: when it last refused to write, in the event loop's time.
    """

    __slots__ = ("address", "epoch", "instance", "refused_writes_at", "wire")

    def __init__(self, address: Address, wire: Wire, instance: Instance) -> None:
        self.address = address
        self.wire = wire
        self.instance = instance
        self.epoch = 0
        self.refused_writes_at = -math.inf

    @property
    def digest(self) -> str:
        """What stands for the process in the records of epochs."""
        return self.instance.identity.digest


class Survey(NamedTuple):
    """What was found.

    Attributes:
        nodes: the primaries that were reached; at least one.
        slots: who serves each slot, None where that one was not reached; None if this is no cluster.
        cluster_epoch: Redis's own, 0 if this is no cluster.
        gone: whether a process of the newest epoch has gone from the cluster, so that others serve its slots: who is
            told to serve slots without having been given what was in them has lost it.
    """

    nodes: tuple[Node, ...]
    slots: Sequence[Node | None] | None = None
    cluster_epoch: int = 0
    gone: bool = False


Kept = Mapping[Address, Node]
"""Nodes that were used so far. Those that are still right are used on, over the same connection."""


async def survey(addresses: Sequence[Address], kept: Kept, history: History) -> Survey:
    """Finds out who holds the data now. Connections that are not used in the end are closed.

    Args:
        addresses: where Redis processes may be.
        kept: as above.
        history: of whom the epochs so far tell.

    Raises:
        WireLost: nobody answers who could be used.
        UnfitRedis: somebody answers who must not be used.
    """
    made: list[Node] = []
    try:
        found = await _Look(kept, made).around(addresses, history)
        if found.slots is not None and (found.gone or not all(history.has(node.digest) for node in found.nodes)):
            # Before an epoch begins for it, everybody is heard: the first to answer may be one that was left behind.
            again = _Look({**kept, **{node.address: node for node in found.nodes}}, made)
            found = await again.around(addresses, history, patient=True)
    except BaseException:
        _drop(made, kept.values())
        raise
    _drop((*made, *kept.values()), found.nodes)
    return found


def _drop(nodes: Iterable[Node], used: Collection[Node]) -> None:
    for node in nodes:
        if node not in used:
            node.wire.abort("not used")


async def _reach(address: Address, kept: Kept) -> Node:
    """Connects to an address, or looks anew at who is at the other end of a connection."""
    known = kept.get(address)
    wire = known.wire if known is not None and not known.wire.lost else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            if wire is None:
                wire = await Wire.connect(address)
            instance = await look_at(wire, address)
    except BaseException as error:
        if wire is not None:
            wire.abort("not looked at")
        if isinstance(error, TimeoutError):
            raise WireLost("no answer", sent=False) from None
        raise
    if known is None or known.wire is not wire:
        return Node(address, wire, instance)
    known.instance = instance
    return known


class _Look:
    """One look around.

    Args:
        kept: see above.
        made: takes every node that is reached.
    """

    def __init__(self, kept: Kept, made: list[Node]) -> None:
        self._kept = kept
        self._made = made
        self._problems: list[str] = []

    async def around(self, addresses: Sequence[Address], history: History, *, patient: bool = False) -> Survey:
        asked = dict.fromkeys((*addresses, *list(self._kept)[:ASKED_MAX]))
        found = await self._reach_all(
            asked, lambda node: _is_of(node, history), lambda node: node.instance.in_cluster and not patient
        )
        members = [node for node in found if node.instance.in_cluster]
        if members:
            return await self._cluster(members, history)
        return Survey((self._primary(found, history),))

    async def _reach_all(
        self,
        addresses: Iterable[Address],
        enough: Callable[[Node], bool] = lambda node: False,
        nearly: Callable[[Node], bool] = lambda node: False,
    ) -> list[Node]:
        """Reaches all at once; waits for no more once one is ``enough``, and not for long if one is ``nearly``."""
        tasks = {asyncio.create_task(_reach(address, self._kept)): address for address in addresses}
        waiting, found = set(tasks), list[Node]()
        unfit: UnfitRedis | None = None
        try:
            while waiting and not any(map(enough, found)):
                seconds = VIEW_SECONDS if any(map(nearly, found)) else None
                done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    try:
                        found.append(task.result())
                    except (WireLost, CommandError) as error:
                        self._problems.append(f"{tasks[task]}: {error}")
                    except UnfitRedis as error:
                        unfit = error
        finally:
            self._made += found
            for task in waiting:
                task.cancel()
            late = await asyncio.gather(*waiting, return_exceptions=True)
            self._made += (node for node in late if isinstance(node, Node))
        if unfit is not None and not any(map(enough, found)):
            raise unfit
        return found

    def _primary(self, found: Sequence[Node], history: History) -> Node:
        """Returns the one primary, or of several the one that the epochs tell of."""
        primaries = [node for node in found if node.instance.is_primary]
        for node in primaries:
            if history.has(node.digest):
                return node
        for node in primaries:
            if not history.replaced(node.digest):
                return node
        replicas = [node for node in found if not node.instance.is_primary]
        if primaries and replicas and not self._problems:
            # Everybody answers, and nobody else says to be the primary any more.
            return primaries[0]
        self._problems += (f"{node.address}: is a replica, or still loads" for node in replicas)
        self._problems += (
            f"{node.address}: another one was promoted in its place; if that is gone for good, restart this one"
            for node in primaries
        )
        raise WireLost(f"no Redis primary answers ({'; '.join(self._problems)})", sent=False)

    async def _cluster(self, members: Sequence[Node], history: History) -> Survey:
        view = await self._view(members, history)
        shards = [shard for shard in view.shards if shard.ranges]
        if len(shards) > NODES_MAX:
            raise UnfitRedis(f"the cluster has {len(shards)} primaries; at most {NODES_MAX} can be used")
        # Over the addresses that the cluster knows, which need not be those that were given.
        serving = {node.address: node for node in await self._reach_all(shard.primary for shard in shards)}
        slots: list[Node | None] = [None] * SLOTS
        nodes: list[Node] = []
        for shard in shards:
            node = serving.get(shard.primary)
            if node is None or not node.instance.is_primary:
                continue
            nodes.append(node)
            for first, last in shard.ranges:
                slots[first : last + 1] = [node] * (last + 1 - first)
        if not nodes:
            raise WireLost(f"no node of the cluster answers ({'; '.join(self._problems)})", sent=False)
        gone = await self._is_one_gone(view, nodes, len(shards) - len(nodes), history)
        return Survey(tuple(nodes), slots, view.epoch, gone)

    async def _view(self, members: Sequence[Node], history: History) -> ClusterView:
        """Returns how the node sees the cluster that knows of the latest changes."""
        views: list[ClusterView] = []
        asked = (view_from(node.wire, node.address) for node in members)
        for node, view in zip(members, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(view, WireLost | CommandError):
                self._problems.append(f"{node.address}: {view}")
            elif isinstance(view, BaseException):
                raise view
            elif _is_left_behind(node, view, history):
                self._problems.append(f"{node.address}: was left behind by the cluster")
            else:
                views.append(view)
        if not views:
            raise WireLost(f"no node of the cluster answers ({'; '.join(self._problems)})", sent=False)
        return max(views, key=lambda view: (view.healthy, view.epoch, view.covered))

    async def _is_one_gone(self, view: ClusterView, nodes: Sequence[Node], missing: int, history: History) -> bool:
        if history.newest is None:
            return False
        unseen = set(history.newest.digests).difference(node.digest for node in nodes)
        if len(unseen) > missing:
            # Those that have given all their slots away are still there.
            idle = await self._reach_all(shard.primary for shard in view.shards if not shard.ranges)
            unseen.difference_update(node.digest for node in idle)
        # Who serves slots and does not answer may be any of them.
        return len(unseen) > missing


def _is_of(node: Node, history: History) -> bool:
    """Returns whether it is the primary of the newest epoch, so that no other one need be asked."""
    return node.instance.is_primary and not node.instance.in_cluster and history.has(node.digest)


def _is_left_behind(node: Node, view: ClusterView, history: History) -> bool:
    """Returns whether a node of an earlier epoch has not heard what has become of the cluster since.

    A cluster that was made anew would be one of other processes.
    """
    if view.epoch == history.cluster_epoch:
        # It need not be higher after a takeover by force.
        return history.replaced(node.digest) and view.covered < SLOTS
    return view.epoch < history.cluster_epoch and history.knows(node.digest)
