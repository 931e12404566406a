"""Calls of scripts, whatever becomes of the connection: repeated where that is harmless, or refused."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from noosphere.consistency import Reason, Refusal, invalid

from ...ports.coordinator import Coordinator
from ...ports.runtime import Clock
from .fence import Fenced, begin_above, fence
from .fitness import Fitness
from .instance import UnfitRedis, is_still
from .lease import EpochLease
from .scripts import Script
from .survey import Node
from .wire import Address, CommandError, Reply, WireLost

PAUSES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Before each repetition. Clients repeat calls as well, for longer, so this only bridges what is short."""

CALL_SECONDS_MAX = 6.0
"""After that nothing is repeated: a process that is there and silent takes seconds to be noticed each time."""

STALE_MAX = 3
"""How often a call may meet a namespace that somebody has used in a later epoch than the newest one known."""

IDLE_SECONDS_MAX = 1.0
"""A connection over which nothing came for longer is looked at anew first: who answers there keeps the scripts, and
could have been a replica in between without anybody noticing."""

LOOK_SECONDS_MIN = 0.02
"""Between one look at who serves what, and the next."""

# Answers of a process that is not the primary (any more, or not yet); it has executed nothing.
_ELSEWHERE = {"NOSCRIPT", "READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED"}

# Answers of a process that refuses to write, because too few replicas follow it, or it cannot write its files. It may
# be one that others have left. What only reads goes on by scripts that cannot write.
_NO_WRITES = {"NOREPLICAS", "MISCONF"}
_UNNOTED = "UNNOTED"

READ_ONLY_SECONDS = 1.0
"""For how long after a refusal reads begin by such scripts at once."""

# Answers of a node of a cluster that does not serve the slot now; it has executed nothing. While a slot is on its way
# to another node, nobody executes anything in it: the keys of a namespace might be parted.
_ANOTHER_NODE = {"MOVED", "CLUSTERDOWN"}
_LATER = {"ASK", "TRYAGAIN"}

log = logging.getLogger("noosphere.storage.redis")


