"""Fact queues: what is queued is worked on at least once, in order of priority, by one worker at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.factlab import ODD, QUEUE_MAX, FactQueueLab, job, job_ids, refused

from noosphere.consistency import Reason
from noosphere.server.ports.factqueue import BATCH_MAX, BODY_BYTES_MAX, LEASE_MS_MAX, REASON_CHARS_MAX, LeasedJob

LEASE_MS = 30_000


async def take(lab: FactQueueLab, limit: int = 100) -> tuple[LeasedJob, ...]:
    return await lab.queue.take("worker", limit, LEASE_MS)


async def test_the_urgent_come_first_and_of_equals_the_oldest(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("b", priority=5), job("z", priority=9), job("y", priority=0)])
    await queue_lab.queue.put([job("a", priority=5), job("x", priority=0)])
    assert job_ids(await take(queue_lab, 3)) == ["y", "x", "b"]
    assert job_ids(await take(queue_lab)) == ["a", "z"]
    assert await take(queue_lab) == ()


async def test_a_worker_may_take_some_priorities_only(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job(str(at), priority=at) for at in (9, 0, 7, 6, 3)])
    taken = await queue_lab.queue.take("worker", 2, LEASE_MS, priority_min=3, priority_max=7)
    assert job_ids(taken) == ["3", "6"]
    assert job_ids(await queue_lab.queue.take("worker", 9, LEASE_MS, priority_min=3, priority_max=7)) == ["7"]
    assert await queue_lab.queue.take("worker", 9, LEASE_MS, priority_max=8, priority_min=1) == ()
    assert job_ids(await take(queue_lab)) == ["0", "9"]


async def test_a_job_comes_back_as_it_was_put(queue_lab: FactQueueLab) -> None:
    made = [job(text, group=text, body=text.encode() + b"\0\xff", priority=at % 10) for at, text in enumerate(ODD[:12])]
    await queue_lab.queue.put(made)
    assert {leased.job for leased in await take(queue_lab)} == set(made)


async def test_putting_a_job_again_while_it_waits_or_runs_changes_nothing(queue_lab: FactQueueLab) -> None:
    first = job("a", body=b"first")
    await queue_lab.queue.put([first, job("a", body=b"beside")])
    await queue_lab.queue.put([job("a", body=b"later", priority=0)])
    (leased,) = await take(queue_lab)
    assert leased.job == first
    await queue_lab.queue.put([job("a", body=b"while it runs")])
    assert await take(queue_lab) == ()
    assert await queue_lab.queue.done([leased.lease]) == (True,)
    await queue_lab.queue.put([job("a", body=b"after it was done")])
    assert [leased.job.body for leased in await take(queue_lab)] == [b"after it was done"]


async def test_a_lease_ends_to_the_millisecond_and_the_job_is_taken_by_another(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("a")])
    (first,) = await take(queue_lab)
    queue_lab.advance(LEASE_MS - 1)
    assert await take(queue_lab) == ()
    queue_lab.advance(1)
    (second,) = await take(queue_lab)
    assert (first.attempt, second.attempt) == (1, 2)
    assert await queue_lab.queue.done([first.lease]) == (False,)
    assert await queue_lab.queue.extend([first.lease], LEASE_MS) == (False,)
    assert await queue_lab.queue.fail(first.lease, "slow", retry_after_ms=None) is False
    assert await queue_lab.queue.fail(first.lease, "slow", retry_after_ms=0) is False
    assert await queue_lab.queue.dead("", 10) == ()
    assert await queue_lab.queue.done([second.lease, second.lease]) == (True, False)
    assert (await queue_lab.queue.stats())[:3] == (0, 0, 0)


async def test_a_lease_that_has_ended_is_good_until_another_takes_the_job(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("a"), job("b")])
    late, later = await take(queue_lab)
    queue_lab.advance(2 * LEASE_MS)
    assert await queue_lab.queue.extend([late.lease], LEASE_MS) == (True,)
    assert await queue_lab.queue.done([later.lease]) == (True,)
    assert await take(queue_lab) == ()


async def test_an_extended_lease_lasts_from_then_on(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("a")])
    (leased,) = await take(queue_lab)
    queue_lab.advance(LEASE_MS - 1)
    assert await queue_lab.queue.extend([leased.lease], LEASE_MS) == (True,)
    queue_lab.advance(LEASE_MS - 1)
    assert await take(queue_lab) == ()
    queue_lab.advance(1)
    assert job_ids(await take(queue_lab)) == ["a"]


async def test_a_failed_job_waits_for_its_time_and_counts_its_attempts(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("a")])
    for attempt in (1, 2, 3):
        (leased,) = await take(queue_lab)
        assert leased.attempt == attempt
        assert await queue_lab.queue.fail(leased.lease, "model is away", retry_after_ms=500) is True
        assert await queue_lab.queue.fail(leased.lease, "model is away", retry_after_ms=500) is False
        assert (await queue_lab.queue.stats())[:3] == (1, 0, 0)
        queue_lab.advance(499)
        assert await take(queue_lab) == ()
        queue_lab.advance(1)


async def test_an_attempt_that_does_not_count_is_told_of_apart_and_its_lease_ends(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    await queue.put([job("a")])
    leases: list[str] = []
    for returned in range(5):
        (leased,) = await take(queue_lab)
        assert (leased.attempt, leased.returned) == (1, returned)
        leases.append(leased.lease)
        assert await queue.fail(leased.lease, "the index is away", retry_after_ms=0, counts=False) is True
    (found,) = await queue.find(["a"])
    assert found is not None
    assert (found.attempts, found.dead) == (0, False)
    (leased,) = await take(queue_lab)
    assert len({*leases, leased.lease}) == 6, "each grant is another one, though all are of a first attempt"
    assert await queue.extend(leases, LEASE_MS) == (False,) * 5
    assert await queue.fail(leased.lease, "bad", retry_after_ms=0) is True
    (leased,) = await take(queue_lab)
    assert (leased.attempt, leased.returned) == (2, 5)
    assert await queue.fail(leased.lease, "worse", retry_after_ms=None) is True
    ((_, attempts, reason, _),) = await queue.dead("", 10)
    assert (attempts, reason) == (2, "worse")
    (found,) = await queue.find(["a"])
    assert found is not None
    assert (found.attempts, found.dead) == (2, True)


async def test_a_job_given_up_is_kept_with_its_reason_until_it_is_revived(queue_lab: FactQueueLab) -> None:
    given = [job(name, priority=at, group="ada") for at, name in enumerate("abc")]
    await queue_lab.queue.put(given)
    leased = await take(queue_lab)
    for one in leased:
        assert await queue_lab.queue.fail(one.lease, "r" * 3_000 + one.job.id, retry_after_ms=None) is True
    assert await take(queue_lab) == ()
    page = await queue_lab.queue.dead("", 2)
    assert [dead.job for dead in page] == given[:2]
    assert [(dead.attempts, dead.reason) for dead in page] == [(1, "r" * REASON_CHARS_MAX)] * 2
    assert [dead.job for dead in await queue_lab.queue.dead("b", 2)] == given[2:]
    assert await queue_lab.queue.revive(["a", "a", "nobody"]) == 1
    (again,) = await take(queue_lab)
    assert (again.job, again.attempt) == (given[0], 1)
    # The lease of its first life is not that of its second, though both are of a first attempt.
    assert await queue_lab.queue.done([leased[0].lease]) == (False,)
    assert (await queue_lab.queue.stats())[:3] == (0, 1, 2)


async def test_putting_a_dead_job_queues_it_anew(queue_lab: FactQueueLab) -> None:
    await queue_lab.queue.put([job("a")])
    (leased,) = await take(queue_lab)
    await queue_lab.queue.fail(leased.lease, "half \ud83e of a pair", retry_after_ms=None)
    await queue_lab.queue.put([job("a", body=b"better")])
    assert await queue_lab.queue.dead("", 10) == ()
    (again,) = await take(queue_lab)
    assert (again.job.body, again.attempt) == (b"better", 1)


async def test_a_group_is_removed_wherever_its_jobs_are_and_nobody_elses(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    await queue.put(
        [job(f"{group}{at}", group=group, priority=at) for at in range(3) for group in ("ada%", "ada_", "")]
    )
    leased = {one.job.id: one.lease for one in await take(queue_lab, 6)}
    await queue.fail(leased["ada%0"], "bad", retry_after_ms=None)
    await queue.fail(leased["ada_0"], "bad", retry_after_ms=None)
    assert await queue.remove(group="ada%") == 3
    assert await queue.done([leased["ada%1"], leased["ada_1"]]) == (False, True)
    assert [dead.job.id for dead in await queue.dead("", 10)] == ["ada_0"]
    assert job_ids(await take(queue_lab)) == ["ada_2", "2"]
    assert await queue.remove(ids=["0", "0", "ada_0", "nobody"]) == 2
    assert await queue.remove(group="ada%") == 0


async def test_what_was_removed_or_done_is_in_no_file_after_a_removal(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    await queue.put([job(f"j{at}", body=f"s3cr3t{at}".encode() * 500, group="ada", priority=at) for at in range(4)])
    await queue.put([job("kept", body=b"k3pt" * 500)])
    first, second, *_ = await take(queue_lab)
    await queue.done([first.lease])
    await queue.fail(second.lease, "s3cr3t too", retry_after_ms=None)
    assert b"s3cr3t2" in queue_lab.bytes_at_rest()
    assert await queue.remove(group="ada") == 3
    assert b"s3cr3t" not in queue_lab.bytes_at_rest()
    assert b"k3pt" in queue_lab.bytes_at_rest()


async def test_a_full_queue_refuses_and_the_dead_count(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    await queue.put([job(f"j{at:02}") for at in range(QUEUE_MAX - 1)])
    with refused(Reason.LIMIT_EXCEEDED, "jobs", str(QUEUE_MAX + 1), str(QUEUE_MAX)):
        await queue.put([job("x"), job("y")])
    await queue.put([job("x"), job("x"), job("j00")])
    (leased,) = await take(queue_lab, 1)
    await queue.fail(leased.lease, "bad", retry_after_ms=None)
    with refused(Reason.LIMIT_EXCEEDED):
        await queue.put([job("y")])
    # Neither brings more than there was.
    await queue.put([leased.job])
    (again, *_) = await take(queue_lab)
    assert await queue.done([again.lease]) == (True,)
    await queue.put([job("y")])
    await queue_lab.reopen()
    with refused(Reason.LIMIT_EXCEEDED):
        await queue_lab.queue.put([job("z")])


async def test_of_puts_at_once_those_that_fit_are_queued_and_the_others_whole_refused(queue_lab: FactQueueLab) -> None:
    puts = [queue_lab.queue.put([job(f"{at}-{part}") for part in range(5)]) for at in range(4)]
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == QUEUE_MAX // 5
    leased = await take(queue_lab)
    assert len({one.job.id for one in leased}) == len(leased) == QUEUE_MAX // 5 * 5


async def test_stats_tell_what_waits_and_since_when(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    assert await queue.stats() == (0, 0, 0, 0)
    await queue.put([job("a", priority=9)])
    first_ms = (await queue.stats()).oldest_ms
    queue_lab.advance(1_000)
    await queue.put([job("b", priority=0), job("c", priority=1)])
    assert await queue.stats() == (3, 0, 0, first_ms)
    b, c = await take(queue_lab, 2)
    await queue.fail(c.lease, "bad", retry_after_ms=None)
    assert await queue.stats() == (1, 1, 1, first_ms)
    (a,) = await take(queue_lab)
    await queue.fail(b.lease, "again", retry_after_ms=0)
    assert await queue.stats() == (1, 1, 1, first_ms + 1_000)
    assert await queue.done([a.lease]) == (True,)


REFUSED_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "jobs[1].id"),
    ({"id": "x" * 1_025}, "1024"),
    ({"id": "\ud83e"}, "jobs[1].id"),
    ({"group": "x" * 1_025}, "1024"),
    ({"priority": 10}, "jobs[1].priority"),
    ({"priority": -1}, "jobs[1].priority"),
    ({"body": b"x" * (BODY_BYTES_MAX + 1)}, str(BODY_BYTES_MAX)),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED_JOBS, ids=range(len(REFUSED_JOBS)))
async def test_a_bad_job_is_refused_by_name_and_nothing_of_its_call_is_queued(
    queue_lab: FactQueueLab, fields: dict[str, Any], named: str
) -> None:
    reason = Reason.VALUE_TOO_LARGE if named.isdecimal() else Reason.INVALID_FIELD
    with refused(reason, named):
        await queue_lab.queue.put([job("good"), job("bad")._replace(**fields)])
    assert (await queue_lab.queue.stats()).waiting == 0


async def test_calls_beyond_their_limits_are_refused(queue_lab: FactQueueLab) -> None:
    queue = queue_lab.queue
    many = [f"j{at}" for at in range(BATCH_MAX + 1)]
    with refused(Reason.VALUE_TOO_LARGE, "jobs", str(BATCH_MAX)):
        await queue.put([job(id) for id in many])
    for ids in (many,):
        with refused(Reason.VALUE_TOO_LARGE, "ids", str(BATCH_MAX)):
            await queue.revive(ids)
        with refused(Reason.VALUE_TOO_LARGE, "ids", str(BATCH_MAX)):
            await queue.remove(ids=ids)
        with refused(Reason.VALUE_TOO_LARGE, "leases", str(BATCH_MAX)):
            await queue.done(ids)
    for limit in (0, BATCH_MAX + 1):
        with refused(Reason.INVALID_FIELD, "limit"):
            await queue.take("worker", limit, LEASE_MS)
        with refused(Reason.INVALID_FIELD, "limit"):
            await queue.dead("", limit)
    for lease_ms in (0, LEASE_MS_MAX + 1):
        with refused(Reason.INVALID_FIELD, "lease_ms"):
            await queue.take("worker", 1, lease_ms)
        with refused(Reason.INVALID_FIELD, "lease_ms"):
            await queue.extend([], lease_ms)
    for lease in ("", "nonsense", "1", "1.", ".1", "-1.1", "1.1.1"):
        with refused(Reason.INVALID_FIELD, "lease"):
            await queue.done([lease])
    with refused(Reason.INVALID_FIELD, "ids"):
        await queue.remove()
    with refused(Reason.INVALID_FIELD, "ids"):
        await queue.remove(ids=["a"], group="b")
