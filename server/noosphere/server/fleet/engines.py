"""Redis and etcd as processes: how they are started here, when they are ready, and what they are asked."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .processes import POLL_SECONDS, FleetError, Identity, end, free_address, is_alive, spawn, split, tail, undisturbed

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
ASK_SECONDS_MAX = 5.0
_READ_BYTES = 65_536

SOURCES: Mapping[str, str] = {
    "redis-server": "Debian: apt-get install redis-server",
    "etcd": "Debian: apt-get install etcd-server",
    "weaviate-server": "make weaviate builds it, which needs Go",
}
"""The programs, and how each is had."""

REDIS_SETTINGS: Mapping[str, str] = {
    "appendonly": "yes",
    # An acknowledgement is as durable as that of a server with a data folder.
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "save": "",
    # A replica begins at once.
    "repl-diskless-sync-delay": "0",
}


class RedisError(Exception):
    """What Redis has answered."""


def program(name: str) -> str:
    """Returns the path of a program.

    Raises:
        FleetError: it is not installed.
    """
    found = find_program(name)
    if found is None:
        raise FleetError(f"{name} is not installed ({SOURCES[name]})")
    return found


def find_program(name: str) -> str | None:
    """Returns the path of a program on ``PATH``, or else beside this Python; None if it is in neither place."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def redis_command(address: str, folder: Path, settings: Mapping[str, str]) -> list[str]:
    """Returns the command line of a Redis on a folder."""
    host, port = split(address)
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [program("redis-server"), "--bind", host, "--port", str(port), "--dir", str(folder), *options]


def etcd_command(address: str, peer: str, folder: Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Returns the command line of an etcd of a single member; ``settings`` are further ones, and win."""
    options = {
        "name": "one",
        "data-dir": str(folder / "data"),
        "listen-client-urls": f"http://{address}",
        "advertise-client-urls": f"http://{address}",
        "listen-peer-urls": f"http://{peer}",
        "initial-advertise-peer-urls": f"http://{peer}",
        "initial-cluster": f"one=http://{peer}",
        # Elections of one member need no patience, and the shortest lease follows from them.
        "heartbeat-interval": "10",
        "election-timeout": "100",
        "log-level": "warn",
        **(settings or {}),
    }
    return [program("etcd"), *(f"--{name}={value}" for name, value in options.items())]


def start_redis(
    address: str,
    folder: Path,
    log: Path,
    started: Callable[[Identity], None],
    *,
    primary: str = "",
    **settings: str,
) -> None:
    """Starts a Redis; returns once it answers and has loaded its files.

    Args:
        address: where it listens.
        folder: where its files are.
        log: the file for its output.
        started: is told of the process at once: whoever is interrupted while it loads must not lose sight of it.
        primary: the address of the one that it replicates; empty if it is none of anybody's.
        settings: further settings, as in its configuration file.

    Raises:
        FleetError: it is not installed, or not ready in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = {**REDIS_SETTINGS, **settings}
    if primary:
        options["replicaof"] = " ".join(map(str, split(primary)))
    with undisturbed():
        process = spawn(redis_command(address, folder, options), log)
        started(process)

    def answers() -> bool:
        try:
            return bool(ask(address, "PING", seconds=1.0) == b"PONG")
        except (OSError, RedisError):
            return False

    await_ready(answers, process, f"Redis at {address}", log)


def start_etcd(address: str, peer: str, folder: Path, log: Path, started: Callable[[Identity], None]) -> None:
    """Starts an etcd; returns once it has elected itself. ``started`` is told of the process at once.

    Raises:
        FleetError: it is not installed, or not ready in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with undisturbed():
        process = spawn(etcd_command(address, peer, folder), log)
        started(process)
    await_ready(lambda: is_healthy(address), process, f"etcd at {address}", log)


def is_healthy(address: str) -> bool:
    """Tells whether an etcd serves."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://{address}/health", timeout=ASK_SECONDS_MAX
        ) as reply:
            return bool(json.loads(reply.read())["health"] == "true")
    except (OSError, ValueError, KeyError, urllib.error.URLError):
        return False


def await_ready(ready: Callable[[], bool], process: Identity, what: str, log: Path) -> None:
    """Returns once a process that was started is ready; one that is not in time is ended.

    Raises:
        FleetError: it has ended, or was not ready in time.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while not ready():
        if not is_alive(process):
            raise FleetError(f"{what} ended at once: {tail(log)}")
        if time.monotonic() > deadline:
            end(process, STOP_SECONDS_MAX)
            raise FleetError(f"{what} was not ready within {START_SECONDS_MAX:g} s: {tail(log)}")
        time.sleep(POLL_SECONDS)


def ask(address: str, *command: str | bytes | int, seconds: float = ASK_SECONDS_MAX) -> Any:
    """Sends one command to a Redis over a connection of its own and returns the reply.

    Raises:
        RedisError: Redis has refused it.
        OSError: it does not answer.
        FleetError: the extra ``redis`` is not installed.
    """
    try:
        import hiredis
    except ImportError:
        raise FleetError("hiredis is not installed (pip install 'noosphere[server,redis]')") from None
    with socket.create_connection(split(address), timeout=seconds) as connection:
        connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # Its stub allows one part only.
        reader = hiredis.Reader(replyError=RedisError)
        while (reply := reader.gets()) is False:
            if not (data := connection.recv(_READ_BYTES)):
                raise ConnectionError("Redis has hung up")
            reader.feed(data)
    if isinstance(reply, RedisError):
        raise reply
    return reply


def info(address: str, section: str) -> dict[str, str]:
    """Returns a section of what a Redis says of itself.

    Raises:
        RedisError: Redis has refused it.
        OSError: it does not answer.
    """
    lines = ask(address, "INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def catch_up(primary: str, replica: str, seconds: float = START_SECONDS_MAX) -> None:
    """Returns when a replica has everything that its primary has now.

    Raises:
        FleetError: it has not within so many seconds.
        RedisError: Redis has refused the question.
        OSError: one of them does not answer.
    """
    # WAIT would wait only for what its own connection has written.
    wanted = int(info(primary, "replication")["master_repl_offset"])
    deadline = time.monotonic() + seconds
    while True:
        found = info(replica, "replication")
        if found.get("master_link_status") == "up" and int(found["slave_repl_offset"]) >= wanted:
            return
        if time.monotonic() > deadline:
            raise FleetError(f"the replica at {replica} did not catch up with {primary} within {seconds:g} s")
        time.sleep(POLL_SECONDS)


@contextmanager
def copy_of_redis(folder: Path) -> Iterator[str]:
    """Runs a Redis on a copy of the files of one that has ended, for the length of the block; gives its address.

    Raises:
        FleetError: it cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="noosphere-redis-") as scratch:
        copy = Path(scratch) / "files"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.log"))
        address = free_address()
        started: list[Identity] = []
        try:
            start_redis(address, copy, Path(scratch) / "log", started.append)
            yield address
        finally:
            for process in started:
                end(process, STOP_SECONDS_MAX)
