"""A near cache of the real server, under writers, deadlines of values, restarts, and whoever holds a token."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.api import put
from tests.support.engine import LocalServer
from tests.support.process import ServerProcess
from tests.support.threaded import Connect
from tests.support.watching import watching

from noosphere.client import Client, Conflict, Namespace, NearCache, NotCached, Put, new_request_id

KEYS = [f"k{n}" for n in range(12)]
WRITES = 600


@pytest.fixture
async def writer(binary: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with connect(binary.address, timeout=60) as client:
        yield client


@pytest.fixture
async def reader(binary: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with connect(binary.address, timeout=60) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"shared/cache/{new_request_id()}"


class History:
    """What was written to each key at which revision; None for a delete."""

    def __init__(self) -> None:
        self._written: dict[str, list[tuple[int, object]]] = defaultdict(list)
        self._absent: list[tuple[str, int, int]] = []
        self.acked = 0

    def wrote(self, revision: int, values: dict[str, object]) -> None:
        for key, value in values.items():
            self._written[key].append((revision, value))
        self.acked = max(self.acked, revision)

    def check(self, cache: NearCache, key: str, needed: int) -> bool:
        """Checks a causal read at a token; returns whether the cache answered."""
        try:
            record = cache.get(key)
        except NotCached:
            return False
        # A commit may be visible before its writer has the acknowledgement and told us of it.
        version = 0 if record is None else record.version
        shown = [(revision, value) for revision, value in self._written[key] if revision == version]
        missed = [r for r, value in self._written[key] if r <= needed and (version or 0) < r]
        if record is None:
            # The delete may not have been told of yet: judged once everything has.
            self._absent.append((key, cache.revision or 0, needed))
        else:
            assert not missed, f"{key} is shown at {version}, the reader has seen {needed}"
            assert not shown or shown[0][1] == record.value
        return True

    def check_absent(self) -> None:
        """Checks every key that was shown as absent, once every write has been told of."""
        for key, applied, needed in self._absent:
            newest = max((w for w in self._written[key] if w[0] <= applied), default=(0, None))
            assert newest[1] is None or newest[0] > needed, f"{key} was shown as absent at {needed}"


async def test_random_histories_never_show_less_than_the_token_asks_for(
    writer: Client, reader: Client, name: str
) -> None:
    """Writers tell the reader now and then how far they are; transactions are seen as a whole."""
    chance = random.Random(11)
    history = History()
    source, told = writer.namespace(name), reader._transport.progress.causal
    answered: Counter[bool] = Counter()
    await source.put(KEYS[0], 0)
    writing = True

    async def write(number: int) -> None:
        key = chance.choice(KEYS)
        values: dict[str, object] = {key: number}
        match chance.randrange(4):
            case 0:
                done = await source.delete(key, blind=True)
                assert done.applied is not None
                revision, values = done.applied.revision, {key: None}
            case 1:
                values = {"left": number, "right": number}
                result = await source.transact((), [Put(side, number, blind=True) for side in values])
                revision = result.revision
            case _:
                record = await source.put(key, number, blind=True)
                assert record.applied is not None
                revision = record.applied.revision
        if revision:
            history.wrote(revision, values)

    async def work() -> None:
        # Until the cache has answered and refused often enough, which the test's time limit bounds.
        while sum(answered.values()) < WRITES or min(answered[True], answered[False]) <= 10:
            await write(chance.randrange(1 << 30))

    async with reader.namespace(name).cached() as cache:

        async def look() -> None:
            while writing:
                if chance.random() < 0.3:
                    told.saw(name, history.acked)
                needed = told.needed(name) or 0
                answered[history.check(cache, chance.choice(KEYS), needed)] += 1
                try:
                    # From a thread, a batch may come between two reads: left is then another one afterwards.
                    left, right, again = cache.get("left"), cache.get("right"), cache.get("left")
                    if (left and left.version) == (again and again.version):
                        assert (left and left.version) == (right and right.version), "half a transaction"
                except NotCached:
                    pass
                await asyncio.sleep(chance.choice([0, 0, 0.001]))

        looking = [asyncio.create_task(look()) for _ in range(3)]
        await asyncio.gather(*(work() for _ in range(4)))
        writing = False
        await asyncio.gather(*looking)
        history.check_absent()
        told.saw(name, history.acked)
        await cache.caught_up()
        assert {record.key: record.value for record in cache.list()} == {
            record.key: record.value async for record in source.list()
        }


async def test_nothing_is_shown_once_it_has_expired(writer: Client, reader: Client, name: str) -> None:
    source = writer.namespace(name)
    await source.put("lasting", 1)
    async with reader.namespace(name).cached() as cache:
        # On a slow machine what lives for a short time may have ended before anybody looks.
        ttl = 0.05
        while not await _shown_until_expired(source, reader, cache, ttl):
            ttl *= 2
        assert cache.value("lasting") == 1


async def _shown_until_expired(source: Namespace, reader: Client, cache: NearCache, ttl: float) -> int:
    """Writes what lives for ever longer, and looks until all of it has ended; returns how often it was shown."""
    shown = 0
    for number in range(6):
        record = await source.put(f"short/{number}", number, ttl=ttl * (number + 1), blind=True)
        assert record.applied is not None
        await cache.caught_up(record.applied.revision)
    while True:
        # The store's clock is at least this when the cache is looked at.
        now = (await reader.server_info()).store_time
        alive = 0
        for number in range(6):
            try:
                found = cache.get(f"short/{number}")
            except NotCached:
                continue
            if found is not None:
                assert found.expires_at is not None
                assert now < found.expires_at, "an expired value"
                alive += 1
        shown += alive
        if not alive:
            return shown


async def test_a_write_in_place_of_what_the_cache_showed_is_refused_if_somebody_else_wrote(
    writer: Client, reader: Client, name: str
) -> None:
    """Read from the cache, think, write: the context is that of the version that was read, however far the cache is."""
    source = writer.namespace(name)
    first = await source.put("plan", "first")
    async with reader.namespace(name).cached() as cache:
        thinking = cache.get("plan")
        assert thinking is not None
        newer = await first.replace("theirs")
        assert newer.applied is not None
        await cache.caught_up(newer.applied.revision)
        assert cache.value("plan") == "theirs"
        with pytest.raises(Conflict) as caught:
            await thinking.replace("mine")
        assert caught.value.theirs is not None
        again = cache.get("plan")
        assert again is not None
        mine = await again.replace("mine, having seen theirs")
        assert mine.version is not None
        # And the cache does not show anybody a version before that again.
        await cache.caught_up()
        assert cache.value("plan") == "mine, having seen theirs"


async def test_two_tasks_cannot_use_what_the_other_read(reader: Client, name: str) -> None:
    space = reader.namespace(name)
    await space.put("plan", "first")
    async with space.cached() as cache:
        await cache.caught_up()
        slow, fast = cache.get("plan"), cache.get("plan")
        assert slow is not None
        assert fast == slow
        await fast.replace("fast")
        await cache.caught_up()
        with pytest.raises(Conflict):
            await slow.replace("slow")


async def test_a_large_namespace_is_cached_whole_while_it_changes(writer: Client, reader: Client, name: str) -> None:
    """Pages of a snapshot are of different revisions; what is shown is of one."""
    source = writer.namespace(name)
    size = 1_500

    async def fill(numbers: range) -> None:
        for start in numbers:
            await source.transact((), [Put(f"r/{n:05}", 0, blind=True) for n in range(start, start + 50)])

    await fill(range(0, size, 50))
    stop = asyncio.Event()

    async def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ends = (f"r/{number % size:05}", f"r/{size - 1 - number % size:05}")
            await source.transact((), [Put(key, number, blind=True) for key in dict.fromkeys(ends)])

    churning = asyncio.create_task(churn())
    try:
        for _ in range(5):
            async with reader.namespace(name).cached() as cache:
                assert len(cache) == size
                by_version: Counter[int] = Counter(
                    record.version or 0 for record in cache.list() if record.value and record.value < size // 2
                )
                torn = [version for version, count in by_version.items() if count == 1]
                assert not torn, "half a transaction"
    finally:
        stop.set()
        await churning


async def test_a_snapshot_vouches_for_no_change_that_is_still_to_come(local: LocalServer) -> None:
    """Between two of its pages a key of each is written; the one that the second page shows is not told again."""
    agent = await local.api.agent("a")
    for start in range(0, 300, 50):
        await agent.transact("shared/s", *(put(f"r/{n:03}", n) for n in range(start, start + 50)))
    async with watching(agent, "shared/s", snapshot=True) as watch:
        first = await watch.message()
        assert not first.snapshot.last
        shown = await agent.put("shared/s", "r/299", 1, blind=True)
        to_come = await agent.put("shared/s", "r/000", 1, blind=True)
        second = await watch.message()
        assert second.snapshot.last
        assert second.snapshot.records[-1].version == shown.revision
        message = await watch.message()
        assert message.WhichOneof("event") == "changes"
        assert message.changes.revision == to_come.revision


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.mark.parametrize("end", [pytest.param("terminate", marks=pytest.mark.campaign), "kill"])
async def test_a_cache_goes_on_after_a_restart(server: ServerProcess, connect: Connect, end: str) -> None:
    """Cut off it answers no causal read; afterwards it has whatever was written meanwhile."""
    async with connect(server.address, agent="reader", timeout=60) as reader:
        space: Namespace = reader.shared("s")
        await space.put("before", 1)
        async with space.cached() as cache:
            await cache.caught_up()
            getattr(server, end)()
            while cache.is_live:  # noqa: ASYNC110 # the end of another process
                await asyncio.sleep(0.01)
            with pytest.raises(NotCached):
                cache.get("before")
            assert cache.value("before", consistency="stale") == 1
            server.restart()
            async with connect(server.address, agent="writer", timeout=60) as writer:
                record = await writer.shared("s").put("after", 2)
            assert record.applied is not None
            await cache.caught_up(record.applied.revision, timeout=60)
            # After an epoch the server judges what was seen before it, once.
            assert (await cache.read("before")).value == 1
            assert cache.value("after") == 2
