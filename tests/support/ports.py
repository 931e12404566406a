"""Ports for what tests start: no two tests get the same one, and nobody else gets it while its owner is down.

What the kernel gives to outgoing connections begins at 32,768. A port from there may be taken by some client while the
server that had it is killed, and a client that asks for it again and again may in the end be connected to itself.
"""

from __future__ import annotations

import itertools
import os

from noosphere.server.fleet.processes import usable

_FIRST = 10_000
_SLICE = 5_600
_SLICES = 4
# Processes of one run have slices of their own, where there are no more than four; runs begin at different places.
_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SLICES
_start = os.getpid() * 7919 % _SLICE
_next = itertools.count(_start)


def free_port() -> int:
    """Returns a port of loopback that is free now.

    Raises:
        OSError: none is.
    """
    for _ in range(_SLICE):
        port = _FIRST + _number * _SLICE + next(_next) % _SLICE
        if usable(f"127.0.0.1:{port}"):
            return port
    raise OSError(f"no port from {_FIRST + _number * _SLICE} on is free")
