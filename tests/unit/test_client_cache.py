"""A near cache shows nothing older than its reader has seen, nothing expired, and nothing from before a rollback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.client_support import (
    QUICK,
    STORE_MS,
    Fault,
    ScriptedServer,
    got,
    live_record,
    put_applied,
    scripted_server,
)

from noosphere.client import (
    Client,
    DeadlineExceeded,
    Encoding,
    InvalidArgument,
    NamespaceDeleted,
    NearCache,
    NotCached,
    UnresolvedSiblings,
    ValueMismatch,
    connect,
)
from noosphere.client._cache_state import CacheState
from noosphere.consistency import make_revision
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

SPACE = "shared/launch"
MiB = 1024 * 1024


class Plan(BaseModel):
    steps: list[str]


def expiring(record: pb.Record, time_ms: int) -> pb.Record:
    record.values[0].expire_time.FromMilliseconds(time_ms)
    return record


def page(head: int, *records: pb.Record, last: bool = True) -> ms.WatchResponse:
    token = b"at %d" % head if last else b""
    return ms.WatchResponse(snapshot=ms.SnapshotPage(records=records, last=last), resume_token=token, head=head)


def changes(revision: int, *records: pb.Record, gone: str = "") -> ms.WatchResponse:
    made = [ms.Change(kind=ms.CHANGE_KIND_PUT, actor="b#1", key=record.key, record=record) for record in records]
    if gone:
        absent = pb.Record(key=gone, context=pb.CausalContext(prefix=revision))
        made.append(ms.Change(kind=ms.CHANGE_KIND_DELETE, actor="b#1", key=gone, record=absent))
    batch = ms.ChangeBatch(revision=revision, changes=made)
    return ms.WatchResponse(changes=batch, resume_token=b"at %d" % revision, head=revision)


def bookmark(head: int) -> ms.WatchResponse:
    return ms.WatchResponse(bookmark=ms.Bookmark(), resume_token=b"at %d" % head, head=head)


class Script:
    """A cache on a scripted server, and what its watch is told."""

    def __init__(self, server: ScriptedServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.space = client.namespace(SPACE)
        self.causal = client._transport.progress.causal
        self._stream: asyncio.Queue[Any] = asyncio.Queue()
        server.script_watch(self._stream)

    def say(self, *messages: Any) -> None:
        """Sends messages on the present stream."""
        for message in messages:
            self._stream.put_nowait(message)

    def break_off(self, fault: Fault | None = None) -> None:
        """Ends the present stream; the next one begins silent."""
        broken, self._stream = self._stream, asyncio.Queue()
        self.server.script_watch(self._stream)
        broken.put_nowait(fault or Fault("UNAVAILABLE"))

    async def until(self, cache: NearCache, revision: int) -> None:
        """Waits until the cache has been told of a revision."""
        await cache._feed.until(lambda: cache._feed.state.live and cache.revision >= revision)

    async def cut_off(self, cache: NearCache) -> None:
        """Waits until the cache has noticed that it is cut off and watches again."""
        await self.server.arrival("Watch")
        assert not cache.is_live


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def script(server: ScriptedServer) -> AsyncIterator[Script]:
    async with connect(server.address, agent="a", retry=QUICK) as client:
        yield Script(server, client)


@pytest.fixture
async def cache(script: Script) -> AsyncIterator[NearCache]:
    """A live cache at revision 10 with one record; its watch has arrived."""
    script.say(page(10, live_record("plan", b'{"steps":["a"]}', dot=7)))
    async with script.space.cached() as fast:
        await script.server.arrival("Watch")
        yield fast


async def test_it_shows_what_the_snapshot_and_the_changes_tell(script: Script, cache: NearCache) -> None:
    plan = cache.get("plan", Plan)
    assert plan is not None
    assert (plan.value, plan.version, plan.namespace, plan.head) == (Plan(steps=["a"]), 7, SPACE, 10)
    assert cache.get("other") is None
    script.say(changes(11, live_record("other", b"5", dot=11)), changes(12, gone="plan"))
    await script.until(cache, 12)
    assert cache.get("plan") is None
    assert cache.value("plan") is None
    assert cache.raw("plan") is None
    assert cache.value("other") == 5
    assert cache.raw("other") == b"5"
    assert (cache.revision, len(cache), cache.is_live, cache.fits) == (12, 1, True, True)
    request = script.server.requests["Watch"][0]
    assert (request.namespace, request.collection, request.snapshot) == (SPACE, "", True)
    assert not script.server.requests["Get"]


async def test_lists_are_in_key_order(script: Script, cache: NearCache) -> None:
    script.say(changes(11, *(live_record(key, b"1", dot=11) for key in ("z", "plan/b", "plan/a", "plans"))))
    await script.until(cache, 11)
    assert [record.key for record in cache.list("plan/")] == ["plan/a", "plan/b"]
    assert [record.key for record in cache.list()] == ["plan", "plan/a", "plan/b", "plans", "z"]
    shown = next(cache.list("plan/", model=Plan))
    with pytest.raises(ValueMismatch):
        _ = shown.value


async def test_what_a_receiver_does_to_a_value_changes_nothing(cache: NearCache) -> None:
    record = cache.get("plan")
    assert record is not None
    record.value["steps"].append("mine")
    cache.value("plan")["steps"].clear()
    assert cache.value("plan") == record.value == {"steps": ["a"]}
    raw = cache.raw("plan")
    assert raw is cache.raw("plan")
    assert isinstance(raw, bytes)
    shown = cache.value("plan", Plan)
    assert shown is not None
    shown.steps.append("mine")
    assert cache.value("plan", Plan) == Plan(steps=["a"])


async def test_a_record_keeps_the_context_of_the_version_that_was_read(script: Script, cache: NearCache) -> None:
    """The cache goes on; whoever thinks about the old version must not overwrite the new one."""
    thinking = cache.get("plan")
    assert thinking is not None
    script.say(changes(11, live_record("plan", b"2", dot=11)))
    await script.until(cache, 11)
    assert (thinking.version, thinking.seen.prefix, thinking.value) == (7, 7, {"steps": ["a"]})
    newer = cache.get("plan")
    assert newer is not None
    assert (newer.version, newer.value) == (11, 2)
    script.server.script("Put", put_applied(12))
    await thinking.replace(3)
    assert script.server.requests["Put"][0].put.precondition.context.prefix == 7


async def test_an_absent_key_is_read_with_the_context_of_the_revision(cache: NearCache) -> None:
    absent = await cache.read("nothing", Plan)
    assert not absent.exists
    assert (absent.version, absent.seen.prefix, absent.head) == (0, 10, 10)


async def test_what_the_reader_has_seen_is_waited_for(script: Script, cache: NearCache) -> None:
    """Read-your-writes, and "B reads after A told B"."""
    script.causal.saw(SPACE, 11)
    with pytest.raises(NotCached, match="is at revision 10, this client has seen 11"):
        cache.get("plan")
    assert cache.get("plan", consistency="stale") is not None
    script.server.script("Get", got("plan", b'"from the server"', dot=11))
    assert (await cache.read("plan")).value == "from the server"
    script.say(changes(11, live_record("plan", b"2", dot=11)))
    await cache.caught_up()
    assert cache.value("plan") == 2


async def test_of_what_was_seen_before_an_epoch_ended_the_server_is_asked(script: Script, cache: NearCache) -> None:
    """Without a causal read in between nobody else would ever ask, and whoever waits here would wait for ever."""
    later = make_revision(1, 12)
    script.causal.saw(SPACE, 11)
    script.causal.saw(SPACE, later)
    assert script.causal.needed(SPACE) is None
    script.server.script("Get", got("any", b"0", dot=later))
    script.say(changes(later, live_record("plan", b"2", dot=later)))
    await cache.caught_up()
    assert cache.value("plan") == 2
    (asked,) = script.server.requests["Get"]
    assert asked.consistency == pb.READ_CONSISTENCY_LINEARIZABLE
    assert asked.call.causal_tokens


async def test_what_was_read_here_is_seen(script: Script, cache: NearCache) -> None:
    assert script.causal.needed(SPACE) == 0
    cache.get("nothing")
    assert script.causal.needed(SPACE) == 10
    script.say(bookmark(15))
    await script.until(cache, 15)
    assert script.causal.needed(SPACE) == 10, "the cache has gone on, nobody has looked"
    cache.raw("plan")
    assert script.causal.needed(SPACE) == 15


async def test_linearizable_reads_go_to_the_server(script: Script, cache: NearCache) -> None:
    with pytest.raises(NotCached, match="never answers linearizable reads"):
        cache.get("plan", consistency="linearizable")
    script.server.script("Get", got("plan", b"9"))
    assert (await cache.read("plan", consistency="linearizable")).value == 9
    with pytest.raises(InvalidArgument, match="consistency: 'newest'"):
        cache.get("plan", consistency="newest")  # type: ignore[call-overload] # as without a type checker
    with pytest.raises(InvalidArgument, match="key"):
        cache.get("")


async def test_ordinary_reads_use_an_open_cache_if_they_may(script: Script, cache: NearCache) -> None:
    record = await script.space.get("plan", consistency="causal")
    assert record is not None
    assert record.version == 7
    assert not script.server.requests["Get"]
    script.server.script("Get", got("plan", b"9"))
    newest = await script.space.get("plan")
    assert newest is not None
    assert newest.value == 9


async def test_while_cut_off_only_stale_reads_are_answered(script: Script, cache: NearCache) -> None:
    """Nobody knows what was lost meanwhile, until the server has accepted the resume point."""
    script.break_off()
    await script.cut_off(cache)
    with pytest.raises(NotCached, match="does not follow the server"):
        cache.get("plan")
    assert cache.value("plan", consistency="stale") == {"steps": ["a"]}
    script.say(bookmark(10))
    await script.until(cache, 10)
    assert cache.get("plan") is not None
    assert script.server.requests["Watch"][1].resume_token == b"at 10"


async def test_a_rollback_is_forgotten_as_a_whole(script: Script, cache: NearCache) -> None:
    """From the server's word of the epoch on, nothing of before is shown, not even to stale readers."""
    script.say(changes(11, live_record("lost", b"1", dot=11)))
    await script.until(cache, 11)
    script.say(ms.WatchResponse(epoch=ms.EpochChanged(epoch=2, cut=10), head=10))
    await script.server.arrival("Watch")
    assert (len(cache), cache.is_live, cache.revision) == (0, False, 0)
    for consistency in ("causal", "stale"):
        with pytest.raises(NotCached):
            cache.get("plan", consistency=consistency)
    assert script.server.requests["Watch"][1].snapshot


