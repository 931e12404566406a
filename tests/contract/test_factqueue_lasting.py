"""Fact queues over time and among many workers: nothing is lost, and nobody finishes what another holds."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.contract.factlab import QUEUE_MAX, EmbeddedQueueLab, FactQueueLab, job, job_ids, refused

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.factqueue import FactQueue
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.facts import EmbeddedFactQueue

LEASE_MS = 30_000


@pytest.mark.parametrize("ending", ["reopen", "crash"])
async def test_the_next_life_goes_on_where_this_one_ended(queue_lab: FactQueueLab, ending: str) -> None:
    queue = queue_lab.queue
    await queue.put([job(name, priority=at) for at, name in enumerate("abcde")])
    done, dead, retried, held = await queue.take("worker", 4, LEASE_MS)
    await queue.done([done.lease])
    await queue.fail(dead.lease, "bad", retry_after_ms=None)
    await queue.fail(retried.lease, "later", retry_after_ms=10 * LEASE_MS)
    await getattr(queue_lab, ending)()
    queue_lab.advance(LEASE_MS)
    again = await queue_lab.queue.take("worker", 10, LEASE_MS)
    assert [(one.job.id, one.attempt) for one in again] == [("d", 2), ("e", 1)]
    assert await queue_lab.queue.done([done.lease, held.lease]) == (False, False)
    assert [one.job.id for one in await queue_lab.queue.dead("", 10)] == ["b"]
    queue_lab.advance(10 * LEASE_MS)
    assert job_ids(await queue_lab.queue.take("worker", 10, LEASE_MS)) == ["c", "d", "e"]


@pytest.mark.parametrize("seed", range(3))
async def test_many_workers_some_of_whom_lose_their_leases_finish_every_job_once(
    queue_lab: FactQueueLab, seed: int
) -> None:
    queue, chance = queue_lab.queue, random.Random(seed)
    finished: Counter[str] = Counter()
    newest: dict[str, int] = {}
    finishing: dict[str, int] = {}

    async def work(name: str) -> None:
        while sum(finished.values()) < QUEUE_MAX:
            taken = await queue.take(name, chance.randint(1, 3), LEASE_MS)
            newest.update({leased.job.id: max(leased.attempt, newest.get(leased.job.id, 0)) for leased in taken})
            for leased in taken:
                what = chance.random()
                if what < 0.3:
                    # It hangs for longer than it may; meanwhile others go on.
                    queue_lab.advance(LEASE_MS)
                    await asyncio.sleep(0)
                if what < 0.5:
                    await queue.fail(leased.lease, "again", retry_after_ms=0)
                    continue
                (held,) = await queue.done([leased.lease])
                if held:
                    finished[leased.job.id] += 1
                    finishing[leased.job.id] = leased.attempt
            await asyncio.sleep(0)

    await queue.put([job(f"j{at}", priority=at % 10) for at in range(QUEUE_MAX)])
    await asyncio.gather(*(work(f"worker-{at}") for at in range(6)))
    assert finished == Counter({f"j{at}": 1 for at in range(QUEUE_MAX)})
    assert finishing == newest, "who finished it was the last who had taken it"
    assert max(newest.values()) > 1, "or nobody lost anything"
    assert (await queue.stats())[:3] == (0, 0, 0)


async def test_no_job_is_leased_to_two_workers_at_once(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job(f"j{at:02}") for at in range(QUEUE_MAX)])
    taken = await asyncio.gather(*(queue_lab.queue.take(f"w{at}", 2, LEASE_MS) for at in range(10)))
    assert sorted(id for leased in taken for id in job_ids(leased)) == [f"j{at:02}" for at in range(QUEUE_MAX)]


async def test_store_time_does_not_go_back_with_the_wall_clock(embedded_queue: EmbeddedQueueLab) -> None:
    await embedded_queue.queue.put([job("a")])
    await embedded_queue.queue.take("worker", 1, LEASE_MS)
    embedded_queue.clock.set_wall_back(1_000_000)
    embedded_queue.advance(LEASE_MS)
    (leased,) = await embedded_queue.queue.take("worker", 1, LEASE_MS)
    assert await embedded_queue.queue.fail(leased.lease, "later", retry_after_ms=LEASE_MS)
    await embedded_queue.reopen()
    embedded_queue.advance(LEASE_MS)
    assert job_ids(await embedded_queue.queue.take("worker", 1, LEASE_MS)) == ["a"]


async def test_leases_end_with_the_process_that_had_the_workers(embedded_queue: EmbeddedQueueLab) -> None:
    await embedded_queue.queue.put([job("a")])
    (lost,) = await embedded_queue.queue.take("worker", 1, LEASE_MS)
    await embedded_queue.crash()
    (again,) = await embedded_queue.queue.take("worker", 1, LEASE_MS)
    assert again.attempt == 2
    assert await embedded_queue.queue.done([lost.lease, again.lease]) == (False, True)


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
async def test_a_removed_job_is_in_no_file_whatever_came_and_went_around_it(tmp_path: Path, seed: int) -> None:
    """Small bodies share pages, whose balancing leaves copies behind: these seeds fail if the file is not rewritten."""
    lab, chance, made = EmbeddedQueueLab(tmp_path, jobs_max=10_000), random.Random(seed), 0
    await lab.open()
    alive: dict[str, bytes] = {}
    left: list[bytes] = []
    for _ in range(15):
        for _ in range(100):
            made += 1
            mark = f"s3cr3t-{made:06d}-x".encode()
            alive[f"j{made}"] = mark
            body = mark + b"." * chance.choice((0, 7, 60, 300, 900))
            await lab.queue.put([job(f"j{made}", priority=chance.randint(0, 9), body=body)])
        gone = chance.sample(sorted(alive), 60)
        await lab.queue.remove(ids=gone)
        held = lab.bytes_at_rest()
        marks = [alive.pop(one) for one in gone]
        left += [mark for mark in marks if mark in held]
    await lab.close()
    assert left == []


CALLS: dict[str, Callable[[FactQueue], Coroutine[Any, Any, Any]]] = {
    "put": lambda queue: queue.put([job("a")]),
    "take": lambda queue: queue.take("worker", 1, LEASE_MS),
    "extend": lambda queue: queue.extend(["1.1"], LEASE_MS),
    "done": lambda queue: queue.done(["1.1"]),
    "fail": lambda queue: queue.fail("1.1", "bad", retry_after_ms=None),
    "dead": lambda queue: queue.dead("", 1),
    "revive": lambda queue: queue.revive(["a"]),
    "remove": lambda queue: queue.remove(ids=["a"]),
    "stats": lambda queue: queue.stats(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_closed_queue_says_so(queue_lab: FactQueueLab, name: str) -> None:
    queue = queue_lab.queue
    await queue.close()
    await queue.close()
    with refused(Reason.ENGINE_UNAVAILABLE, "closed"):
        await CALLS[name](queue)


async def test_a_file_that_may_not_grow_stops_the_queue_and_harms_nothing(embedded_queue: EmbeddedQueueLab) -> None:
    await embedded_queue.queue.put([job("safe")])
    db = embedded_queue.queue._file._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with refused(Reason.ENGINE_UNAVAILABLE, "outcome of this call is unknown"):
        await embedded_queue.queue.put([job("large", body=b"x" * 100_000)])
    with pytest.raises(Refusal):
        await embedded_queue.queue.stats()
    (failure,) = embedded_queue.fatal
    assert "database or disk is full" in str(failure)
    await embedded_queue.reopen()
    assert job_ids(await embedded_queue.queue.take("worker", 10, LEASE_MS)) == ["safe"]


WORK = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.storage.facts import EmbeddedFactQueue
    from tests.contract.factlab import job

    async def main(folder, life):
        queue = await EmbeddedFactQueue.open(folder, clock=SystemClock())
        async def put(worker):
            number = 0
            while True:
                number += 1
                await queue.put([job(f"{life}-{worker}-{number}")])
                os.write(1, f"PUT {life}-{worker}-{number}\\n".encode())
        async def work():
            while True:
                for leased in await queue.take("worker", 3, 60_000):
                    os.write(1, f"TRY {leased.job.id}\\n".encode())
                    await queue.done([leased.lease])
                    os.write(1, f"END {leased.job.id}\\n".encode())
        await asyncio.gather(put(1), put(2), work())

    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
    """
)


