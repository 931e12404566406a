"""Who has moved: subscriptions to what the commits of every process tell, of the namespaces that somebody follows.

A commit tells of itself on a channel of its namespace's hash slot, so the node that executes it is the one to listen
to: one connection per node, which carries all channels there. What may have been missed (the connection was gone, the
slot went to another node, an epoch has begun) is told again from what is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from noosphere.consistency import Refusal

from ...ports.runtime import Clock
from ...ports.store import NamespaceRef
from ..heads import Followed, HeadFeeds
from .engine import Engine, unavailable
from .instance import UnfitRedis
from .packing import stem_of
from .wire import Address, CommandError, Wire, WireLost

PING_SECONDS = 2.0
"""How often a silent subscription is asked whether it is there; a dead one ends with the wire's limit for replies."""

PAUSE_SECONDS = 0.1
"""Between tries to listen again."""

MENDED_MAX = 256
"""Namespaces that are listened to again at a time."""

TRIES_MAX = 4
"""How often a slot may have gone to yet another node while it is being subscribed to."""

log = logging.getLogger("noosphere.storage.redis")


class Tidings:
    """See the module.

    Args:
        engine: whose nodes to listen to.
        feeds: whom to tell.
        clock: for pauses.
        look: tells the present head of a namespace.
        suffix: what follows the stem of a namespace in the name of its channel.
    """

    def __init__(
        self,
        engine: Engine,
        feeds: HeadFeeds,
        clock: Clock,
        look: Callable[[NamespaceRef], Awaitable[int]],
        suffix: str,
    ) -> None:
        self._engine = engine
        self._feeds = feeds
        self._clock = clock
        self._look = look
        self._suffix = suffix.encode()
        self._followed = Followed()
        self._refs: dict[bytes, NamespaceRef] = {}
        self._links: dict[Address, _Link] = {}
        self._heard: dict[bytes, tuple[Address, Wire]] = {}
        self._subscribing: dict[bytes, asyncio.Task[None]] = {}
        # In the order of gaps, whatever the ids hash to.
        self._untold: dict[bytes, None] = {}
        self._spoken: set[bytes] = set()
        self._epoch = engine.epoch
        self._gap = asyncio.Event()
        self._mending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Goes after gaps from now on."""
        self._mending = asyncio.create_task(self._mend(), name="noosphere-tidings")

    async def stop(self) -> None:
        """Ends all subscriptions."""
        for task in (self._mending, *self._subscribing.values()):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, WireLost, CommandError, UnfitRedis, Refusal):
                    await task
        for link in self._links.values():
            await link.close()

    async def follow(self, ref: NamespaceRef) -> None:
        """Returns once no later move can be missed. Counted.

        Raises:
            Refusal: LIMIT_EXCEEDED, ENGINE_UNAVAILABLE.
        """
        self._followed.add(ref)
        self._refs[ref.storage_id] = ref
        try:
            if not self._hears(ref):
                await asyncio.shield(self._subscribe(ref))
        except (WireLost, CommandError, UnfitRedis) as error:
            self.unfollow(ref)
            raise unavailable() from error
        except BaseException:
            self.unfollow(ref)
            raise

    def unfollow(self, ref: NamespaceRef) -> None:
        """Takes one :meth:`follow` back.

        Raises:
            ValueError: there is none.
        """
        if self._followed.remove(ref):
            del self._refs[ref.storage_id]
            self._spoken.discard(ref.storage_id)
            self._leave(ref.storage_id)

    def _hears(self, ref: NamespaceRef) -> bool:
        """Returns whether its channel is listened to where its commits are executed."""
        heard = self._heard.get(ref.storage_id)
        if heard is None or heard[1].lost:
            return False
        node = self._engine.present(stem_of(ref))
        # Where nobody serves it at the moment, it stays where it is until somebody does.
        return node is None or node.address == heard[0]

    def _leave(self, storage_id: bytes) -> None:
        heard = self._heard.pop(storage_id, None)
        if heard is not None:
            heard[1].tell("SUNSUBSCRIBE", self._channel(storage_id))

    def _channel(self, storage_id: bytes) -> bytes:
        return b"noosphere:{%b}%b" % (storage_id.hex().encode(), self._suffix)

    def _subscribe(self, ref: NamespaceRef) -> asyncio.Task[None]:
        """Subscribes; whoever follows the same namespace shares the work."""
        task = self._subscribing.get(ref.storage_id)
        if task is None:
            task = self._subscribing[ref.storage_id] = asyncio.create_task(self._subscribe_to(ref))

            def ended(task: asyncio.Task[None]) -> None:
                del self._subscribing[ref.storage_id]
                if not task.cancelled():
                    # Seen: those who waited for it may all be gone.
                    task.exception()

            task.add_done_callback(ended)
        return task

    async def _subscribe_to(self, ref: NamespaceRef) -> None:
        self._leave(ref.storage_id)
        for tried in range(TRIES_MAX):
            address = await self._engine.address_of(stem_of(ref), anew=tried > 0)
            link = self._links.get(address)
            if link is None:
                link = self._links[address] = _Link(address, self._clock, self._told, self._gap.set)
            wire = await link.wire()
            try:
                await wire.call("SSUBSCRIBE", self._channel(ref.storage_id))
            except CommandError as error:
                if error.kind != "MOVED" or tried + 1 == TRIES_MAX:
                    raise
            else:
                self._heard[ref.storage_id] = (address, wire)
                if ref.storage_id not in self._followed:
                    self._leave(ref.storage_id)
                return

    def _told(self, wire: Wire, kind: bytes, channel: bytes, text: bytes | None) -> None:
        storage_id = bytes.fromhex(channel[channel.index(b"{") + 1 : channel.index(b"}")].decode())
        if kind == b"smessage" and text is not None:
            if storage_id in self._followed:
                self._spoken.add(storage_id)
                self._feeds.publish(storage_id, int(text, 16))
            return
        heard = self._heard.get(storage_id)
        if heard is not None and heard[1] is wire:
            # Not asked for: the slot is that of another node now.
            del self._heard[storage_id]
            self._gap.set()

    async def _mend(self) -> None:
        """Listens again wherever nobody does any more, and tells what was to be told meanwhile."""
        failed = 0
        changed = self._engine.changed
        while True:
            if failed:
                await self._clock.sleep(PAUSE_SECONDS)
            else:
                await self._until_gap(changed)
            # Before looking for gaps, so that none that comes later is missed.
            changed = self._engine.changed
            self._gap.clear()
            try:
                await self._find_gaps()
                await self._tell_again()
                failed = 0
            except (WireLost, CommandError, UnfitRedis, Refusal) as error:
                failed += 1
                if failed == 1:
                    log.warning("nobody tells of some moved heads until Redis can be used again: %s", error)
            except Exception:
                failed += 1
                # Whoever waits for heads would wait for ever if this task ended.
                log.exception("the heads could not be read after a gap")

    async def _until_gap(self, changed: asyncio.Event) -> None:
        ends = [asyncio.ensure_future(self._gap.wait()), asyncio.ensure_future(changed.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()

    async def _find_gaps(self) -> None:
        epoch = self._engine.epoch
        refs = list(self._refs.values())
        for first in range(0, len(refs), MENDED_MAX):
            for ref in refs[first : first + MENDED_MAX]:
                # What was told in an epoch that has ended may be undone.
                if epoch != self._epoch or not self._hears(ref):
                    self._untold[ref.storage_id] = None
            await asyncio.sleep(0)
        self._epoch = epoch

    async def _tell_again(self) -> None:
        while self._untold:
            refs = [self._refs.get(storage_id) for storage_id in list(self._untold)[:MENDED_MAX]]
            problems = await asyncio.gather(*map(self._tell_of, filter(None, refs)), return_exceptions=True)
            self._untold = {one: None for one in self._untold if one in self._refs}
            for problem in problems:
                if problem is not None:
                    raise problem
        if not self._subscribing:
            used = {address for address, _ in self._heard.values()}
            for address in [address for address in self._links if address not in used]:
                await self._links.pop(address).close()

    async def _tell_of(self, ref: NamespaceRef) -> None:
        if not self._hears(ref):
            await asyncio.shield(self._subscribe(ref))
        self._spoken.discard(ref.storage_id)
        head = await self._look(ref)
        # A commit that has told of itself meanwhile may be newer than what was seen, and is not older.
        if ref.storage_id not in self._spoken:
            self._feeds.publish(ref.storage_id, head)
        self._untold.pop(ref.storage_id, None)


class _Link:
    """The connection to one node that carries its channels, made again when it is needed and gone."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        on_message: Callable[[Wire, bytes, bytes, bytes | None], None],
        on_end: Callable[[], None],
    ) -> None:
        self._address = address
        self._clock = clock
        self._on_message = on_message
        self._on_end = on_end
        self._lock = asyncio.Lock()
        self._wire: Wire | None = None
        self._watching: asyncio.Task[None] | None = None

    async def wire(self) -> Wire:
        """Returns the connection.

        Raises:
            WireLost, CommandError: nobody is there.
        """
        async with self._lock:
            if self._wire is None or self._wire.lost:
                await self.close()
                self._wire = wire = await Wire.connect(self._address)
                wire.listen(lambda kind, channel, text: self._on_message(wire, kind, channel, text))
                self._watching = asyncio.create_task(self._watch(wire), name="noosphere-tidings-link")
            return self._wire

    async def close(self) -> None:
        """Disconnects."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._wire is not None:
            await self._wire.close()

    async def _watch(self, wire: Wire) -> None:
        pinging = asyncio.create_task(self._ping(wire))
        try:
            await wire.ended()
        finally:
            pinging.cancel()
        self._on_end()

    async def _ping(self, wire: Wire) -> None:
        with contextlib.suppress(WireLost, CommandError):
            while True:
                await self._clock.sleep(PING_SECONDS)
                await wire.call("PING")