async def test_after_a_rollback_a_lost_revision_is_the_servers_to_judge(script: Script, cache: NearCache) -> None:
    """New revisions are larger than lost ones; that they are applied says nothing of those."""
    script.say(changes(11, live_record("lost", b"1", dot=11)))
    await script.until(cache, 11)
    assert cache.value("lost") == 1
    script.break_off()
    await script.cut_off(cache)
    first = make_revision(2, 1)
    script.say(ms.WatchResponse(epoch=ms.EpochChanged(epoch=2, cut=10), head=first))
    script.break_off()
    script.say(page(first, live_record("plan", b"2", dot=first)))
    await script.until(cache, first)
    with pytest.raises(NotCached, match="in a later epoch than revision 11"):
        cache.get("plan")
    assert cache.value("plan", consistency="stale") == 2
    # The server has the last word about it; whatever that is, the client's token is of this epoch then.
    script.server.script("Get", got("plan", b"2", dot=first))
    await cache.read("plan")
    assert script.server.requests["Get"][0].call.causal_tokens
    assert cache.value("plan") == 2


async def test_a_log_that_does_not_reach_back_means_a_new_snapshot(script: Script, cache: NearCache) -> None:
    script.break_off(Fault(reason="COMPACTED"))
    await script.cut_off(cache)
    script.say(page(20, live_record("new", b"1", dot=20)))
    await script.until(cache, 20)
    assert cache.get("plan") is None, "deleted while nobody was told"
    assert cache.value("new") == 1


