"""SIGSTOP of a claim's holder past its lease: the next one gets the task, and the late write is refused."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.faults.conftest import connected
from tests.support.child import child_process
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis

from noosphere.client import ClaimLost, Client, connect
from noosphere.consistency import Reason


@pytest.fixture(params=["alone", pytest.param("replicas", marks=[needs_redis, needs_etcd, pytest.mark.campaign])])
def servers(request: pytest.FixtureRequest) -> tuple[ServerProcess, ServerProcess]:
    """Where the holder is connected, and where the next one."""
    if request.param == "alone":
        server: ServerProcess = request.getfixturevalue("server")
        return server, server
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.servers[0], fleet.servers[1]


async def test_a_holder_that_was_stopped_past_its_lease_cannot_write(
    servers: tuple[ServerProcess, ServerProcess],
) -> None:
    space = "shared/board"
    here, there = servers
    async with connected(there) as api:
        agent = await api.agent("next")
        await agent.put(space, "t", 1)
        with child_process("holder", here.address, space) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "claimed\n"
            holder.send_signal(signal.SIGSTOP)
            # Waits until the lease has lapsed, however long that takes here.
            task = await agent.claim(space, wait_ms=60_000)
            assert task is not None
            assert task.claim.attempts == 2
            holder.send_signal(signal.SIGCONT)
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            assert holder.stdout.readline().strip() == Reason.CLAIM_LOST
            record = await agent.get(space, "t")
            assert record.version == task.version, "nothing was written"
            await agent.complete(space, task, b'"in time"')
            assert (await agent.get(space, "t")).claim.result.data == b'"in time"'


async def test_a_client_whose_server_stands_still_ends_the_work_on_its_claim(server: ServerProcess) -> None:
    """The other way round: the lease may have run out unseen, so the body of work is ended."""

    async def work(client: Client) -> None:
        async with client.shared("board").board("todo/").claim(lease=1) as claim:
            assert claim is not None
            server.pause()
            await asyncio.Event().wait()

    async with connect(server.address, agent="a", timeout=5) as client:
        await client.shared("board").board("todo/").add({"n": 1}, "1")
        try:
            with pytest.raises(ClaimLost):
                await work(client)
        finally:
            server.resume()
