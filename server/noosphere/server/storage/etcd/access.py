"""How members of etcd are reached: over TLS or not, with which certificate, as which user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from . import wire_pb2 as wire

Metadata = tuple[tuple[str, str], ...]

FILE_BYTES_MAX = 1024 * 1024
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A half-open connection is noticed by these. etcd cuts off whoever asks more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)
# Connections with other certificates are others, although they go to the same member.
_OWN_CONNECTIONS = ("grpc.use_local_subchannel_pool", 1)


class UnfitFiles(ValueError):
    """Files for TLS that cannot be used; the message is one line that names the file."""


@dataclass(frozen=True, slots=True)
class Access:
    """See the module.

    Attributes:
        ca: the authorities that may vouch for members; None speaks no TLS.
        certificate: our own, for members that ask for one.
        key: its key.
        username: who we are; empty where nobody is asked.
        password: of that user.
        connect: makes a connection to ``host:port`` in place of gRPC, which is then not asked for one.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    connect: Callable[[str], grpc.aio.Channel] | None = None

    def request(self) -> wire.AuthenticateRequest:
        """Returns what is asked to get a token."""
        return wire.AuthenticateRequest(name=self.username, password=self.password)


class Channels:
    """Connections to members. Files for TLS are read when it is made, and again by :meth:`renew`.

    Args:
        endpoints: ``host:port`` of each.
        access: how they are reached.

    Raises:
        UnfitFiles: a file cannot be read.
    """

    def __init__(self, endpoints: tuple[str, ...], access: Access) -> None:
        self._endpoints = endpoints
        self._by = access.connect
        self._files = (access.ca, access.key, access.certificate)
        self._seen = self._signature()
        self._open = self._connect()

    def __getitem__(self, member: int) -> grpc.aio.Channel:
        """Returns the connection to a member."""
        return self._open[member]

    def __len__(self) -> int:
        """Returns how many members there are."""
        return len(self._open)

    def renew(self) -> bool:
        """Connects anew if files were replaced; what is under way stays where it is.

        Returns:
            Whether it has.

        Raises:
            UnfitFiles: a new file cannot be read; the connections stay as they are.
        """
        if self._files[0] is None or (signature := self._signature()) == self._seen:
            return False
        self._open = self._connect()
        self._seen = signature
        return True

    async def close(self) -> None:
        """Disconnects."""
        for channel in self._open:
            await channel.close()

    def _connect(self) -> list[grpc.aio.Channel]:
        if self._by is not None:
            return [self._by(endpoint) for endpoint in self._endpoints]
        if self._files[0] is None:
            return [grpc.aio.insecure_channel(f"dns:///{endpoint}", _OPTIONS) for endpoint in self._endpoints]
        credentials = grpc.ssl_channel_credentials(*map(_content, self._files))
        options = (*_OPTIONS, _OWN_CONNECTIONS)
        return [grpc.aio.secure_channel(f"dns:///{endpoint}", credentials, options) for endpoint in self._endpoints]

    def _signature(self) -> tuple[object, ...]:
        return tuple(_signature(file) for file in self._files if file is not None)


def _content(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UnfitFiles(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX or b"-----BEGIN " not in content:
        raise UnfitFiles(f"{file} holds nothing in PEM form")
    return content


def _signature(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
