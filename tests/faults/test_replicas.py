"""Replicas: servers without a data folder that share Redis and etcd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.health import NOT_SERVING, SERVING, health, until_health, until_service
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, needs_redis
from tests.support.transport import FACTS, MEMORY

from noosphere.client import Conflict, RetryPolicy, Unavailable, connect
from noosphere.v1 import admin_service_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

pytestmark = [needs_redis, needs_etcd]

COORDINATION = "noosphere.v1.CoordinationService"
INCREMENTS = 40
SECONDS_MAX = 60


def added(mine: str, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
    """Returns the plan with one step more."""
    return [*(held or []), mine]


async def test_agents_on_different_replicas_update_one_key_without_loss(fleet: Fleet) -> None:
    async def work(address: str, name: str) -> None:
        async with connect(address, agent=name, timeout=60) as client:
            plan = client.shared("s").key("plan", list[str])
            for number in range(INCREMENTS):
                await plan.update(partial(added, f"{name}{number}"), attempts=1_000)
                await client.shared("s").key("tally").increment(1)

    await asyncio.gather(*(work(address, name) for address, name in zip(fleet.addresses, "abc", strict=True)))
    wanted = [f"{name}{number}" for name in "abc" for number in range(INCREMENTS)]
    for address in fleet.addresses:
        async with connect(address, agent="reader", takeover=True) as reader:
            values = {record.key: record.value async for record in reader.shared("s").list()}
            assert sorted(values["plan"]) == sorted(wanted), "each is there once"
            assert values["tally"] == 3 * INCREMENTS
    assert not list(fleet._folder.glob("no-data-*")), "a replica makes no data folder"


async def test_a_watch_at_one_replica_tells_what_is_written_at_another(fleet: Fleet) -> None:
    async with (
        connect(fleet.addresses[0], agent="a") as a,
        connect(fleet.addresses[1], agent="b") as b,
        asyncio.timeout(60),
        a.shared("s").watch() as watch,
    ):
        await b.shared("s").put("plan", 1)
        async for batch in watch:
            if batch.kind == "changes":
                assert [event.key for event in batch.events] == ["plan"]
                break


async def test_an_incarnation_and_its_private_state_go_on_at_another_replica(fleet: Fleet) -> None:
    async with connect(fleet.addresses[0], agent="a") as a:
        await a.private.put("note", "mine")
        fleet.servers[0].kill()
        async with connect(fleet.addresses[1], agent="a", takeover=True) as again:
            note = await again.private.get("note")
            assert note is not None
            assert note.value == "mine"


def servers_of(address: str) -> dict[str, bool]:
    """Returns the addresses of a fleet's servers as one of them lists them, and whether each leads."""
    with grpc.insecure_channel(address) as channel:
        reply = AdminServiceStub(channel).ListServers(admin_service_pb2.ListServersRequest(), timeout=SECONDS_MAX)
    for server in reply.servers:
        assert (server.address == address) == (server.server_id == reply.answered_by)
    return {server.address: server.leader for server in reply.servers}


