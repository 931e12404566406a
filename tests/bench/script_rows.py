"""The row about what one commit costs inside Redis, where everybody else's commits wait for it."""

from __future__ import annotations

from noosphere.consistency import NEVER_MS, RequestRef
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Commit, Committed, KeyCheck, Mutation, NamespaceRef, RequestRecord
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore

from .children import BenchError
from .engines import BenchRedis
from .rows import Bench, Goal, Row
from .stats import spread

NAME = "redis_commit_script"
WHAT = "Commit script, µs inside Redis"
GOAL = Goal(60.0, at_least=False)
RECORD_BYTES = 1_024
_KEYS = 16
_SPACE = NamespaceRef("shared/bench-script")
_LEASE_MS = 15_000


async def measure(bench: Bench, redis: BenchRedis) -> Row:
    """Measures batches of commits, one after the other, by Redis's own counters.

    Each replaces a record of 1 KiB below two folders, under a check of its revision and a numbered request id, and is
    logged and told to one subscriber: all that the commit of a Put does.
    """
    failures: list[BaseException] = []
    data = bench.work / "script-rows"
    data.mkdir()
    clock = SystemClock()
    coordinator = await EmbeddedCoordinator.open(data, clock=clock, agent_lease_ms=_LEASE_MS, on_fatal=failures.append)
    try:
        store = await RedisStore.open([redis.url], coordinator, clock=clock)
        try:
            return await _measure(bench, _Writer(store), redis)
        finally:
            await store.close()
    finally:
        await coordinator.close()


async def _measure(bench: Bench, writer: _Writer, redis: BenchRedis) -> Row:
    plan = bench.plan
    # Also notes the namespace, which happens once and is no part of a commit.
    await writer.write(plan.script_commits)
    samples = []
    for _ in range(plan.script_samples):
        redis.forget_times()
        await writer.write(plan.script_commits)
        times = redis.times_of("evalsha")
        if times["calls"] != plan.script_commits:
            raise BenchError(f"{plan.script_commits} commits called {times['calls']:.0f} scripts")
        samples.append(times)
    figures = {name: spread([times[name] for times in samples]).median for name in ("p50", "p99")}
    figures |= {"calls": plan.script_commits, "bytes": RECORD_BYTES}
    value = spread([times["usec_per_call"] for times in samples])
    return Row(NAME, f"{WHAT} {redis.version}", value, GOAL, figures, samples)


class _Writer:
    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._revisions = [0] * _KEYS
        self._sequence = 0

    async def write(self, commits: int) -> None:
        """Makes so many commits, each on condition that the one before was made."""
        for number in range(commits):
            slot = number % _KEYS
            result = await self._store.commit(_SPACE, self._commit(slot))
            if not isinstance(result, Committed):
                raise BenchError(f"a commit was not made: {result}")
            self._revisions[slot] = result.revision

    def _commit(self, slot: int) -> Commit:
        self._sequence += 1
        key, revision = f"notes/today/{slot:03d}", self._revisions[slot]
        ref = RequestRef("bench/script#1", self._sequence, self._sequence - 1)
        data = b"%012d" % self._sequence
        return Commit(
            epoch=self._store.epoch,
            config_version=0,
            checks=(KeyCheck(key, revision, live=revision > 0),),
            mutations=(
                Mutation(
                    key=key,
                    data=data + b"x" * (RECORD_BYTES - len(data)),
                    live_until_ms=NEVER_MS,
                    due_ms=NEVER_MS,
                    members=revision == 0,
                    event=b"bench/script#1 put",
                ),
            ),
            request=RequestRecord(ref, fingerprint=b"f" * 16, reply=b"r" * 24),
        )
