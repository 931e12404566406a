"""One client's channel to a server, or to one of several: it stays with one until that fails, and goes on with another.

Each server has a connection of its own, made when it is first needed. Their order is drawn anew by every client, so
many clients spread over the servers; one that has moved on stays where it is.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from ._arguments import checked_addresses
from ._errors import InvalidArgument
from ._tls import TlsSource
from ._token import TokenSource

LOG = logging.getLogger("noosphere.client")

REQUEST_BYTES_MAX = 1024 * 1024
"""What a server reads of a request at most. Beyond it gRPC would refuse the call, in its own words."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""What a server sends at most: it limits answers by what records take in its store, and on the wire they are larger."""

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    # Retries happen in one place only, with a request id: see _retry.
    ("grpc.enable_retries", 0),
    # Clients of one process fail and reconnect independently of one another.
    ("grpc.use_local_subchannel_pool", 1),
    # A server that comes back is found within the default deadline.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A dead peer is noticed while calls wait; idle channels send nothing.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Shared memory is on the local network: a proxy for the web is never the way to it.
    ("grpc.enable_http_proxy", 0),
    # Where a name stands for several addresses, clients spread over them.
    ("grpc.service_config", '{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}'),
)

CONNECTIONS_PER_NAME = 3
"""How many connections a name has that may stand for several servers: the next one may lead to another."""

RETIRED_MAX = 8
"""Most connections with replaced certificates that are closed together with the client."""


def open_channel(
    server: str,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    *,
    in_order: bool = False,
    tls: TlsSource | None = None,
    token: TokenSource | None = None,
) -> grpc.aio.Channel:
    """Opens a client's channel.

    Args:
        server: where the server is, or several, as ``connect`` takes them.
        interceptors: see every call.
        in_order: use the first of several, and the next one when that fails, instead of drawing.
        tls: what connections are encrypted with; None leaves them as they are.
        token: goes with every call; None for none.

    Raises:
        InvalidArgument: ``server`` is malformed, or files of ``tls`` cannot be used.
    """
    addresses = checked_addresses("server", server)
    if len(addresses) == 1 and addresses[0].startswith("dns:"):
        return ServersChannel(addresses * CONNECTIONS_PER_NAME, interceptors, tls, token)
    if len(addresses) == 1 and tls is None and token is None:
        return _open(addresses[0], interceptors)
    # Of one address, too: certificates that were replaced need a new connection to the same server.
    order = addresses if in_order else random.sample(addresses, len(addresses))
    return ServersChannel(order, interceptors, tls, token)


def _open(address: str, interceptors: Sequence[grpc.aio.ClientInterceptor]) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS, interceptors=list(interceptors))


class _Encrypted:
    """Opens connections under TLS, each with the files as they are then.

    Args:
        source: where they are.

    Raises:
        InvalidArgument: they cannot be used.
    """

    def __init__(self, source: TlsSource) -> None:
        self._source = source
        self._seen = source.signature()
        self._credentials = source.credentials()
        self._opened: dict[int, tuple[tuple[int, ...], ...]] = {}

    def open(self, place: int, address: str, interceptors: Sequence[grpc.aio.ClientInterceptor]) -> grpc.aio.Channel:
        """Opens the connection of a place."""
        signature = self._source.signature()
        if signature != self._seen:
            try:
                self._credentials = self._source.credentials()
            except InvalidArgument as error:
                # They may be being replaced; the next connection looks again.
                LOG.warning("certificates from before are used: %s", error)
            else:
                self._seen = signature
        self._opened[place] = self._seen
        options = (*CHANNEL_OPTIONS, *self._source.options())
        return grpc.aio.secure_channel(address, self._credentials, options=options, interceptors=list(interceptors))

    def is_outdated(self, place: int) -> bool:
        """Returns whether files have been replaced since the connection of a place was opened."""
        return place in self._opened and self._opened[place] != self._source.signature()


