"""Adapters for the harness's own tests: one product that does all that it says, and one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.bench.peers.adapter import Adapter, Claimed

_VALUES: dict[str, tuple[Any, int]] = {}


class Sound(Adapter):
    """A dictionary with versions, in one event loop."""

    mode = "loop"

    def load(self, key: str) -> Any:
        return _VALUES.get(f"{self.space}/{key}", (None, 0))

    def save(self, key: str, value: Any, version: Any) -> bool:
        _, current = self.load(key)
        if version is not None and version != current:
            return False
        _VALUES[f"{self.space}/{key}"] = value, current + 1
        return True


class Lossy(Sound):
    """Forgets the second change of every agent, hands every task to everybody, and looks at no version of a guard."""

    def save(self, key: str, value: Any, version: Any) -> bool:
        if isinstance(value, list) and value and value[-1].endswith("-1"):
            return bool(version == self.load(key)[1])
        return super().save(key, value, version)

    async def claim(self, board: str, tasks: Sequence[str], lease_s: float) -> Claimed | None:
        return Claimed(tasks[0], None) if tasks else None

    async def complete(self, board: str, claimed: Claimed) -> bool:
        await self.put(f"{board}/{claimed.task}", {"done": True})
        return True

    async def commit(self, guard: str, version: Any, target: str, result: Any) -> bool:
        return super().save(target, result, None)
