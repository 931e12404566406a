"""The engines beside our server, as their packages install them: Redis, etcd, and redis-py to compare with."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tests.support import etcd as etcd_support
from tests.support.etcd import EtcdProcess
from tests.support.redis import PROGRAM, RedisProcess

from .children import BenchError, cpu_seconds_of

NO_REDIS = "" if PROGRAM is not None else "no redis-server is installed (Debian: apt-get install redis-server)"
"""Why nothing can be measured on Redis; empty where it can."""

NO_ETCD = "" if etcd_support.PROGRAM is not None else "no etcd is installed (Debian: apt-get install etcd-server)"
"""Why there can be no replicas; empty where there can."""

NO_REDIS_PY = (
    "" if importlib.util.find_spec("redis") is not None else "redis-py is not installed (it is in noosphere[dev])"
)
"""Why nothing can be compared with redis-py; empty where it can."""


class BenchRedis:
    """A Redis that runs until its block ends.

    It syncs its log once a second, which is what Redis does unless told otherwise, so that a write is acknowledged
    before it is on disk.

    Attributes:
        url: its address, as our server takes it.
        port: where it listens.
    """

    def __init__(self, process: RedisProcess) -> None:
        self._process = process
        self.url = process.url
        self.port = process.port

    @property
    def version(self) -> str:
        """The version that it states."""
        return self._process.info("server")["redis_version"]

    @property
    def environment(self) -> dict[str, str]:
        """What puts a server's working memory on it."""
        return {"NOOSPHERE_REDIS_URLS": self.url}

    def cpu_seconds(self) -> float:
        """Returns its CPU time so far."""
        return cpu_seconds_of(self._process.pid)

    def forget_times(self) -> None:
        """Counts calls from here on."""
        self._process.ask("CONFIG", "RESETSTAT")

    def times_of(self, command: str) -> dict[str, float]:
        """Returns what a command has taken inside Redis since the counters were reset: calls, and µs of one.

        Raises:
            BenchError: it was not called.
        """
        found: dict[str, float] = {}
        for section, prefix in (("commandstats", "cmdstat_"), ("latencystats", "latency_percentiles_usec_")):
            told = self._process.info(section).get(f"{prefix}{command}")
            if told is None:
                raise BenchError(f"Redis has counted no call of {command}")
            found |= {name: float(figure) for name, _, figure in (part.partition("=") for part in told.split(","))}
        return found


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[BenchRedis]:
    """Runs a Redis of its own on a new folder.

    Raises:
        BenchError: it does not start.
    """
    process = RedisProcess(folder)
    try:
        try:
            process.start()
        except AssertionError as error:
            raise BenchError(f"redis-server does not start; its log says:\n{error}") from None
        yield BenchRedis(process)
    finally:
        process.kill()


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[dict[str, str]]:
    """Runs an etcd of its own on a new folder; yields what has servers coordinate there.

    Raises:
        BenchError: it does not start.
    """
    process = EtcdProcess(folder)
    try:
        try:
            process.start()
        except AssertionError as error:
            raise BenchError(f"etcd does not start; its log says:\n{error}") from None
        yield {"NOOSPHERE_ETCD_ENDPOINTS": process.endpoint}
    finally:
        process.kill()
