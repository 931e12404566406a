"""What has to run for a product: its server, a Redis, a pair of them, or nothing; and how that fails in the middle.

A failure is the same for all that keep state in the same kind of place. A Redis primary dies and its replica, which has
not had the last writes, takes over: through a switch for those who know one address, by themselves for those who know
both. A server of its own, or the agents' process if the product lives there, is killed and started on the same files.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.bench.children import Child, start_server
from tests.bench.engines import NO_ETCD, NO_REDIS
from tests.support.etcd import EtcdProcess
from tests.support.ports import free_port
from tests.support.redis import RedisProcess, catch_up
from tests.support.redis_pair import cut_off, fail_over

from .adapter import Place
from .catalogue import Variant
from .environments import environment
from .group import ROOT, Group
from .switch import Switch

_START_SECONDS_MAX = 180.0
"""agent-memory-server imports for ten seconds on an idle core."""

_QUIET = {"NOOSPHERE_EMBEDDER": "none"}
"""Nothing here is found by meaning, and loading a model takes seconds."""


class Missing(Exception):
    """A program that a product needs is not installed; the message names it."""


class Site:
    """What runs for one variant. Made by :func:`site`.

    Attributes:
        place: where the product keeps its state.
        loses: whether a failure takes acknowledged writes along that the product could not have kept: those that the
            replica has not had.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.loses = False

    async def prepare_failure(self) -> None:
        """From now on, what is written is lost by a failure, if it is of the kind that loses."""

    async def fail(self, group: Group) -> bool:
        """Fails; returns once it serves again. Tells whether the agents have died with it."""
        await group.kill()
        return True


class _OnRedis(Site):
    def __init__(
        self, place: Place, primary: RedisProcess, replica: RedisProcess | None, switch: Switch | None
    ) -> None:
        super().__init__(place)
        self.loses = True
        self._primary, self._replica, self._switch = primary, replica, switch

    async def prepare_failure(self) -> None:
        assert self._replica is not None
        await asyncio.to_thread(cut_off, self._primary, self._replica)

    async def fail(self, group: Group) -> bool:
        assert self._replica is not None
        await asyncio.to_thread(fail_over, self._primary, self._replica)
        if self._switch is not None:
            self._switch.turn(_address(self._replica))
        return False


class _Embedded(Site):
    def __init__(self, folder: Path, logs: Path) -> None:
        super().__init__(Place(str(folder), ""))
        self._data, self._logs = folder / "data", logs
        self._server: Child | None = None

    async def start(self, listen: str = "127.0.0.1:0") -> None:
        self._server = await start_server(self._data, self._logs, environment=_QUIET, listen=listen)
        self.place = Place(self.place.folder, self._server.address)

    async def fail(self, group: Group) -> bool:
        assert self._server is not None
        self._server.signal(signal.SIGKILL)
        await self._server.kill()
        await self.start(self.place.address)
        return False

    async def close(self) -> None:
        if self._server is not None:
            await self._server.kill()


@contextlib.asynccontextmanager
async def site(variant: Variant, folder: Path, *, failing: bool = False, install: bool = True) -> AsyncIterator[Site]:
    """Runs what a variant needs, on a new folder.

    Args:
        variant: which.
        folder: where everything goes; it must not be there yet.
        failing: whether it will have to fail: then Redis has a replica.
        install: whether the environment of a server may be made.

    Raises:
        Missing: a program is not installed.
        BenchError: a server of ours does not start.
        Uninstallable: a server of a peer's cannot be had.
    """
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with contextlib.AsyncExitStack() as stack:
        if variant.needs == "nothing":
            yield Site(Place(str(folder), ""))
            return
        if variant.needs == "noosphere":
            embedded = _Embedded(folder, folder)
            stack.push_async_callback(embedded.close)
            await embedded.start()
            yield embedded
            return
        if NO_REDIS:
            raise Missing(NO_REDIS)
        primary, replica = await _pair(stack, folder, failing)
        if variant.needs == "noosphere on redis":
            urls = ",".join(redis.url for redis in (primary, replica) if redis is not None)
            address = await _clustered(stack, folder, urls)
            yield _OnRedis(Place(str(folder), address), primary, replica, None)
            return
        switch = await stack.enter_async_context(Switch(_address(primary))) if failing else None
        address = _address(primary) if switch is None else switch.address
        if variant.needs == "agent-memory-server":
            python = await asyncio.to_thread(environment, variant.environment, install=install)
            address = await _memory_server(stack, folder, python, f"redis://{address}")
        yield _OnRedis(Place(str(folder), address), primary, replica, switch)


async def _pair(
    stack: contextlib.AsyncExitStack, folder: Path, failing: bool
) -> tuple[RedisProcess, RedisProcess | None]:
    primary = RedisProcess(folder / "primary")
    stack.callback(primary.kill)
    await asyncio.to_thread(primary.start)
    if not failing:
        return primary, None
    replica = RedisProcess(folder / "replica", replicaof=f"127.0.0.1 {primary.port}")
    stack.callback(replica.kill)
    await asyncio.to_thread(replica.start)
    await asyncio.to_thread(catch_up, primary, replica)
    return primary, replica


async def _clustered(stack: contextlib.AsyncExitStack, folder: Path, urls: str) -> str:
    if NO_ETCD:
        raise Missing(NO_ETCD)
    etcd = EtcdProcess(folder / "etcd")
    stack.callback(etcd.kill)
    await asyncio.to_thread(etcd.start)
    engines: Mapping[str, str] = {"NOOSPHERE_REDIS_URLS": urls, "NOOSPHERE_ETCD_ENDPOINTS": etcd.endpoint}
    server = await start_server(folder / "none", folder, environment={**_QUIET, **engines})
    stack.push_async_callback(server.kill)
    return server.address


async def _memory_server(stack: contextlib.AsyncExitStack, folder: Path, python: Path, redis_url: str) -> str:
    port = free_port()
    words = ("-m", "tests.bench.peers.agent_memory_server", redis_url, str(port))
    with (folder / "agent-memory-server.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(str(python), *words, cwd=ROOT, stdout=log, stderr=log)

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not await asyncio.to_thread(_answers, f"http://127.0.0.1:{port}/v1/health"):
        if process.returncode is not None or time.monotonic() > deadline:
            said = (folder / "agent-memory-server.log").read_text()[-300:].strip()
            raise Missing(f"agent-memory-server does not answer; its log ends with: {said}")
        await asyncio.sleep(0.1)
    return f"127.0.0.1:{port}"


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2.0) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _address(redis: RedisProcess) -> str:
    return f"127.0.0.1:{redis.port}"
