"""SIGSTOP of a lock's holder past its lease: what it writes later under its fence is refused, and its block ends.

On a server by itself, and on replicas: the holder at one of them, the next holder at another.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess

import pytest
from tests.support.child import child_process, goes_back
from tests.support.client_lock_holder import KEY
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis

from noosphere.client import Client, LockLost, Namespace, connect
from noosphere.consistency import Reason

LOCK = "deploy"
SPACE = "launch"
SECONDS_MAX = 60.0


@pytest.fixture(params=["alone", pytest.param("replicas", marks=[needs_redis, needs_etcd, pytest.mark.campaign])])
def addresses(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where the holder is connected, and where the next one."""
    if request.param == "alone":
        server: ServerProcess = request.getfixturevalue("server")
        return server.address, server.address
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.addresses[0], fleet.addresses[1]


async def line_of(process: subprocess.Popen[str]) -> str:
    """Returns the next line that a process prints."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS_MAX):
        return (await asyncio.to_thread(process.stdout.readline)).strip()


async def tokens_written(space: Namespace) -> list[int]:
    """Returns the tokens of all writes, in the order of the log."""
    events = [event async for entry in space.history() for event in entry.events]
    return [event.record.value for event in events if event.key == KEY and event.record is not None]


@pytest.mark.parametrize("kind", ["fenced", "unfenced"])
async def test_a_holder_that_was_stopped_past_its_lease_writes_nothing_under_its_fence(
    addresses: tuple[str, str], kind: str
) -> None:
    here, there = addresses
    with child_process("client_lock_holder", here, SPACE, LOCK, kind) as holder:
        assert holder.stdin is not None
        old = int(await line_of(holder))
        holder.send_signal(signal.SIGSTOP)
        async with connect(there, agent="next", timeout=30) as client:
            # Waits until the lease has lapsed, however long that takes here.
            async with client.lock(LOCK, wait=SECONDS_MAX) as lock:
                assert lock.token > old
                await client.fenced(lock.fence).shared(SPACE).put(KEY, lock.token)
                holder.send_signal(signal.SIGCONT)
                holder.stdin.write("go on\n")
                holder.stdin.flush()
                answer, ending = await line_of(holder), await line_of(holder)
            written = await tokens_written(client.shared(SPACE))
    assert ending == "LOST", "the holder is told that somebody else may have the lock"
    if kind == "fenced":
        assert (answer, written) == (Reason.STALE_FENCE, [lock.token])
        assert not goes_back(written)
    else:
        assert (answer, written) == ("written", [lock.token, old])
        assert goes_back(written), "who writes without a fence is found out"


async def test_a_holder_whose_server_stands_still_is_ended_before_the_lease_is_over(server: ServerProcess) -> None:
    async def work(client: Client) -> None:
        async with client.lock(LOCK, lease=1):
            server.pause()
            await asyncio.Event().wait()

    async with connect(server.address, agent="a", timeout=5) as client:
        try:
            with pytest.raises(LockLost):
                await work(client)
        finally:
            server.resume()


@needs_redis
@needs_etcd
@pytest.mark.campaign
async def test_a_replica_that_dies_takes_no_lock_and_no_member_with_it(fleet: Fleet) -> None:
    several = ",".join(fleet.addresses)
    async with (
        connect(fleet.addresses[1], agent="b", timeout=30) as other,
        connect(several, agent="a", timeout=30) as client,
        client.group("g").join(data=1) as membership,
        client.lock(LOCK) as lock,
    ):
        number = membership.number
        fleet.servers[0].kill()
        await lock.renew()
        leader = await other.election(LOCK).leader()
        assert leader is not None
        assert (leader.holder, leader.token) == (client.actor, lock.token)
        assert [(member.agent, member.number) for member in await other.group("g").members()] == [("a", number)]
        await client.fenced(lock.fence).shared(SPACE).put("k", 1)
