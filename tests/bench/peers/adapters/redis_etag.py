"""State on Redis as Dapr's state store keeps it: a hash of data and version, and a script that compares the etag.

Default: no etag is sent, the last write wins. Best: the etag that was read is sent, and who is refused reads again.
Dapr checks no key when it writes another: that is a look before the write.
"""

from __future__ import annotations

import json
from typing import Any

import redis

from ..adapter import Adapter

_SET = """
local etag = redis.call('HGET', KEYS[1], 'version') or '0'
if ARGV[1] ~= '' and etag ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'data', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
"""


class FirstWrite(Adapter):
    def open(self) -> None:
        host, _, port = self.place.address.rpartition(":")
        self.redis: Any = redis.Redis(host=host, port=int(port), decode_responses=True)
        self.set = self.redis.register_script(_SET)

    def load(self, key: str) -> Any:
        data, etag = self.redis.hmget(self.space + key, "data", "version")
        return json.loads(data or "null"), etag or "0"

    def save(self, key: str, value: Any, version: Any) -> bool:
        return bool(self.set(keys=[self.space + key], args=[version or "", json.dumps(value)]))


class LastWrite(FirstWrite):
    def load(self, key: str) -> Any:
        return super().load(key)[0], None
