"""A whole fleet of real processes: replicas of ``noosphere serve``, a Redis primary with its replica, etcd, Weaviate.

Tests take the fixture ``fleet`` (three replicas, everything started), or make one of their own::

    pytestmark = [needs_redis, needs_etcd]

    async def test_something(fleet: Fleet) -> None:
        async with connect(fleet.servers[0].address, agent="a") as a:
            ...
        fleet.servers[1].kill()       # as kill -9 does; its address stays its own
        fleet.servers[1].restart()    # on the same address
        fleet.fail_over()             # kill -9 of the primary; its replica is promoted
        fleet.etcd.pause()            # connections stay, nothing is answered

Each server is a ``ServerProcess`` (tests/support/process.py: kill, terminate, pause, resume, restart, stderr), each
Redis a ``RedisProcess``, etcd an ``EtcdProcess``; all of them start, kill, pause and resume alike. Whatever was started
is ended by ``close``, also when a test fails in the middle. Ports are free ones on loopback, files under one folder.

Proxies between the parts: make the fleet with ``servers=0`` and add servers that are told other addresses::

    with Fleet(tmp_path, servers=0) as fleet:
        server = fleet.add(redis_urls=f"redis://{proxy.address}", etcd_endpoints=other_proxy.address)

With ``weaviate=True`` (and `needs_weaviate`) there is one, and replicas have their fact store there; ``fleet.weaviate``
is the process, which is killed, paused and restarted like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.support.etcd import EtcdProcess
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, catch_up
from tests.support.weaviate import WeaviateProcess

OPTIONS = ("--embedder", "none")
"""Loading a model takes a second of each process."""


class Fleet:
    """Replicas on one working store and one coordinator. Engines are started by ``start``, or as a context manager.

    Args:
        folder: where everything goes.
        servers: how many replicas are started.
        options: further options of every ``noosphere serve``.
        redis: further settings of both Redis processes, as in their configuration file, with ``_`` for ``-``.
        weaviate: whether there is a fact store.

    Attributes:
        servers: the replicas, in the order in which they were added, whether they run or not.
        primary: the Redis that is the primary; another one after ``fail_over``.
        replica: the Redis that follows it; None after ``fail_over``, until ``follow`` was called.
        etcd: the coordinator's etcd, of one member.
        weaviate: the fact store's Weaviate; None without one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        servers: int = 3,
        options: Sequence[str] = OPTIONS,
        redis: dict[str, str] | None = None,
        weaviate: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = tuple(options)
        self._count = servers
        self._redis = {name.replace("_", "-"): value for name, value in (redis or {}).items()}
        self.servers: list[ServerProcess] = []
        self.primary = RedisProcess(folder / "redis-1", **self._redis)
        self.replica: RedisProcess | None = RedisProcess(
            folder / "redis-2", replicaof=f"127.0.0.1 {self.primary.port}", **self._redis
        )
        self.etcd = EtcdProcess(folder / "etcd")
        self.weaviate = WeaviateProcess(folder / "weaviate") if weaviate else None
        self._all_redis = (self.primary, self.replica)

    @property
    def address(self) -> str:
        """The addresses of all replicas, separated by commas, as a client takes them."""
        return ",".join(self.addresses)

    @property
    def addresses(self) -> list[str]:
        """The address of each replica."""
        return [server.address for server in self.servers]

    @property
    def redis_urls(self) -> str:
        """What replicas are told of Redis, unless they are told otherwise."""
        return ",".join(redis.url for redis in self._all_redis if redis is not None)

    def start(self) -> None:
        """Starts the engines, and the replicas one after the other; returns once all of them answer."""
        self.primary.start()
        assert self.replica is not None
        self.replica.start()
        catch_up(self.primary, self.replica)
        self.etcd.start()
        if self.weaviate is not None:
            self.weaviate.start()
        for _ in range(self._count):
            self.add()

    def add(
        self,
        *,
        redis_urls: str | None = None,
        etcd_endpoints: str | None = None,
        weaviate: str | None = None,
        options: Sequence[str] = (),
    ) -> ServerProcess:
        """Adds and starts one more replica.

        Args:
            redis_urls: where it looks for Redis; None: at both processes of this fleet.
            etcd_endpoints: where it looks for etcd; None: at the one of this fleet.
            weaviate: what its configuration says of Weaviate; None: the one of this fleet, if there is one.
            options: further options of this one.
        """
        server = self.prepare(redis_urls=redis_urls, etcd_endpoints=etcd_endpoints, weaviate=weaviate, options=options)
        server.start()
        return server

    def prepare(
        self,
        *,
        redis_urls: str | None = None,
        etcd_endpoints: str | None = None,
        weaviate: str | None = None,
        options: Sequence[str] = (),
    ) -> ServerProcess:
        """Adds one more replica without starting it. See :meth:`add`."""
        number = len(self.servers) + 1
        # The addresses of Redis are a secret, which no option takes.
        config = self._folder / f"server-{number}.toml"
        if weaviate is None:
            weaviate = "" if self.weaviate is None else self.weaviate.config
        config.write_text(
            f'redis_urls = "{self.redis_urls if redis_urls is None else redis_urls}"\n'
            f'etcd_endpoints = "{self.etcd.endpoint if etcd_endpoints is None else etcd_endpoints}"\n' + weaviate
        )
        given = ("--config", str(config), *self._options, *options)
        # A replica makes no data folder.
        server = ServerProcess(self._folder / f"no-data-{number}", given)
        self.servers.append(server)
        return server

    def fail_over(self, *, lose: bool = False) -> None:
        """Kills the primary and promotes its replica; returns at once.

        Args:
            lose: the replica is taken as it is. Without it, it has everything before that.
        """
        old, new = self.primary, self.replica
        assert new is not None, "there is no replica any more; `follow` brings one back"
        if not lose:
            catch_up(old, new)
        old.kill()
        new.promote()
        self.primary, self.replica = new, None

    def cut_replica_off(self) -> None:
        """Has the replica stop following: what is written from now on is lost by ``fail_over(lose=True)``."""
        assert self.replica is not None
        catch_up(self.primary, self.replica)
        # Nobody answers there; it goes on looking and stays a replica.
        self.replica.ask("REPLICAOF", "127.0.0.1", 1)

    def follow(self) -> RedisProcess:
        """Brings the Redis that was killed back, as the replica of the present primary; returns it once it has all."""
        assert self.replica is None
        (back,) = (redis for redis in self._all_redis if redis is not None and redis is not self.primary)
        back.kill()
        back.start()
        back.ask("REPLICAOF", "127.0.0.1", self.primary.port)
        catch_up(self.primary, back)
        self.replica = back
        return back

    def close(self) -> None:
        """Ends whatever still runs."""
        for server in self.servers:
            server.close()
        for redis in self._all_redis:
            if redis is not None:
                redis.kill()
        self.etcd.kill()
        if self.weaviate is not None:
            self.weaviate.kill()

    def __enter__(self) -> Fleet:
        """Starts everything."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends everything."""
        self.close()
