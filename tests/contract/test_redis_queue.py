"""What only the fact queue on Redis has to see to: its limits in bytes, large answers, and what stays behind."""

from __future__ import annotations

import pytest
from tests.contract.factlab import QUEUE_MAX, job, job_ids, refused
from tests.contract.redislab import RedisQueueLab
from tests.support.redis import needs_redis

from noosphere.consistency import Reason
from noosphere.server.ports.factqueue import BODY_BYTES_MAX, CALL_BYTES_MAX
from noosphere.server.storage.redis import RedisFactQueue, queue

pytestmark = needs_redis

LEASE_MS = 30_000
STEM = "noosphere:{queue}"


@pytest.fixture
def wide(redis_queue: RedisQueueLab) -> RedisFactQueue:
    """A queue with more room."""
    return RedisFactQueue.beside(redis_queue.store, jobs_max=10_000)


async def test_a_queue_holds_so_many_bytes_and_not_one_more(redis_queue: RedisQueueLab) -> None:
    store = redis_queue.store
    narrow = RedisFactQueue.beside(store, bytes_max=10_000)
    await narrow.put([job("a", body=b"x" * 9_000)])
    with refused(Reason.LIMIT_EXCEEDED, "jobs.bytes", "10000"):
        await narrow.put([job("b", body=b"x" * 500), job("c", body=b"x" * 500)])
    assert (await narrow.stats()).waiting == 1, "all or none"
    await narrow.put([job("a", body=b"x" * 9_000)])
    (leased,) = await narrow.take("worker", 10, LEASE_MS)
    await narrow.fail(leased.lease, "bad", retry_after_ms=None)
    with refused(Reason.LIMIT_EXCEEDED, "jobs.bytes"):
        await narrow.put([job("b", body=b"x" * 1_000)])
    # A dead one that is queued anew takes its own place.
    await narrow.put([job("a", body=b"x" * 9_500)])
    (leased,) = await narrow.take("worker", 10, LEASE_MS)
    assert await narrow.done([leased.lease]) == (True,)
    await narrow.put([job("b", body=b"x" * 9_500)])


async def test_a_call_may_not_bring_more_than_redis_can_take_at_once(redis_queue: RedisQueueLab) -> None:
    many = [job(f"j{at:02}", body=b"x" * BODY_BYTES_MAX) for at in range(CALL_BYTES_MAX // BODY_BYTES_MAX + 1)]
    with refused(Reason.VALUE_TOO_LARGE, "jobs", str(CALL_BYTES_MAX)):
        await redis_queue.queue.put(many)


async def test_large_jobs_come_a_few_at_a_time_and_none_is_left_out(wide: RedisFactQueue) -> None:
    body = b"x" * (BODY_BYTES_MAX // 2)
    names = [f"j{at:02}" for at in range(40)]
    for start in range(0, 40, 20):
        await wide.put([job(name, body=body, group="ours") for name in names[start : start + 20]])
    assert [one.job.id for one in await wide.members("ours", "", 100)] == names
    assert [one.job.id for one in await wide.members("ours", "j07", 30)] == names[8:38]
    taken: list[str] = []
    while more := await wide.take("worker", 100, LEASE_MS):
        assert len(more) * len(body) <= 2 * queue.PAGE_BYTES_MAX
        taken += job_ids(more)
        for leased in more:
            await wide.fail(leased.lease, "bad", retry_after_ms=None)
    assert taken == names
    assert [one.job.id for one in await wide.dead("", 100)] == names
    assert await wide.revive(names) == 40


async def test_more_than_one_page_of_jobs_is_found_listed_and_removed(wide: RedisFactQueue) -> None:
    names = [f"j{at:03}" for at in range(3 * queue.PAGE_JOBS_MAX + 1)]
    await wide.put([job(name, group="ours") for name in names])
    await wide.put([job("theirs", group="ours2"), job("nobodys")])
    assert [one and one.job.id for one in await wide.find(["none", *names])] == [None, *names]
    assert [one.job.id for one in await wide.members("ours", "", 1_000)] == names
    assert await wide.remove(ids=names[:200]) == 200
    assert await wide.remove(group="ours") == len(names) - 200
    assert sorted(job_ids(await wide.take("worker", 10, LEASE_MS))) == ["nobodys", "theirs"]


async def test_what_is_done_or_removed_leaves_nothing_in_redis(redis_queue: RedisQueueLab) -> None:
    """Streams keep what is deleted until a whole block of it is: there must be no words in them, and no entry left."""
    work, server = redis_queue.queue, redis_queue.servers[0]
    for turn in range(20):
        await work.put([job(f"{turn}-{at}", group="ada", priority=at % 10) for at in range(QUEUE_MAX)])
        taken = await work.take(f"worker-{turn % 3}", QUEUE_MAX, LEASE_MS)
        for one in taken[:4]:
            await work.fail(one.lease, "again", retry_after_ms=0)
        await work.done([one.lease for one in taken[4:8]])
        for one in await work.take("another", 2, LEASE_MS):
            await work.fail(one.lease, "bad", retry_after_ms=None)
        await work.remove(group="ada")
    assert (await work.stats()) == (0, 0, 0, 0)
    left = sorted(key.decode() for key in server.ask("KEYS", f"{STEM}*"))
    assert left == [f"{STEM}:h", *(f"{STEM}:s{priority}" for priority in range(10))]
    for priority in range(10):
        assert server.ask("XLEN", f"{STEM}:s{priority}") == 0
        assert server.ask("XPENDING", f"{STEM}:s{priority}", "workers")[0] == 0
    assert server.ask("HGET", f"{STEM}:h", "b") == b"0"
    await redis_queue.crash()
    await redis_queue.queue.stats()
    told = [server.ask("XINFO", "CONSUMERS", f"{STEM}:s{priority}", "workers") for priority in range(10)]
    assert told == [[]] * 10, "workers of an earlier epoch who hold nothing are forgotten"


async def test_a_full_redis_refuses_new_jobs_and_lets_the_others_be_done(redis_queue: RedisQueueLab) -> None:
    work, server = redis_queue.queue, redis_queue.servers[0]
    await work.put([job("a"), job("b")])
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        with refused(Reason.LIMIT_EXCEEDED, "maxmemory"):
            await work.put([job("c")])
        first, second = await work.take("worker", 10, LEASE_MS)
        assert await work.done([first.lease]) == (True,)
        assert await work.fail(second.lease, "later", retry_after_ms=0)
        assert job_ids(await work.take("worker", 10, LEASE_MS)) == ["b"]
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    await work.put([job("c")])