def worked_until_killed(folder: Path, life: int, lines: int) -> list[str]:
    """Runs producers and a worker in a process of their own and kills it after some output; returns its whole lines."""
    output = bytearray()
    command = [sys.executable, "-c", WORK, str(folder), str(life)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root) as process:
        assert process.stdout is not None
        while output.count(b"\n") < lines:
            chunk = os.read(process.stdout.fileno(), 65_536)
            assert chunk, "the process ended by itself"
            output += chunk
        process.send_signal(signal.SIGKILL)
        output += process.stdout.read()
    return bytes(output[: output.rindex(b"\n") + 1]).decode().splitlines()


@pytest.mark.campaign
async def test_killed_again_and_again_every_acknowledged_job_is_tried_and_none_comes_back(tmp_path: Path) -> None:
    seen: dict[str, set[str]] = {"PUT": set(), "TRY": set(), "END": set()}
    for life in range(3):
        for line in await asyncio.to_thread(worked_until_killed, tmp_path, life, 100 + 100 * life):
            word, id = line.split()
            assert not (word == "TRY" and id in seen["END"]), "it was done"
            seen[word].add(id)
    queue = await EmbeddedFactQueue.open(tmp_path, clock=SystemClock())
    left = job_ids(await queue.take("worker", 1_000, LEASE_MS))
    await queue.close()
    assert not seen["END"] & set(left)
    assert seen["PUT"] <= seen["TRY"] | set(left)


async def test_jobs_are_found_wherever_they_are_and_listed_by_group(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    await queue.put([job(name, priority=at, group="ours") for at, name in enumerate("abcd")])
    first, second = await queue.take("worker", 2, LEASE_MS)
    await queue.fail(first.lease, "bad", retry_after_ms=None)
    await queue.done([second.lease])
    dead, done, waiting, never = await queue.find(["a", "b", "c", "never put"])
    assert dead is not None
    assert (dead.job.id, dead.attempts, dead.dead, dead.reason) == ("a", 1, True, "bad")
    assert waiting is not None
    assert (waiting.job, waiting.attempts, waiting.dead) == (job("c", priority=2, group="ours"), 0, False)
    assert (done, never) == (None, None)
    assert [one.job.id for one in await queue.members("ours", "", 2)] == ["a", "c"]
    assert [one.job.id for one in await queue.members("ours", "c", 2)] == ["d"]
    assert await queue.members("another", "", 10) == ()
    with refused(Reason.INVALID_FIELD, "group"):
        await queue.members("", "", 10)
    with refused(Reason.VALUE_TOO_LARGE, "ids", "1024"):
        await queue.find(["x" * 2_000])