async def test_half_of_a_snapshot_shows_nothing(script: Script) -> None:
    """A page may hold what a later commit wrote; the rest of that commit is still to come."""
    script.say(page(10, live_record("a", b"2", dot=12), last=False), page(10, live_record("b", b"1", dot=7)))
    cache = script.space.cached()
    opening = asyncio.create_task(cache.__aenter__())
    await asyncio.sleep(0)  # which begins it: what is not begun cannot be waited for
    script.say(changes(11, live_record("c", b"1", dot=11)))
    await cache._feed.until(lambda: cache.revision == 11)
    assert (cache.revision, cache.is_live) == (11, False)
    for consistency in ("causal", "stale"):
        with pytest.raises(NotCached):
            cache.get("a", consistency=consistency)
    assert not opening.done()
    script.say(changes(12, live_record("b", b"2", dot=12)))
    await opening
    assert (cache.value("a"), cache.value("b"), cache.revision) == (2, 2, 12)
    await cache.__aexit__(None, None, None)


async def test_nothing_expired_is_shown(script: Script, cache: NearCache) -> None:
    store_ms = script.server.store_ms
    script.say(
        changes(
            11,
            expiring(live_record("over", b"1", dot=11), store_ms),
            expiring(live_record("hour", b"1", dot=11), store_ms + 3_600_000),
        )
    )
    await script.until(cache, 11)
    for consistency in ("causal", "stale"):
        with pytest.raises(NotCached, match="cannot tell whether 'over' has expired"):
            cache.get("over", consistency=consistency)
    with pytest.raises(NotCached):
        cache.list()
    assert cache.value("hour") == 1
    script.server.script("Get", ms.GetResponse(record=pb.Record(key="over"), head=11))
    assert not (await cache.read("over")).exists


