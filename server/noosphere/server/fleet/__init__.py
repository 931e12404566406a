"""A fleet on one machine: Redis with a replica, etcd, Weaviate, and servers on them, which all outlive their starter.

``python -m noosphere.server.fleet up | cluster | roll | down`` is what ``make`` calls. A folder holds everything: what
the processes write, and ``fleet.json`` with where they are.
"""

from .engines import RedisError, ask, catch_up, copy_of_redis, info, start_redis
from .manage import bring_down, bring_up, bring_up_servers, roll_servers
from .processes import FleetError, end, is_alive, send
from .state import Fleet, Member, changing, read_fleet

__all__ = [
    "Fleet",
    "FleetError",
    "Member",
    "RedisError",
    "ask",
    "bring_down",
    "bring_up",
    "bring_up_servers",
    "catch_up",
    "changing",
    "copy_of_redis",
    "end",
    "info",
    "is_alive",
    "read_fleet",
    "roll_servers",
    "send",
    "start_redis",
]
