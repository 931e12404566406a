"""A certificate authority of a test, and what a server and its clients need from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import grpc

from noosphere.server.security.issuing import Authority, Issued, write_pair


class Files(NamedTuple):
    """Where a certificate and its key are."""

    certificate: Path
    key: Path


class TestAuthority:
    """Issues certificates into a folder.

    Args:
        folder: where files go; made if missing.
        name: tells it from others.
    """

    __test__ = False

    def __init__(self, folder: Path, name: str = "authority of a test") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._authority = Authority.make(name, _now_ms())
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.pem)

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return self._authority.pem

    def issue(self, *names: str, server: bool = False, days: float = 1) -> Issued:
        """Issues a certificate."""
        return self._authority.issue(list(names), _now_ms(), days, server=server)

    def server(self, stem: str = "server", days: float = 1) -> Files:
        """Writes a certificate for a server on this machine, over the one of the same stem."""
        return self._write(self.issue("localhost", "127.0.0.1", server=True, days=days), stem)

    def client(self, name: str, stem: str = "client") -> Files:
        """Writes a certificate for a client."""
        return self._write(self.issue(name), stem)

    def _write(self, issued: Issued, stem: str) -> Files:
        files = Files(self.folder / f"{stem}.pem", self.folder / f"{stem}.key")
        write_pair(issued, *files, replace=True)
        return files


def channel_credentials(authority: TestAuthority, own: Issued | None = None) -> grpc.ChannelCredentials:
    """Returns what a client trusts and shows."""
    if own is None:
        return grpc.ssl_channel_credentials(authority.pem)
    return grpc.ssl_channel_credentials(authority.pem, own.key, own.certificate)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
