"""The process's one portal: who uses it, what becomes of it at a fork, and its end with the interpreter."""

from __future__ import annotations

import atexit
import gc
import os
import threading
import weakref
from typing import Any

from ._errors import ForkedClient
from ._portal import Portal


class _Process:
    """The portal of this process.

    Args:
        spoilt: whether gRPC was in use when the process was forked: it would hang or crash here.
    """

    def __init__(self, *, spoilt: bool = False) -> None:
        self.lock = threading.Lock()
        self.portal: Portal | None = None
        self.users = 0
        self.spoilt = spoilt
        # Whatever holds a gRPC channel; of closed clients too, as long as somebody refers to them.
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()


_process = _Process()
_not_ours: list[Any] = []


def borrow() -> Portal:
    """Returns the portal, made if nobody uses it yet; :func:`give_back` must follow.

    Raises:
        ForkedClient: gRPC cannot work in this process.
    """
    if _process.spoilt:
        raise ForkedClient(
            "this process was forked from one with an open connection, so gRPC does not work in it; "
            "fork before connecting, or start processes by spawn or forkserver"
        )
    with _process.lock:
        if _process.portal is None:
            _process.portal = Portal()
        _process.users += 1
        return _process.portal


def give_back(portal: Portal) -> None:
    """Ends the use of the portal, and the portal with its last use."""
    if portal.forked:
        return
    with _process.lock:
        _process.users -= 1
        if _process.users == 0 and _process.portal is not None:
            ended, _process.portal = _process.portal, None
            # Under the lock: never two loops at a time.
            ended.stop()


def track(connection: Any) -> None:
    """Notes an object that holds a gRPC channel for as long as it lives."""
    _process.connections.add(connection)


def _at_exit() -> None:
    """Closes what was left open, so that agents need not wait for its leases; bounded, for nobody waits for it."""
    portal = _process.portal
    if portal is not None:
        portal.stop()


def _before_fork() -> None:
    # Closed clients that await garbage collection would spoil the child.
    if _process.portal is None and _process.connections:
        gc.collect()


def _in_child() -> None:
    global _process
    parents = _process
    spoilt = parents.spoilt or parents.portal is not None or bool(parents.connections)
    # To free a channel in the child would wait for gRPC's thread, which only the parent has, and take the
    # parent's descriptors out of the epoll set that both share.
    _not_ours.extend((parents, list(parents.connections)))
    _process = _Process(spoilt=spoilt)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