async def test_after_a_reconnect_the_stores_clock_is_asked_again(script: Script, cache: NearCache) -> None:
    """A server that was restarted may have moved its clock on."""
    script.say(changes(11, expiring(live_record("hour", b"1", dot=11), STORE_MS + 3_600_000)))
    await script.until(cache, 11)
    assert cache.value("hour") == 1
    script.server.store_ms = STORE_MS + 3_600_000
    script.break_off()
    await script.cut_off(cache)
    with pytest.raises(NotCached):
        cache.get("hour", consistency="stale")
    script.say(bookmark(11))
    await cache._feed.until(lambda: cache.is_live and cache._feed.time.known)
    with pytest.raises(NotCached):
        cache.get("hour")
    assert cache.get("plan") is not None


async def test_a_namespace_that_does_not_fit_is_read_from_the_server(script: Script) -> None:
    records = [live_record(f"k{n}", b'"%s"' % (b"x" * 1000), dot=n + 1) for n in range(200)]
    script.say(page(200, *records))
    async with script.space.cached(bytes_max=100_000) as cache:
        assert (cache.fits, cache.is_live, len(cache)) == (False, False, 0)
        assert "100000 bytes" in str(cache.failure)
        with pytest.raises(NotCached, match="100000"):
            cache.get("k1")
        script.server.script("Get", got("k1", b"1"))
        assert (await cache.read("k1")).value == 1


async def test_a_namespace_that_grows_too_large_is_given_up(script: Script) -> None:
    script.say(page(1))
    async with script.space.cached(bytes_max=100_000) as cache:
        for revision in range(2, 40):
            script.say(changes(revision, live_record("same", b"%d" % revision, dot=revision)))
        await script.until(cache, 39)
        assert cache.fits, "one record that changes often is still one record"
        assert 0 < cache.size_bytes < 3_000
        for revision in range(40, 140):
            script.say(changes(revision, live_record(f"k{revision}", b"1", dot=revision)))
        with pytest.raises(NotCached):
            await cache.caught_up(139)
        assert not cache.fits
        assert (len(cache), cache.size_bytes) == (0, 0)


async def test_deleted_records_give_their_memory_back(script: Script, cache: NearCache) -> None:
    before = cache.size_bytes
    script.say(changes(11, live_record("k", b"1", dot=11)), changes(12, gone="k"), changes(13, gone="k"))
    await script.until(cache, 13)
    assert cache.size_bytes == before


async def test_siblings_have_no_one_value(script: Script, cache: NearCache) -> None:
    two = live_record("both", b"1", dot=11)
    two.values.add().CopyFrom(live_record("both", b"2", dot=9).values[0])
    script.say(changes(11, two))
    await script.until(cache, 11)
    for read in (cache.raw, cache.value):
        with pytest.raises(UnresolvedSiblings):
            read("both")
    record = cache.get("both")
    assert record is not None
    assert record.values == (1, 2)


