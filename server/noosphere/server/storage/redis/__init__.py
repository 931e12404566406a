"""The working store on Redis: any number of server processes over one primary, which may fail over."""

from .instance import UnfitRedis
from .store import RedisStore

__all__ = ["RedisStore", "UnfitRedis"]
