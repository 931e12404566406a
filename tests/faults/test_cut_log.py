"""The end of the log is gone, as after a loss of power: what was lost is said, and nothing else is lost.

Where exactly the log may be cut is the store's own test (tests/contract); this is the whole way, once.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent, contents, data
from tests.support.process import ServerProcess
from tests.support.statuses import refusal
from tests.support.wal import cut_wal, frames
from tests.support.watching import watching
from tests.support.worker import SPACE, Worker, recorded

from noosphere.client import AckedWritesLost, connect
from noosphere.consistency import Reason
from noosphere.server.checking import check_calls, new_header, read_history
from noosphere.server.checking.history import History
from noosphere.server.storage.embedded.sqlite import FILE

WRITES = 60


async def test_what_a_cut_log_has_lost_is_told_and_the_rest_goes_on(server: ServerProcess) -> None:
    space, wal = "shared/s", server.data / f"{FILE}-wal"
    async with connected(server) as api:
        agent = await api.agent("a")
        written = [(await agent.put(space, f"k{n:02}", n)).revision for n in range(WRITES)]
        read = await agent.get(space, "k00")
        async with watching(agent, space, after=written[-2]) as watch:
            await watch.batch()
            resume = watch.resume
    server.kill()
    whole = frames(wal)
    assert whole > WRITES, "the writes are not in the log any more, so cutting it proves nothing"
    cut_wal(wal, keep_frames=whole * 2 // 3)
    server.start()
    async with connected(server) as api:
        agent = Agent(api, agent.actor)
        info = await api.get_namespace(space)
        survivors = contents(await agent.listing(space))
        # A prefix survived: everything up to the cut and nothing after it.
        assert 0 < len(survivors) < WRITES
        assert list(survivors) == [f"k{n:02}" for n in range(len(survivors))]
        cut = written[len(survivors) - 1]
        assert info.head == cut
        epochs = await api.epochs()
        assert [epoch.epoch for epoch in epochs] == [1, 2]
        assert (info.cuts[-1].epoch, info.cuts[-1].cut) == (2, cut)
        for revision in (written[len(survivors)], written[-1]):
            with refusal(Reason.ACKED_WRITES_LOST) as error:
                await agent.put(space, "k", 1, expected=revision)
            assert getattr(error.lost(), "from") == cut
            assert error.lost().to >= written[-1]
        async with watching(agent, space, resume=resume) as watch:
            message = await watch.message()
            assert message.WhichOneof("event") == "epoch"
            assert message.epoch.cut == cut
        # What was read up to the cut is as good as ever.
        newer = await agent.put(space, "k00", 1, context=read.context)
        assert newer.revision > written[-1]
        assert data(await agent.get(space, "k00")) == b"1"


async def test_a_client_is_told_that_its_acknowledged_write_died(server: ServerProcess) -> None:
    wal = server.data / f"{FILE}-wal"
    async with connect(server.address, agent="a", timeout=60) as client:
        key = client.shared("s").key("plan", str)
        await key.put("kept")
        kept = frames(wal)
        record = await key.update(lambda current, conflict: "lost")
        server.kill()
        cut_wal(wal, keep_frames=kept)
        server.restart()
        with pytest.raises(AckedWritesLost):
            await record.replace("later")
        again = await key.get()
        assert again is not None
        assert again.value == "kept"
        await again.replace("later")


async def test_the_checkers_see_that_a_cut_log_lost_acknowledged_writes(server: ServerProcess, tmp_path: Path) -> None:
    """On a real history: valid up to the cut, and beyond it both checkers object. They are not just content."""
    wal, journal = server.data / f"{FILE}-wal", tmp_path / "journal.jsonl"
    async with recorded(server.address, "worker-0", journal) as client:
        worker = Worker(client, "worker-0")
        for _ in range(40):
            await worker.step()
        kept = frames(wal)
        for _ in range(80):
            await worker.step()
        killed_ns = time.monotonic_ns()
        server.kill()
        cut_wal(wal, keep_frames=kept)
        server.restart()
        await asyncio.gather(*(client.namespace(SPACE).key(key).read() for key in ("tally", "document", "pairs")))
    history = read_history(journal)
    header = new_header(complete=[SPACE, "agents/worker-0"])
    verdict = check_calls(History(header, history.calls))
    assert {violation.checker for violation in verdict.violations} >= {"revisions", "tallies"}, verdict.explain()
    before = [call for call in history.calls if call.start_ns < killed_ns]
    assert len(before) > 100
    assert check_calls(History(header, tuple(before))).ok
