"""Claims and watches on Redis as its documentation has them: SET NX PX with a token, and publish/subscribe."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import redis

from ..adapter import Claimed
from .redis_plain import Watched


class Best(Watched):
    async def claim(self, board: str, tasks: Sequence[str], lease_s: float) -> Claimed | None:
        token = secrets.token_hex(8)
        for task in tasks:
            lock = f"{self.space}{board}/{task}/lock"
            if not await self.finished(board, task) and self.redis.set(lock, token, nx=True, px=int(lease_s * 1000)):
                if not await self.finished(board, task):
                    return Claimed(task, token)
                self.redis.delete(lock)
        return None

    async def complete(self, board: str, claimed: Claimed) -> bool:
        lock = f"{self.space}{board}/{claimed.task}/lock"
        self.pipe.reset()
        self.pipe.watch(lock)
        if self.pipe.get(lock) != claimed.token:
            return False
        self.pipe.multi()
        self.pipe.set(f"{self.space}{board}/{claimed.task}", json.dumps({"done": True}))
        self.pipe.delete(lock)
        try:
            return bool(self.pipe.execute())
        except redis.WatchError:
            return False

    async def put(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        self.redis.pipeline().set(self.space + key, text).publish(f"changed:{self.space}{key}", text).execute()

    async def watch(self, key: str) -> AsyncIterator[Any]:
        with self.redis.pubsub() as channel:
            channel.subscribe(f"changed:{self.space}{key}")
            channel.get_message(timeout=5.0)
            yield None
            for message in channel.listen():
                yield json.loads(message["data"])
