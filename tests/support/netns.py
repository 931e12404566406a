"""Network namespaces: processes that reach others only over links, which a test takes down.

A link that is down loses every packet without a word to either side, as a switch does that has lost its power; no proxy
can do that to connections that are being made, or to what kernels say to each other about those that are open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_NETWORK = 0x40000000
"""CLONE_NEWNET."""

_LINKS_MAX = 60
"""A network of 256 addresses has room for so many links of four."""


class Link:
    """A cable between a namespace and the machine.

    Attributes:
        here: the machine's address on it.
        there: the namespace's address on it.
    """

    def __init__(self, name: str, here: str, there: str) -> None:
        self._name = name
        self.here = here
        self.there = there

    def cut(self) -> None:
        """Loses every packet from now on."""
        _ip("link", "set", self._name, "down")

    def heal(self) -> None:
        """Carries packets again."""
        _ip("link", "set", self._name, "up")


class Namespace:
    """A network namespace. Made by :func:`network_namespace`."""

    def __init__(self, name: str) -> None:
        self.name = name
        # For tests, RFC 2544; at random, so that several runs can share a machine.
        self._net = f"198.18.{secrets.randbelow(256)}"
        self._links = 0

    @property
    def command(self) -> tuple[str, ...]:
        """What to put before a command so that it runs inside."""
        return ("ip", "netns", "exec", self.name)

    def enter(self) -> None:
        """Moves the calling thread inside, for good; sockets that it has made before stay where they are."""
        library = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.name}", "rb") as handle:
            if library.setns(handle.fileno(), _NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {self.name}")

    def link(self) -> Link:
        """Lays one more cable."""
        assert self._links < _LINKS_MAX
        first = 4 * self._links
        self._links += 1
        here, there = f"{self._net}.{first + 1}", f"{self._net}.{first + 2}"
        outer, inner = f"{self.name}o{self._links}", f"{self.name}i{self._links}"
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{here}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", self.name, "addr", "add", f"{there}/30", "dev", inner)
        _ip("-n", self.name, "link", "set", inner, "up")
        return Link(outer, here, there)


@contextlib.contextmanager
def network_namespace() -> Iterator[Namespace]:
    """Makes a namespace for the length of the block, or skips the test where that is not allowed."""
    if shutil.which("ip") is None:
        pytest.skip("no network is parted: the program ip is not installed (Debian: apt-get install iproute2)")
    if os.geteuid() != 0:
        pytest.skip("no network is parted: making network namespaces takes root")
    made = Namespace(f"nsp{secrets.token_hex(3)}")
    try:
        _ip("netns", "add", made.name)
    except RuntimeError as error:
        pytest.skip(f"no network is parted: this machine allows no network namespaces ({error})")
    try:
        _ip("-n", made.name, "link", "set", "lo", "up")
        try:
            made.link()
        except RuntimeError as error:
            pytest.skip(f"no network is parted: this machine allows no links to network namespaces ({error})")
        yield made
    finally:
        # Its links end with it, both ends of each.
        _ip("netns", "del", made.name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
