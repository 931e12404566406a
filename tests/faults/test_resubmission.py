"""The end of the log is gone, and the client that wrote it makes good what was lost: all of it, and each once."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.process import ServerProcess
from tests.support.wal import cut_wal, frames

from noosphere.client import AckedWritesLost, Conflict, Increment, Put, connect
from noosphere.server.storage.embedded.sqlite import FILE

STEPS = 60


async def test_what_a_cut_log_has_lost_is_written_again_by_those_who_wrote_it(server: ServerProcess) -> None:
    wal = server.data / f"{FILE}-wal"
    async with (
        connect(server.address, agent="a", timeout=60) as a,
        connect(server.address, agent="b", timeout=60) as b,
    ):
        space, others = a.shared("s"), b.shared("s")
        plan = await space.put("plan", 0)
        for n in range(1, STEPS + 1):
            plan = await plan.replace(n)
            await space.transact(operations=[Put(f"step/{n:02}", n), Increment("tally", n)])
            await others.key("others").increment(1)
        server.kill()
        whole = frames(wal)
        cut_wal(wal, keep_frames=whole * 2 // 3)
        server.restart()
        losses = []
        for mine in (space, others):
            with pytest.raises(AckedWritesLost) as caught:
                await mine.get("plan", consistency="causal")
            losses.append(caught.value)
        lost = [write.value for write in losses[0].own_writes if write.key == "plan"]
        assert 0 < len(lost) < STEPS, "all or nothing was lost, so this proves little"
        assert lost == list(range(STEPS - len(lost) + 1, STEPS + 1))
        # Both make good what is theirs at the same time; each is told twice and asks twice.
        results = await asyncio.gather(
            *(client.resubmit(loss) for client, loss in ((a, losses[0]), (b, losses[1])) for _ in range(2))
        )
        assert not [result for part in results for result in part if result.error is not None]
        assert {record.key: record.value async for record in space.list()} == {
            "plan": STEPS,
            "tally": STEPS * (STEPS + 1) // 2,
            "others": STEPS,
            **{f"step/{n:02}": n for n in range(1, STEPS + 1)},
        }


async def test_what_was_written_after_a_cut_is_not_overwritten(server: ServerProcess) -> None:
    wal = server.data / f"{FILE}-wal"
    async with (
        connect(server.address, agent="a", timeout=60) as a,
        connect(server.address, agent="b", timeout=60) as b,
    ):
        base = await a.shared("s").put("plan", "kept")
        kept = frames(wal)
        await base.replace("lost")
        server.kill()
        cut_wal(wal, keep_frames=kept)
        server.restart()
        await b.shared("s").key("plan").update(lambda current, _: f"{current}, and theirs")
        with pytest.raises(AckedWritesLost) as caught:
            await a.shared("s").get("plan", consistency="causal")
        (result,) = await a.resubmit(caught.value)
        assert isinstance(result.error, Conflict)
        assert result.error.theirs is not None
        assert (result.error.mine, result.error.theirs.value) == ("lost", "kept, and theirs")
        # It is the owner's to decide, with both before its eyes.
        await result.error.theirs.replace("lost, kept, and theirs")
