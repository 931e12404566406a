"""A store through which somebody is always faster: for what happens when every attempt loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.engine import LocalServer

from noosphere.server.ports.store import WorkingStore


class MeddlingStore:
    """The real store, except that ``meddle`` runs before each call of ``method`` and may change what was found.

    Args:
        store: the real one.
        meddle: what to do; calls of its own are not meddled with.
        method: the port's method.
    """

    def __init__(self, store: WorkingStore, meddle: Callable[[], Awaitable[object]], method: str = "commit") -> None:
        self._store = store
        self._meddle = meddle
        self._method = method
        self._inside = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return found if name != self._method else self._meddling(found)

    def _meddling(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if not self._inside:
                self._inside = True
                try:
                    await self._meddle()
                finally:
                    self._inside = False
            return await method(*args, **kwargs)

        return call


def meddle(local: LocalServer, how: Callable[[], Awaitable[object]], method: str = "commit") -> None:
    """Puts a meddling store in the place of a server's own, for all of its replicas."""
    store = MeddlingStore(local.engine.memory.core.store, how, method)
    for engine in local.engines:
        engine.memory.core.store = store


def once(do: Callable[[], Awaitable[object]], *, skip: int = 0) -> Callable[[], Awaitable[object]]:
    """Returns what meddles only once, after letting ``skip`` calls pass."""
    left = [skip]

    async def meddled() -> None:
        left[0] -= 1
        if left[0] == -1:
            await do()

    return meddled