class Engine:
    """Redis, whoever of its processes is primary at the moment: one for everything, or one for each part of a cluster.

    Args:
        addresses: where they may be.
        coordinator: knows the epochs.
        clock: for pauses, and for the epoch lease.
        on_epoch: if given, is told of the first later epoch, from which on every call is refused.
        restores: whether it is used by a restore.

    Attributes:
        epoch: the newest epoch under which connections were fenced.
        changed: set, and replaced by a new one, each time that was looked at anew.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        coordinator: Coordinator,
        clock: Clock,
        on_epoch: Callable[[int], None] | None = None,
        *,
        restores: bool = False,
    ) -> None:
        self._restores = restores
        self._addresses = tuple(addresses)
        self._coordinator = coordinator
        self._clock = clock
        self._on_epoch = on_epoch
        self._lease = EpochLease(coordinator, clock, lambda: self.epoch, self._newer)
        self._fitness = Fitness(clock, lambda: () if self._fenced is None else self._fenced.nodes)
        self._epoch_ended = False
        self._fenced: Fenced | None = None
        self._outdated: Fenced | None = None
        self._fencing: asyncio.Task[Fenced] | None = None
        self._looked_at = 0.0
        self._closed = False
        self._open_calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.epoch = 0
        self.changed = asyncio.Event()

    async def call(
        self, script: Script, key: bytes, *arguments: str | bytes | int, harmless: bool = True
    ) -> tuple[int, Reply]:
        """Executes a script; returns the epoch under which that was done, and the reply.

        Args:
            script: which one.
            key: the stem of its keys, whose hash tag says on which node.
            arguments: its arguments.
            harmless: whether it may be executed twice, and so repeated if nobody knows whether it was.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, LIMIT_EXCEEDED if Redis is out of memory, or INVALID_FIELD.
        """
        self.check()
        self._open_calls += 1
        self._idle.clear()
        try:
            return await self._call(script, key, arguments, harmless)
        finally:
            self._open_calls -= 1
            if not self._open_calls:
                self._idle.set()

    async def _call(
        self, script: Script, key: bytes, arguments: Sequence[str | bytes | int], harmless: bool
    ) -> tuple[int, Reply]:
        problem: Exception | None = None
        stale = 0
        loop = asyncio.get_running_loop()
        ends = loop.time() + CALL_SECONDS_MAX
        for pause in PAUSES_SECONDS:
            if problem is not None:
                if loop.time() + pause > ends:
                    break
                await self._clock.sleep(pause)
                self.check()
            try:
                fenced, node = await self._reach(key)
                if not self._lease.held:
                    await self._lease.require()
                self.check()
            except (WireLost, CommandError) as error:
                problem = error
                continue
            except UnfitRedis as error:
                log.error("Redis cannot be used: %s", error)
                problem = error
                break
            digest = fenced.scripts.digests[script]
            if loop.time() - node.refused_writes_at < READ_ONLY_SECONDS:
                digest = fenced.scripts.without_writing.get(script, digest)
            try:
                reply = await node.wire.call("EVALSHA", digest, 1, key, *arguments)
            except WireLost as error:
                problem = error
                if error.sent and not harmless:
                    break
                continue
            except CommandError as error:
                problem = error
                if error.kind in _NO_WRITES:
                    node.refused_writes_at = loop.time()
                    if script not in fenced.scripts.without_writing:
                        # Others may be waiting for replies over the same connection, and get them.
                        self._outdated = fenced
                elif error.kind == _UNNOTED:
                    # To note it takes a script that may write.
                    node.refused_writes_at = -math.inf
                elif error.kind in _ANOTHER_NODE:
                    self._outdated = fenced
                elif error.kind in _ELSEWHERE:
                    node.wire.abort(f"answered {error.kind}")
                elif error.kind not in _LATER:
                    raise _refusal(error) from None
                continue
            except UnicodeEncodeError:
                raise invalid("key", "is not Unicode text") from None
            if reply == [b"E"]:
                stale += 1
                if stale > STALE_MAX:
                    break
                # Others may be waiting for replies over the same connection, and get them.
                self._outdated = fenced
                problem = WireLost("somebody is in a later epoch", sent=False)
                continue
            # What a process says that others may have left is not told to anybody.
            if not self._lease.held:
                await self._lease.require()
            return fenced.epoch, reply
        log.warning("a call of Redis failed: %s", problem)
        raise unavailable() from problem

    async def ask(self, key: bytes, *command: str | bytes | int) -> Reply:
        """Executes a command, once, on the node that has a key.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        self.check()
        try:
            _, node = await self._reach(key)
            return await node.wire.call(*command)
        except (WireLost, CommandError, UnfitRedis) as error:
            raise unavailable() from error

    async def ask_node(self, node: Node, *command: str | bytes | int) -> Reply:
        """Executes a command, once, on one of :meth:`nodes`.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        self.check()
        try:
            return await node.wire.call(*command)
        except (WireLost, CommandError) as error:
            raise unavailable() from error

    @property
    def clustered(self) -> bool:
        """Whether it is a cluster, as far as is known."""
        return self._fenced is not None and self._fenced.slots is not None

    async def nodes(self) -> tuple[Node, ...]:
        """Returns every primary.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also if one of them is missing.
        """
        self.check()
        try:
            fenced = self._fenced
            if fenced is None or fenced is self._outdated or not fenced.whole:
                fenced = await asyncio.shield(self._look())
        except (WireLost, CommandError, UnfitRedis) as error:
            raise unavailable() from error
        if not fenced.whole:
            raise unavailable()
        return fenced.nodes

    async def begin_epoch(self, cause: str, at_least: int) -> int:
        """Begins an epoch on the same processes, for a restore; returns it.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also if a primary is missing; CONTENTION.
        """
        try:
            await begin_above(await self.nodes(), self._coordinator, cause, at_least)
            await asyncio.shield(self._look())
        except (WireLost, CommandError, UnfitRedis) as error:
            raise unavailable() from error
        return self.epoch

    async def ready(self) -> Fenced:
        """Returns the present connections; whoever waits for the same ones shares the work.

        Raises:
            WireLost, UnfitRedis, CommandError, Refusal: see :func:`~.fence.fence`.
        """
        fenced = self._fenced
        if fenced is not None and any(not node.wire.lost for node in fenced.nodes):
            return fenced
        return await asyncio.shield(self._look())

    def present(self, key: bytes) -> Node | None:
        """Returns who has a key if that is known and connected. Does not look whether it still is so."""
        return self._fenced.node_of(key) if self._fenced is not None else None

    async def address_of(self, key: bytes, *, anew: bool = False) -> Address:
        """Returns where the node is that has a key; ``anew`` if what is known has turned out to be wrong.

        Raises:
            WireLost, UnfitRedis, CommandError, Refusal: see :func:`~.fence.fence`.
        """
        self.check()
        if anew:
            self._outdated = self._fenced
        _, node = await self._reach(key)
        return node.address

    def check(self) -> None:
        """Checks that calls may still be made.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the working store is closed")
        if self._epoch_ended:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis has failed over; services are opened anew, try again")
        self._fitness.require()

    async def close(self) -> None:
        """Lets calls under way end, and disconnects."""
        self._closed = True
        await self._idle.wait()
        if self._fencing is not None:
            await asyncio.wait((self._fencing,))
        await self._lease.stop()
        await self._fitness.stop()
        if self._fenced is not None:
            await asyncio.gather(*(node.wire.close() for node in self._fenced.nodes))
        # Connections that came to nothing are closed in the loop's next turn.
        await asyncio.sleep(0)

    async def _reach(self, key: bytes) -> tuple[Fenced, Node]:
        """Returns who has a key; looks anew if that is not known, or what is known is outdated."""
        fenced = self._fenced
        node = None if fenced is None or fenced is self._outdated else fenced.node_of(key)
        if fenced is None or node is None:
            fenced = await asyncio.shield(self._look())
            node = fenced.node_of(key)
            if node is None:
                raise WireLost("no node of the cluster serves the slot", sent=False)
        silent_seconds = asyncio.get_running_loop().time() - node.wire.heard_at
        if silent_seconds > IDLE_SECONDS_MAX and not await is_still(node.wire, node.instance):
            node.wire.abort("was a replica in between")
            raise WireLost("the primary was a replica in between", sent=False)
        return fenced, node

    def _newer(self, epoch: int) -> None:
        """Looks anew, because somebody has begun an epoch: whoever waits for tidings makes no calls that would."""
        log.warning("epoch %d has begun", epoch)
        self._outdated = self._fenced
        self._look()

    def _look(self) -> asyncio.Task[Fenced]:
        if self._fencing is None:
            self._fencing = asyncio.create_task(self._fence())
            self._fencing.add_done_callback(self._was_fenced)
        return self._fencing

    async def _fence(self) -> Fenced:
        loop = asyncio.get_running_loop()
        if (pause := self._looked_at + LOOK_SECONDS_MIN - loop.time()) > 0:
            await self._clock.sleep(pause)
        asked_ms = self._clock.monotonic_ms()
        kept = self._fenced.nodes if self._fenced is not None else ()
        try:
            fenced = await fence(
                self._addresses,
                self._coordinator,
                {node.address: node for node in kept if not node.wire.lost},
                restores=self._restores,
            )
        finally:
            self._looked_at = loop.time()
        self._fenced = fenced
        before, self.epoch = self.epoch, fenced.epoch
        self._lease.confirmed(asked_ms)
        self._lease.start()
        self._fitness.start()
        if before and before != fenced.epoch and self._on_epoch is not None and not self._epoch_ended:
            self._epoch_ended = True
            self._on_epoch(fenced.epoch)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return fenced

    def _was_fenced(self, task: asyncio.Task[Fenced]) -> None:
        self._fencing = None
        if not task.cancelled():
            # Seen: those who waited for it may all be gone.
            task.exception()


def unavailable() -> Refusal:
    """Returns the refusal of a call without an answer. What has failed, and where, is for the server's log."""
    return Refusal(Reason.ENGINE_UNAVAILABLE, "Redis does not answer, the outcome of this call is unknown")


def _refusal(error: CommandError) -> Refusal:
    if error.kind == "OOM":
        return Refusal(Reason.LIMIT_EXCEEDED, "the working store is full (maxmemory of Redis); nothing was written")
    if error.kind == "NAMESAKE":
        return Refusal(Reason.INVALID_FIELD, "namespace: another one has the same storage id")
    log.error("Redis has refused a script: %s", error)
    return Refusal(Reason.ENGINE_UNAVAILABLE, "Redis has refused a call; the server's log has the reason")
