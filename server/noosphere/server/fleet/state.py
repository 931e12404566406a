"""``fleet.json``: which processes a fleet is made of, where they listen, and where their files are."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .processes import FleetError, Identity, is_alive

FILE = "fleet.json"
FORMAT = 1


class Member(msgspec.Struct):
    """One process of a fleet, there or not.

    Attributes:
        name: what it is called, e.g. ``redis-1``; its files are in the folder of this name.
        address: where it listens.
        folder: where its files are.
        process: the process; None before it was started.
        peer: of etcd, where it listens for its own kind.
        grpc: of Weaviate, where its gRPC interface is.
        key: of Weaviate, the key that it asks for: its gRPC port is open to the network.
    """

    name: str
    address: str
    folder: str
    process: Identity | None = None
    peer: str = ""
    grpc: str = ""
    key: str = ""

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return Path(self.folder) / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return is_alive(self.process)

    @property
    def pid(self) -> int:
        """The number of its process, 0 without one."""
        return self.process.pid if self.process is not None else 0


class Fleet(msgspec.Struct):
    """All of it.

    Attributes:
        redis: the primary and its replica, in the order of their names.
        primary: the name of the one that is the primary.
        etcd: the one etcd.
        weaviate: the one Weaviate; None where its program was not there.
        supervisor: what keeps the servers up; None without servers.
        servers: the servers.
        format: of the file.
    """

    redis: list[Member] = []
    primary: str = ""
    etcd: Member | None = None
    weaviate: Member | None = None
    supervisor: Member | None = None
    servers: list[Member] = []
    format: int = FORMAT

    @property
    def redis_urls(self) -> str:
        """What servers take as ``redis_urls``."""
        return ",".join(f"redis://{member.address}" for member in self.redis)

    @property
    def etcd_endpoints(self) -> str:
        """What servers take as ``etcd_endpoints``."""
        return "" if self.etcd is None else self.etcd.address

    @property
    def environment(self) -> dict[str, str]:
        """What servers are told of the engines, as variables of their environment."""
        told = {"NOOSPHERE_REDIS_URLS": self.redis_urls, "NOOSPHERE_ETCD_ENDPOINTS": self.etcd_endpoints}
        if self.weaviate is not None:
            told["NOOSPHERE_WEAVIATE_URL"] = f"http://{self.weaviate.address}"
            told["NOOSPHERE_WEAVIATE_GRPC"] = self.weaviate.grpc
            told["NOOSPHERE_WEAVIATE_API_KEY"] = self.weaviate.key
        return told

    @property
    def server(self) -> str:
        """What clients take as ``NOOSPHERE_SERVER``."""
        return ",".join(member.address for member in self.servers)

    @property
    def members(self) -> list[Member]:
        """Every process, in the order in which they have to be stopped."""
        listed = (self.supervisor, *self.servers, *self.redis, self.etcd, self.weaviate)
        return [member for member in listed if member is not None]


def read_fleet(file: Path) -> Fleet:
    """Reads a fleet.

    Raises:
        FleetError: there is none, or it is no such file.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise FleetError(f"{file}: there is no fleet (make cluster starts one)") from None
    except OSError as error:
        raise FleetError(f"{file}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(data, type=Fleet)
    except msgspec.MsgspecError as error:
        raise FleetError(f"{file}: is no description of a fleet: {error}") from None
    if found.format != FORMAT:
        raise FleetError(f"{file}: has format {found.format}, this program knows {FORMAT}")
    return found


@contextlib.contextmanager
def changing(folder: Path) -> Iterator[Fleet]:
    """Gives the fleet of a folder to be changed, to one process at a time, and writes what became of it.

    Raises:
        FleetError: the file cannot be used.
    """
    with locked(folder / "fleet.lock"):
        file = folder / FILE
        fleet = read_fleet(file) if file.exists() else Fleet()
        yield fleet
        fresh = folder / f"{FILE}.new"
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(fleet)) + b"\n")
        fresh.replace(file)


@contextlib.contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a lock for the length of the block; the end of the process frees it, too.

    Raises:
        FleetError: somebody else holds it, and ``wait`` is not set.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise FleetError(f"{file}: another program is changing this fleet") from None
        yield
    finally:
        os.close(handle)