def until(holds: Callable[[], bool]) -> None:
    """Returns once something holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.1)


def leader_of(fleet: Fleet) -> ServerProcess:
    """Returns the running server that leads; waits for an election."""
    running = {server.address: server for server in fleet.servers if server.process and server.process.poll() is None}
    found: list[ServerProcess] = []

    def elected() -> bool:
        listed = servers_of(next(iter(running)))
        found[:] = [running[address] for address, leads in listed.items() if leads and address in running]
        return len(found) == 1

    until(elected)
    return found[0]


def test_servers_know_each_other_and_who_leads(fleet: Fleet) -> None:
    until(lambda: set(servers_of(fleet.addresses[0])) == set(fleet.addresses))
    first = leader_of(fleet)
    others = [server for server in fleet.servers if server is not first]
    until(lambda: all(sum(servers_of(server.address).values()) == 1 for server in fleet.servers))
    assert first.terminate() == 0
    until(lambda: set(servers_of(others[0].address)) == {server.address for server in others})
    second = leader_of(fleet)
    assert second in others
    second.kill()
    (third,) = (server for server in others if server is not second)
    assert leader_of(fleet) is third, "once the lease has lapsed"
    until(lambda: set(servers_of(third.address)) == {third.address})
    first.restart()
    until(lambda: servers_of(first.address) == {third.address: True, first.address: False})


async def test_a_leader_that_stops_hands_over_before_its_last_call_ends(tmp_path: Path) -> None:
    # A stream of reflection goes on for as long as its client wants: it knows of no drain.
    options = [*OPTIONS, "--reflection", "--drain-seconds", "600"]
    with Fleet(tmp_path, servers=2, options=options) as fleet:
        first = await asyncio.to_thread(leader_of, fleet)
        (other,) = (server for server in fleet.servers if server is not first)
        async with grpc.aio.insecure_channel(first.address) as channel:
            stream = ServerReflectionStub(channel).ServerReflectionInfo()
            question = ServerReflectionRequest(list_services="")
            await stream.write(question)
            assert (await stream.read()).list_services_response.service
            ending = asyncio.ensure_future(asyncio.to_thread(first.terminate))
            await asyncio.to_thread(until, lambda: servers_of(other.address) == {other.address: True})
            await stream.write(question)
            assert (await stream.read()).list_services_response.service, "calls under way go on"
            assert not ending.done()
            await stream.done_writing()
            assert await ending == 0


async def test_what_has_ended_is_swept_whoever_leads(fleet: Fleet) -> None:
    killed = await asyncio.to_thread(leader_of, fleet)
    (address, *_) = [server.address for server in fleet.servers if server is not killed]
    async with (
        connect(address, agent="a", timeout=SECONDS_MAX) as a,
        asyncio.timeout(SECONDS_MAX),
        a.shared("s").watch() as watch,
    ):
        killed.kill()
        await a.shared("s").put("short", 1, ttl=1)
        async for batch in watch:
            # A read would tell that it has ended, but only the sweep writes so into the log.
            if batch.kind == "changes" and [event.kind for event in batch.events] == ["expire"]:
                break


async def test_without_etcd_work_goes_on_until_the_epochs_lease_ends_and_locks_do_not(fleet: Fleet) -> None:
    address = fleet.addresses[0]
    once = RetryPolicy(attempts_max=1)
    async with connect(address, agent="a", timeout=SECONDS_MAX, retry=once, coalesce=False) as a:
        space = a.shared("s")
        await space.put("kept", 1)
        fleet.etcd.pause()
        await space.put("kept", 2, blind=True)
        with pytest.raises(Unavailable, match="ENGINE_UNAVAILABLE"):
            async with a.lock("deploy"):
                pass
        with pytest.raises(grpc.RpcError, match="etcd does not answer"):
            await asyncio.to_thread(servers_of, address)
        await until_health(address, NOT_SERVING)
        assert await health(address, COORDINATION) == NOT_SERVING
        with pytest.raises(Unavailable, match="ENGINE_UNAVAILABLE"):
            await space.get("kept")
        assert await health(address, "liveness") == SERVING
        fleet.etcd.resume()
        await until_health(address, SERVING)
        kept = await space.get("kept")
        assert kept is not None
        assert kept.value == 2
        async with a.lock("deploy"):
            pass
    await asyncio.to_thread(leader_of, fleet)


async def test_each_service_is_as_healthy_as_the_engine_that_it_needs(fleet: Fleet) -> None:
    address = fleet.addresses[0]
    await until_health(address, SERVING, MEMORY, COORDINATION)
    assert await health(address, FACTS) == NOT_SERVING, "replicas have no store of facts"
    fleet.etcd.kill()
    await until_service(address, NOT_SERVING, COORDINATION)
    # Until the epoch's lease ends reads and writes go on, and whoever balances load sends them here.
    fleet.etcd.start()
    await until_health(address, SERVING, MEMORY, COORDINATION)


async def test_a_failover_while_etcd_is_away_is_dealt_with_when_it_is_back(fleet: Fleet) -> None:
    async with connect(fleet.address, agent="a", timeout=SECONDS_MAX) as a:
        await a.shared("s").put("kept", 1)
        fleet.etcd.pause()
        await asyncio.to_thread(fleet.fail_over)
        for address in fleet.addresses:
            await until_health(address, NOT_SERVING)
        writing = asyncio.create_task(a.shared("s").key("tally").increment(1))
        await asyncio.sleep(0.5)
        assert not writing.done(), "nobody knows which epoch it is"
        fleet.etcd.resume()
        await writing
        for address in fleet.addresses:
            await until_health(address, SERVING)
        values = {record.key: record.value async for record in a.shared("s").list()}
        assert values == {"kept": 1, "tally": 1}


def test_a_leader_that_was_stopped_past_its_lease_leads_no_longer(fleet: Fleet) -> None:
    first = leader_of(fleet)
    first.pause()
    others = [server for server in fleet.servers if server is not first]
    until(lambda: any(servers_of(others[0].address).get(server.address) for server in others))
    first.resume()

    def leads_no_longer() -> bool:
        listed = servers_of(first.address)
        return set(listed) == set(fleet.addresses) and not listed[first.address] and sum(listed.values()) == 1

    until(leads_no_longer)


def start_error(tmp_path: Path, config: str) -> str:
    """Returns what a server says that does not start."""
    file = tmp_path / "noosphere.toml"
    file.write_text(config)
    process = ServerProcess(tmp_path / "data", ("--config", str(file), "--embedder", "none"))
    with pytest.raises(AssertionError):
        process.start()
    assert not process.data.exists()
    return process.stderr.strip()


@pytest.fixture
def redis(tmp_path: Path) -> RedisProcess:
    """A Redis that nobody has started."""
    return RedisProcess(tmp_path / "redis")


def test_without_etcd_it_does_not_start(tmp_path: Path, redis: RedisProcess) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    said = start_error(tmp_path, f'redis_urls = "{redis.url}"\netcd_endpoints = "{nobody}"\n')
    assert said.endswith(f"etcd at {nobody} cannot be used: etcd does not answer")
    assert len(said.splitlines()) == 1


def test_without_redis_it_does_not_start(tmp_path: Path, redis: RedisProcess) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    try:
        etcd.start()
        config = f'redis_urls = "{redis.url}"\netcd_endpoints = "{etcd.endpoint}"\n'
        assert "the working store on Redis cannot be opened" in start_error(tmp_path, config)
        etcd.put("noosphere/format", b"from the future")
        assert "etcd holds format from the future" in start_error(tmp_path, config)
    finally:
        etcd.kill()
