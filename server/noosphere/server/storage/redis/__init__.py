"""Working store and fact queue on Redis: any number of server processes over one primary, which may fail over."""

from .instance import UnfitRedis
from .queue import RedisFactQueue
from .store import RedisStore
from .wire import Trust

__all__ = ["RedisFactQueue", "RedisStore", "Trust", "UnfitRedis"]
