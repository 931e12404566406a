"""The network between the hosts of a world: delay, loss of connections, partitions.

What is sent between two hosts goes over *pipes*, one per direction of a connection, each of which keeps its order as
TCP does. The connection as a whole breaks or does not. Between hosts that a partition separates nothing arrives: what
was sent waits, as TCP would send it again, until the partition heals or the connection is given up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any

from .guards import sim_loop
from .loop import SimLoop, family

host: ContextVar[str] = ContextVar("host", default="nowhere")
"""On which machine the present task runs."""

GIVE_UP_SECONDS = 20.0
"""After so long without an answer to what it keeps sending a host takes a connection for broken."""


@dataclass
class Weather:
    """What the network is like at present.

    Attributes:
        delay_seconds: the shortest way of a message.
        jitter_seconds: how much longer it may take.
        spike: how probable it is that a message takes much longer.
        spike_seconds: how much at most.
        breaks: how probable it is that a connection breaks at a message, which is lost with it.
        twice: how probable it is that a call is delivered twice, as by a proxy that tries again.
        half_open: how probable it is that only one end of a broken connection notices, and the other much later.
    """

    delay_seconds: float = 0.0002
    jitter_seconds: float = 0.001
    spike: float = 0.0
    spike_seconds: float = 0.0
    breaks: float = 0.0
    twice: float = 0.0
    half_open: float = 0.0


class Network:
    """See the module.

    Args:
        loop: whose time it follows.

    Attributes:
        weather: what it is like between any two hosts.
        rng: decides delays and losses.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.weather = Weather()
        self.rng = loop.chance("network")
        self._contexts: dict[str, Context] = {}
        self._cut: set[tuple[str, str]] = set()
        self._links: dict[Link, None] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        loop.network = self

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Lets nothing through any more from one host to another, and back unless told otherwise."""
        self._cut.add((one, other))
        if both:
            self._cut.add((other, one))
        self.loop.trace("cut", one, other, both)

    def heal(self) -> None:
        """Lets everything through again; connections that have not been given up go on where they were."""
        if not self._cut:
            return
        self._cut.clear()
        self.loop.trace("heal")
        for link in tuple(self._links):
            link.resume()

    def is_cut(self, source: str, target: str) -> bool:
        """Tells whether nothing gets from one host to another."""
        return (source, target) in self._cut

    def delay(self) -> float:
        """Draws how long a message is on its way."""
        weather, rng = self.weather, self.rng
        seconds = weather.delay_seconds + rng.random() * weather.jitter_seconds
        if weather.spike and rng.random() < weather.spike:
            seconds += rng.random() * weather.spike_seconds
        return seconds

    def context(self, name: str) -> Context:
        """Returns a context for what happens on a host."""
        found = self._contexts.get(name)
        if found is None:
            found = self._contexts[name] = Context()
            found.run(host.set, name)
        return found.copy()

    def adopt(self, name: str, context: Context) -> None:
        """Has what comes to a host happen in a process that has begun there."""
        self._contexts[name] = context

    def link(self, source: str, target: str, broken: Callable[[str], None]) -> Link:
        """Opens a connection between two hosts, which breaks when the network wants it to.

        Args:
            source: who connects.
            target: to whom.
            broken: told once, at the source, that it is no more, and why; the target see ``Link.attend``.
        """
        link = Link(self, source, target, broken)
        self._links[link] = None
        own = family.get()
        if own is not None and own.dead:
            link.fail("the process is dead")
        return link

    def forget(self, link: Link) -> None:
        """Takes note that a connection is no more."""
        self._links.pop(link, None)

    def crash(self, name: str, why: str = "the peer has crashed") -> None:
        """Ends every connection of a host, and whatever listens there; both ends notice as soon as they can."""
        for address in [address for address in self._listeners if address[0] == name]:
            del self._listeners[address]
        for link in tuple(self._links):
            if name in (link.source, link.target):
                link.fail(why)

    def listen(self, name: str, port: int, accept: Any) -> Listener:
        """Has a host listen on a port.

        Args:
            name: the host.
            port: the port.
            accept: whatever those who connect are given; its kind is a matter between the two.
        """
        if (name, port) in self._listeners:
            raise OSError(f"{name}:{port} is in use")
        listener = self._listeners[name, port] = Listener(self, name, port, accept)
        return listener

    def listener(self, name: str, port: int) -> Listener | None:
        """Returns who listens there."""
        return self._listeners.get((name, port))

    def close(self, listener: Listener) -> None:
        """Has nobody listen there any more."""
        if self._listeners.get((listener.name, listener.port)) is listener:
            del self._listeners[listener.name, listener.port]

    async def connect_stream(self, protocol_factory: Callable[[], Any], name: str, port: int) -> Any:
        """See ``streams.connect``."""
        from .streams import connect

        return await connect(self, protocol_factory, name, port)

    def listen_stream(self, protocol_factory: Callable[[], Any], name: str, port: int) -> Listener:
        """See ``streams.listen``."""
        from .streams import listen

        return listen(self, protocol_factory, name, port)


@dataclass(eq=False)
class Listener:
    """Somebody who can be connected to.

    Attributes:
        name: the host.
        port: the port.
        accept: what those who connect are given.
    """

    network: Network
    name: str
    port: int
    accept: Any

    def close(self) -> None:
        """Stops listening; connections go on."""
        self.network.close(self)

    async def wait_closed(self) -> None:
        """Returns at once."""


class Link:
    """A connection between two hosts: two pipes, and one fate.

    Attributes:
        source: who has connected.
        target: to whom.
        alive: whether it is not broken.
    """

    def __init__(self, network: Network, source: str, target: str, broken: Callable[[str], None]) -> None:
        self.source = source
        self.target = target
        self.alive = True
        self._network = network
        self._broken = broken
        self._attending: dict[Callable[[], None], None] = {}
        self._there = _Pipe(network, self, source, target)
        self._back = _Pipe(network, self, target, source)

    def send(self, deliver: Callable[[], None]) -> None:
        """Has something happen at the target once it has come there."""
        self._there.send(deliver)

    def answer(self, deliver: Callable[[], None]) -> None:
        """Has something happen at the source once it has come there."""
        self._back.send(deliver)

    def resume(self) -> None:
        """Sends what a partition has held up."""
        self._there.resume()
        self._back.resume()

    def fail(self, why: str) -> None:
        """Breaks the connection; either end is told as soon as that can be known there."""
        if self.alive:
            self.alive = False
            self._network.forget(self)
            network, loop = self._network, self._network.loop
            loop.trace("broken", self.source, self.target, why)
            there = network.delay()
            if network.weather.half_open and network.rng.random() < network.weather.half_open:
                there += network.rng.random() * GIVE_UP_SECONDS
            loop.call_later(network.delay(), self._broken, why, context=network.context(self.source))
            loop.call_later(there, self._gone, context=network.context(self.target))

    def attend(self, gone: Callable[[], None]) -> None:
        """Has the target do something once it notices that the connection is broken."""
        self._attending[gone] = None

    def leave(self, gone: Callable[[], None]) -> None:
        """Has it not."""
        self._attending.pop(gone, None)

    def _gone(self) -> None:
        for gone in tuple(self._attending):
            gone()

    def close(self) -> None:
        """Ends the connection in good order: the target is told."""
        if self.alive:
            self.alive = False
            self._network.forget(self)
            loop = self._network.loop
            loop.call_later(self._network.delay(), self._gone, context=self._network.context(self.target))


class _Pipe:
    """One direction of a connection, first in first out."""

    def __init__(self, network: Network, link: Link, source: str, target: str) -> None:
        self._network = network
        self._link = link
        self._ends = source, target
        self._held: deque[Callable[[], None]] = deque()
        self._last = -math.inf
        self._held_since = 0

    def send(self, deliver: Callable[[], None]) -> None:
        network, link = self._network, self._link
        if not link.alive:
            return
        weather = network.weather
        if weather.breaks and network.rng.random() < weather.breaks:
            link.fail("connection reset")
        elif network.is_cut(*self._ends) or self._held:
            if not self._held:
                self._held_since += 1
                network.loop.call_later(GIVE_UP_SECONDS, self._give_up, self._held_since)
            self._held.append(deliver)
        else:
            self._go(deliver)

    def resume(self) -> None:
        while self._held and not self._network.is_cut(*self._ends):
            self._go(self._held.popleft())

    def _go(self, deliver: Callable[[], None]) -> None:
        loop = self._network.loop
        # What was sent later never comes earlier.
        self._last = max(loop.time() + self._network.delay(), self._last + 1e-9)
        loop.call_at(self._last, self._arrive, deliver, context=self._network.context(self._ends[1]))

    def _arrive(self, deliver: Callable[[], None]) -> None:
        if self._link.alive:
            self._network.loop.trace("arrive", *self._ends)
            deliver()

    def _give_up(self, since: int) -> None:
        if self._held and since == self._held_since:
            self._link.fail("no answer from the peer")


def network() -> Network:
    """Returns the network of the world that runs."""
    found = sim_loop().network
    assert found is not None, "this world has no network"
    return found