async def test_bytes_are_bytes(script: Script, cache: NearCache) -> None:
    record = live_record("blob", b"\x00\xff", dot=11)
    record.values[0].value.encoding = pb.ENCODING_BYTES
    script.say(changes(11, record))
    await script.until(cache, 11)
    assert cache.raw("blob") == cache.value("blob") == cache.value("blob", bytes) == b"\x00\xff"
    shown = cache.get("blob", bytes)
    assert shown is not None
    assert (shown.value, shown.encoding) == (b"\x00\xff", Encoding.BYTES)


async def test_other_threads_may_read(script: Script, cache: NearCache) -> None:
    assert await asyncio.to_thread(cache.value, "plan") == {"steps": ["a"]}
    # The token is this loop's; it was told of what the thread has seen.
    await asyncio.sleep(0)
    assert script.causal.needed(SPACE) == 10


async def test_the_end_of_the_block_is_the_end_of_the_cache(script: Script) -> None:
    script.say(page(10, live_record("plan", b"1", dot=7)))
    async with script.space.cached() as cache:
        kept = cache.get("plan")
    with pytest.raises(NotCached, match="has ended"):
        cache.get("plan", consistency="stale")
    assert kept is not None
    assert kept.value == 1
    assert (len(cache), script.client._transport.caches) == (0, {})
    with pytest.raises(RuntimeError, match="for one use"):
        await cache.__aenter__()


async def test_a_cache_whose_block_was_never_entered_is_no_reason_to_ask_the_server(script: Script) -> None:
    cache = script.space.cached()
    for read in (cache.get, cache.raw, cache.value):
        with pytest.raises(RuntimeError, match="enter its block first"):
            read("plan")
    with pytest.raises(RuntimeError, match="enter its block first"):
        cache.list()


async def test_a_namespace_that_cannot_be_watched_cannot_be_cached(script: Script) -> None:
    script.break_off(Fault(reason="NAMESPACE_DELETED"))
    with pytest.raises(NamespaceDeleted):
        await script.space.cached().__aenter__()


async def test_a_server_that_says_nothing_is_not_waited_for_for_ever(server: ScriptedServer) -> None:
    async with connect(server.address, agent="a", retry=QUICK, timeout=0.2) as client:
        script = Script(server, client)
        with pytest.raises(DeadlineExceeded, match="was not filled within"):
            await script.space.cached().__aenter__()


async def test_what_ends_the_watch_later_ends_the_cache(script: Script, cache: NearCache) -> None:
    script.break_off(Fault(reason="STALE_INCARNATION"))
    with pytest.raises(NotCached):
        await cache.caught_up(11)
    assert cache.failure is not None
    assert cache.failure.reason == "STALE_INCARNATION"
    assert len(cache) == 0


@pytest.mark.parametrize("bytes_max", [0, -1, 1000, 1.5 * MiB, True, "64"])
async def test_a_limit_is_a_number_of_bytes(script: Script, bytes_max: Any) -> None:
    with pytest.raises(InvalidArgument, match="bytes_max"):
        script.space.cached(bytes_max=bytes_max)


async def test_waiting_for_a_revision_has_a_deadline(cache: NearCache) -> None:
    await cache.caught_up(10)
    with pytest.raises(DeadlineExceeded, match="is at revision 10"):
        await cache.caught_up(11, timeout=0.05)


async def test_a_mistake_in_the_feed_ends_the_cache_instead_of_letting_it_grow_old(
    script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script.say(page(5, live_record("k", b"1", dot=5)))
    async with script.space.cached() as cache:
        assert cache.value("k") == 1

        def change(*_: object) -> None:
            raise ZeroDivisionError("planted by the test")

        monkeypatch.setattr(CacheState, "change", change)
        script.say(changes(6, live_record("k", b"2", dot=6)))
        with pytest.raises(NotCached, match="has failed: ZeroDivisionError"):
            await cache.caught_up(6)
        with pytest.raises(NotCached):
            cache.get("k", consistency="stale")
        script.server.script("Get", got("k", b"2"))
        assert (await cache.read("k")).value == 2
    assert f"near cache of {SPACE} has failed" in caplog.text
