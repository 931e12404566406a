"""The worlds of the behaviour suite."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests.support import threaded
from tests.support.engine import LocalServer, local_server
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.pipelined import pipelined
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.threaded import Connect, sync_transport
from tests.support.transport import ADMIN, ScatteringTransport, SocketTransport
from tests.support.waiting import PAUSE_SECONDS, SECONDS_MAX
from tests.support.worlds import LocalWorld, SocketWorld, World

import noosphere.client
from noosphere.server.transitions.noting import GATHER_MS
from noosphere.v1 import admin_service_pb2 as admin

NO_FACTS = "these replicas have no Weaviate, and so no facts; test_facts_on_weaviate and tests/faults have some that do"
NOT_AT_REPLICAS = {"test_api_facts": NO_FACTS, "test_api_extraction": NO_FACTS}
NOT_IN_A_FLEET = {
    **NOT_AT_REPLICAS,
    "test_api_sessions_ephemeral": "ephemeral sessions are refused on Redis",
    "test_api_transitions": "many turns take long in real time; replicas in process show the same",
}
"""Beginnings of names of modules, and why none of their tests is run there."""


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for all tests that leave it running; they use names of their own."""
    server = ServerProcess(tmp_path_factory.mktemp("binary") / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def replicas_on_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two real replicas on Redis and etcd for all tests, which use names of their own."""
    with Fleet(tmp_path_factory.mktemp("fleet"), servers=2) as fleet:
        yield fleet


def _skip_some(request: pytest.FixtureRequest, reasons: dict[str, str]) -> None:
    module = request.module.__name__.rpartition(".")[2]
    for beginning, reason in reasons.items():
        if module.startswith(beginning):
            pytest.skip(reason)


async def _let_gather(method: str) -> None:
    """Gives replicas the moment for which they gather what they hear of a session, before it is counted."""
    if method in {"EndTurn", "RunTransitions", "GetSessionHealth"}:
        await asyncio.sleep(1.2 * GATHER_MS / 1000)


async def _let_know(transports: Sequence[SocketTransport], method: str) -> None:
    """Has every replica know the rules that one has set: they hear of them within a second, and no test waits."""
    if method not in {"SetPolicy", "EnsureNamespace"}:
        return
    request = admin.ListPoliciesRequest()
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            told = [
                await transport.unary(ADMIN, "ListPolicies", request, admin.ListPoliciesResponse)
                for transport in transports
            ]
            # The one that has set them knows them.
            if len({reply.config_version for reply in told}) == 1:
                return
            await asyncio.sleep(PAUSE_SECONDS)


@pytest.fixture(scope="module")
def emptier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real server for the tests of one module: what looks through all sessions does not meet those of other tests."""
    server = ServerProcess(tmp_path_factory.mktemp("emptier") / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A server in this process whose clock and crashes the test controls."""
    async with local_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["async client", "sync client"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Connects a client: the async one, or the sync one that is called from threads."""
    return noosphere.client.connect if request.param == "async client" else threaded.connect


@pytest.fixture(
    params=[
        "in process",
        pytest.param("two replicas", marks=pytest.mark.campaign),
        "over a socket",
        pytest.param("through a pipeline", marks=pytest.mark.campaign),
        pytest.param("through a sync client", marks=pytest.mark.campaign),
        pytest.param("over a fleet", marks=[needs_redis, needs_etcd]),
    ]
)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A server to talk to: in process, there as two replicas, as the real binary, and that through one stream or from
    threads."""
    if request.param == "two replicas":
        _skip_some(request, NOT_AT_REPLICAS)
    if request.param in {"in process", "two replicas"}:
        async with local_server(tmp_path, replicas=2 if request.param == "two replicas" else 1) as local:
            yield LocalWorld(local)
        return
    if request.param == "over a fleet":
        _skip_some(request, NOT_IN_A_FLEET)
        async with contextlib.AsyncExitStack() as stack:
            servers: Sequence[ServerProcess] = request.getfixturevalue("replicas_on_engines").servers
            channels = [await stack.enter_async_context(grpc.aio.insecure_channel(s.address)) for s in servers]
            transports = [SocketTransport(channel) for channel in channels]
            yield SocketWorld(
                servers[0],
                ScatteringTransport(transports, _let_gather, partial(_let_know, transports)),
                ("redis", "os"),
            )
        return
    server: ServerProcess = request.getfixturevalue("binary")
    if request.param == "through a sync client":
        async with sync_transport(server.address) as threads:
            yield SocketWorld(server, threads)
        return
    async with grpc.aio.insecure_channel(server.address) as channel:
        if request.param == "over a socket":
            yield SocketWorld(server, SocketTransport(channel))
            return
        async with pipelined(channel) as transport:
            yield SocketWorld(server, transport)
