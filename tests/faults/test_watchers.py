"""Many watchers, and slow ones: nobody is affected by another, and nobody is left without a word."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.api import put
from tests.support.process import ServerProcess
from tests.support.statuses import refusal
from tests.support.watching import MESSAGE_SECONDS_MAX, watching

from noosphere.consistency import Reason
from noosphere.v1 import types_pb2 as types

SPACE = "shared/s"
WATCHERS = int(os.environ.get("NOOSPHERE_TEST_WATCHERS", "1000"))
COMMITS = 8
SLOW_WATCHERS = 8
ITEM_BYTES = 60_000
LOG_BYTES_MAX = 1024 * 1024
BYTES_WRITTEN = 128 * 1024 * 1024
RESIDENT_GROWTH_MAX = 80 * 1024 * 1024
"""What the server may grow by, whoever does not read. It takes 40 MiB however much is written; a buffer for each
of those that do not read would take a GiB."""


@pytest.mark.campaign
async def test_a_thousand_watchers_see_each_event_once_in_order(server: ServerProcess) -> None:
    async with connected(server) as api:
        agent = await api.agent("a")
        start = await agent.put(SPACE, "k", 0)
        async with contextlib.AsyncExitStack() as stack:
            watchers = [await stack.enter_async_context(watching(agent, SPACE, after=0)) for _ in range(WATCHERS)]
            # Everybody is connected once everybody has its first event.
            first = await asyncio.gather(*(watcher.batch() for watcher in watchers))
            assert {batch.revision for batch in first} == {start.revision}
            assert (await api.stats()).watch_count == WATCHERS
            reading = asyncio.gather(*(watcher.batches(COMMITS) for watcher in watchers))
            written = [
                (await agent.transact(SPACE, put("k", n, blind=True), put(f"k{n}", n))).revision for n in range(COMMITS)
            ]
            seen = await reading
        assert all([batch.revision for batch in batches] == written for batches in seen)
        assert all(len(batch.changes) == 2 for batches in seen for batch in batches)


STALL_SECONDS = 0.3
STALLED_COMMITS = 600
"""More bytes than the network's buffers take: gRPC's windows grow to a few MiB."""


@pytest.fixture
def impatient_server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", ("--watch-stall-seconds", str(STALL_SECONDS), "--durability", "os"))
    try:
        process.start()
        yield process
    finally:
        process.close()


async def test_a_watcher_that_takes_nothing_is_cut_off_and_resumes_without_a_gap(
    impatient_server: ServerProcess,
) -> None:
    async with connected(impatient_server) as api:
        agent = await api.agent("a")
        await agent.ensure(SPACE, types.NamespacePolicy(item_bytes_max=65_536))
        first = await agent.put(SPACE, "k", 0)
        async with watching(agent, SPACE, after=0) as slow, watching(agent, SPACE) as quick:
            await slow.batch()
            await quick.bookmark()
            written = [first.revision]
            for _ in range(STALLED_COMMITS):
                applied = await agent.put(SPACE, "k", "x" * ITEM_BYTES, blind=True)
                written.append(applied.revision)
                assert (await quick.batch()).revision == applied.revision
            # Nothing more is kept of it, although it has not even noticed; the quick one stays.
            async with asyncio.timeout(MESSAGE_SECONDS_MAX):
                while (await api.stats()).watch_count > 1:
                    await quick.message()
            seen = [first.revision]
            with refusal(Reason.SLOW_CONSUMER) as error:
                while True:
                    seen.append((await slow.batch()).revision)
            assert f"for {STALL_SECONDS:g} s" in error.message
            assert error.head in written
            assert len(seen) < len(written)
            async with watching(agent, SPACE, resume=slow.resume) as resumed:
                seen += [batch.revision for batch in await resumed.batches(len(written) - len(seen))]
            assert seen == written


@pytest.fixture
def small_log_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose sweeper keeps logs short all the time."""
    # Slow watchers stay, however long the writing takes.
    options = ("--sweep-seconds", "0.1", "--durability", "os", "--watch-stall-seconds", "3600")
    process = ServerProcess(tmp_path / "data", options)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.mark.campaign
async def test_watchers_that_do_not_read_cost_no_memory_and_hold_up_nobody(small_log_server: ServerProcess) -> None:
    server = small_log_server
    async with connected(server) as api:
        agent = await api.agent("a")
        await agent.ensure(SPACE, types.NamespacePolicy(item_bytes_max=65_536, log_bytes_max=LOG_BYTES_MAX))
        await agent.put(SPACE, "k", 0)
        async with contextlib.AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(watching(agent, SPACE, after=0)) for _ in range(SLOW_WATCHERS)]
            for watcher in slow:
                # Begun, and from here on not read.
                await watcher.batch()
            quick = await stack.enter_async_context(watching(agent, SPACE))
            await quick.bookmark()
            before = server.resident_bytes()
            written, peak = 0, before
            while written < BYTES_WRITTEN:
                applied = await agent.transact(SPACE, *(put(f"k{n}", "x" * ITEM_BYTES, blind=True) for n in range(4)))
                written += 4 * ITEM_BYTES
                # The one that reads is told of each commit, whatever the others do.
                assert (await quick.batch()).revision == applied.revision
                peak = max(peak, server.resident_bytes())
            assert peak - before < RESIDENT_GROWTH_MAX, f"grew by {(peak - before) >> 20} MiB"
            assert (await api.stats()).watch_count == SLOW_WATCHERS + 1
            # Once they read again, they are told what was buffered and then that the rest is gone.
            for watcher in slow:
                with refusal(Reason.COMPACTED) as error:
                    await watcher.ended()
                assert error.log_range().floor > error.log_range().requested
