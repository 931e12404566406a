"""redis-py as most people use it, and with what Redis has against lost updates: WATCH/MULTI, and SET NX for claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import redis

from ..adapter import Adapter


class Plain(Adapter):
    def open(self) -> None:
        host, _, port = self.place.address.rpartition(":")
        self.redis: Any = redis.Redis(host=host, port=int(port), decode_responses=True)
        self.pipe: Any = self.redis.pipeline()

    def load(self, key: str) -> Any:
        return json.loads(self.redis.get(self.space + key) or "null"), None

    def save(self, key: str, value: Any, version: Any) -> bool:
        return bool(self.redis.set(self.space + key, json.dumps(value)))

    async def note(self, key: str, item: str) -> None:
        self.redis.rpush(self.space + key, item)

    async def items(self, key: str) -> list[str]:
        kind = self.redis.type(self.space + key)
        return list(self.redis.lrange(self.space + key, 0, -1) if kind == "list" else await self.get(key) or [])

    async def batch(self, values: Mapping[str, Any]) -> None:
        self.redis.mset({self.space + key: json.dumps(value) for key, value in values.items()})


class Watched(Plain):
    def load(self, key: str) -> Any:
        self.pipe.reset()
        self.pipe.watch(self.space + key)
        return json.loads(self.pipe.get(self.space + key) or "null"), self.pipe

    def save(self, key: str, value: Any, version: Any) -> bool:
        if version is None:
            return super().save(key, value, version)
        self.pipe.multi()
        self.pipe.set(self.space + key, json.dumps(value))
        try:
            return bool(self.pipe.execute())
        except redis.WatchError:
            return False

    async def commit(self, guard: str, version: Any, target: str, result: Any) -> bool:
        return self.save(target, result, version)