class ServersChannel(grpc.aio.Channel):
    """A channel whose calls go to one of several servers.

    Args:
        addresses: where they are, at least one, in the order in which they are used.
        interceptors: see every call.
        tls: what connections are encrypted with; None leaves them as they are.
        token: goes with every call; None for none.

    Attributes:
        turn: how often it has moved on: a name for where calls go now.
        token: goes with every call.

    Raises:
        InvalidArgument: files of ``tls`` cannot be used.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
        tls: TlsSource | None = None,
        token: TokenSource | None = None,
    ) -> None:
        self.turn = 0
        self.token = token
        self._addresses = tuple(addresses)
        self._interceptors = interceptors
        self._encrypted = None if tls is None else _Encrypted(tls)
        self._channels: list[grpc.aio.Channel | None] = [None] * len(addresses)
        # One that is left out lives as long as its calls.
        self._retired: deque[grpc.aio.Channel] = deque(maxlen=RETIRED_MAX)
        self._closed = False

    def leave(self, turn: int) -> bool:
        """Has further calls go to the next server; what is under way stays where it is.

        Args:
            turn: when the call that failed was made. If others have noticed the same, nothing happens.

        Returns:
            Whether this has moved on.
        """
        if turn != self.turn:
            return False
        following = (turn + 1) % len(self._addresses)
        outdated = self._encrypted is not None and self._encrypted.is_outdated(following)
        if len(self._addresses) == 1 and not outdated:
            return False
        self.turn += 1
        if outdated:
            self._retire(following)
        return True

    def _retire(self, place: int) -> None:
        """Has the next call open a connection anew; what is under way on the present one ends there."""
        channel, self._channels[place] = self._channels[place], None
        if channel is not None:
            self._retired.append(channel)

    def address(self, turn: int) -> str:
        """Returns where calls of a turn go."""
        return self._addresses[turn % len(self._addresses)]

    @property
    def place(self) -> int:
        """Which connection calls go to now."""
        return self.turn % len(self._addresses)

    @property
    def present(self) -> grpc.aio.Channel:
        """The connection that calls go to now."""
        place = self.place
        channel = self._channels[place]
        if channel is None:
            if self._closed:
                raise grpc.aio.UsageError("Channel is closed.")
            address, encrypted = self._addresses[place], self._encrypted
            if encrypted is None:
                channel = _open(address, self._interceptors)
            else:
                channel = encrypted.open(place, address, self._interceptors)
            self._channels[place] = channel
        return channel

    async def __aenter__(self) -> ServersChannel:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes every connection."""
        self._closed = True
        for channel in (*self._retired, *self._channels):
            if channel is not None:
                await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Returns the state of the present connection."""
        return self.present.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the present connection is in another state."""
        await self.present.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the present connection is there."""
        await self.present.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Returns a method of whichever server calls go to."""
        return _Method(self, lambda channel: channel.unary_unary(method, *arguments, **more))

    def unary_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Returns a method of whichever server calls go to."""
        return _Method(self, lambda channel: channel.unary_stream(method, *arguments, **more))

    def stream_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Returns a method of whichever server calls go to."""
        return _Method(self, lambda channel: channel.stream_unary(method, *arguments, **more))

    def stream_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Returns a method of whichever server calls go to."""
        return _Method(self, lambda channel: channel.stream_stream(method, *arguments, **more))


class _Method:
    """A method on each connection, made when it is first called there."""

    __slots__ = ("_channel", "_made", "_make")

    def __init__(self, channel: ServersChannel, make: Callable[[grpc.aio.Channel], Callable[..., Any]]) -> None:
        self._channel = channel
        self._make = make
        self._made: dict[int, tuple[grpc.aio.Channel, Callable[..., Any]]] = {}

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        place, channel = self._channel.place, self._channel.present
        made = self._made.get(place)
        if made is None or made[0] is not channel:
            made = self._made[place] = channel, self._make(channel)
        if (token := self._channel.token) is not None:
            more["metadata"] = (*(more.get("metadata") or ()), ("authorization", f"Bearer {token.current()}"))
        return made[1](*arguments, **more)
