"""Namespaces: listing, generations, dropping, what is due, and how much there is."""

from __future__ import annotations

from tests.contract.build import (
    NS,
    bury,
    change,
    failures,
    get,
    head,
    keys,
    logged,
    put,
    reap,
    remember,
    sequence,
    uuid,
    write,
)
from tests.contract.lab import StoreLab

from noosphere.consistency import NEVER_MS, Cut
from noosphere.server.ports.store import Dropped, Failed, Failure, FailureKind, Fence, NamespaceRef


async def test_namespaces_are_listed_by_name_after_a_name_with_a_prefix(lab: StoreLab) -> None:
    names = ["agents/a", "sessions/1", "shared/a", "shared/b", "shared/b/c", "shared/ä", "shared0"]
    for name in reversed(names):
        await write(lab.store, put("k"), namespace=NamespaceRef(name))

    async def listed(prefix: str, after: str, limit: int) -> list[str]:
        return [n.ref.name for n in await lab.store.namespaces(prefix, after, limit)]

    assert await listed("", "", 100) == sorted(names)
    assert await listed("shared/", "", 100) == ["shared/a", "shared/b", "shared/b/c", "shared/ä"]
    assert await listed("shared/b", "", 100) == ["shared/b", "shared/b/c"]
    assert await listed("shared/", "shared/a", 2) == ["shared/b", "shared/b/c"]
    assert await listed("shared/", "zzz", 10) == []
    assert await listed("sessions/", "agents/zzz", 10) == ["sessions/1"]
    assert await listed("", "", 3) == names[:3]
    await lab.reopen()
    assert await listed("", "", 100) == sorted(names)


async def test_a_listing_shows_head_and_deletion_without_loading(lab: StoreLab) -> None:
    revision = await write(lab.store, put("a"))
    await write(lab.store, put("a"), namespace=NamespaceRef("shared/gone"))
    await lab.store.drop(NamespaceRef("shared/gone"), None)
    await lab.reopen()
    gone, launch = await lab.store.namespaces("shared/", "", 10)
    assert (gone.deleted, launch.deleted) == (True, False)
    assert gone.head == launch.head == revision
    assert launch.loaded is not lab.loads_when_asked


async def test_a_dropped_namespace_keeps_its_head_and_nothing_else(lab: StoreLab) -> None:
    await write(lab.store, put("a"), put("b"), request=remember(sequence(1)), fences=(Fence("l", 3),))
    last = await write(lab.store, change("a"), config_version=4)
    assert await lab.store.drop(NS, last) == Dropped(last, 2)
    for _ in range(2):
        read = await lab.store.read(NS, ("a",), request=sequence(1), locks=("l",))
        assert (read.view.exists, read.view.deleted, read.view.head) == (True, True, last)
        assert read.entries == (None,)
        assert read.remembered is None
        assert read.fences == (("l", 0),)
        assert await keys(lab.store) == []
        assert await failures(lab.store, put("a")) == (Failure(FailureKind.DELETED, NS.name, last),)
        assert await lab.store.due(NS, NEVER_MS - 1, 10) == ()
        stats = await lab.store.stats(NS)
        assert (stats.record_count, stats.record_bytes, stats.log_count, stats.request_count) == (0, 0, 0, 0)
        await lab.reopen()


async def test_dropping_twice_or_at_another_head_fails(lab: StoreLab) -> None:
    first = await write(lab.store, put("a"))
    second = await write(lab.store, put("a"))
    assert await lab.store.drop(NS, first) == Failed((Failure(FailureKind.KEY, "", second),))
    assert await get(lab.store, "a") is not None
    assert await lab.store.drop(NS, None) == Dropped(second, 1)
    assert await lab.store.drop(NS, None) == Failed((Failure(FailureKind.DELETED, NS.name, second),))


async def test_dropping_what_never_was_leaves_nothing(lab: StoreLab) -> None:
    assert await lab.store.drop(NS, None) == Dropped(0, 0)
    assert not (await lab.store.read(NS, ())).view.exists


async def test_a_new_generation_begins_empty_above_the_old_head(lab: StoreLab) -> None:
    await write(lab.store, put("a"), put("b"), config_version=9)
    old_head = await write(
        lab.store, put("a"), config_version=9, request=remember(sequence(1)), fences=(Fence("l", 3),)
    )
    await lab.store.drop(NS, None)
    newer = NamespaceRef(NS.name, 2, origin=old_head)
    view = (await lab.store.read(newer, ())).view
    assert (view.exists, view.head, view.floor) == (False, old_head, old_head)
    assert view.floor_context == old_head, "an earlier generation's contexts cannot judge absent keys of this one"
    first = await write(lab.store, put("a", b"new"), namespace=newer, request=remember(sequence(1)))
    assert first > old_head
    assert await keys(lab.store, "", newer) == ["a"]
    assert [b.revision for b in await logged(lab.store, old_head, newer)] == [first]
    for _ in range(2):
        (listed,) = await lab.store.namespaces("", "", 10)
        assert (listed.ref, listed.deleted, listed.head) == (newer, False, first)
        view = (await lab.store.read(NS, ())).view
        assert (view.deleted, view.head) == (True, old_head)
        assert [f.kind for f in await failures(lab.store, put("a"))] == [FailureKind.DELETED]
        await lab.crash()


async def test_generations_follow_each_other_many_times(lab: StoreLab) -> None:
    origin = 0
    for generation in range(1, 8):
        ref = NamespaceRef(NS.name, generation, origin)
        await write(lab.store, put("a", str(generation).encode()), namespace=ref)
        if generation % 3 == 0:
            await lab.crash()
        entry = await get(lab.store, "a", ref)
        assert entry is not None
        assert entry.data == str(generation).encode()
        dropped = await lab.store.drop(ref, None)
        assert isinstance(dropped, Dropped)
        assert dropped.head > origin
        origin = dropped.head
    (listed,) = await lab.store.namespaces("", "", 10)
    assert (listed.ref.generation, listed.deleted) == (7, True)


async def test_due_gives_keys_whose_time_has_come_earliest_first(lab: StoreLab) -> None:
    await write(lab.store, put("c", due_ms=30), put("a", due_ms=20), put("b", due_ms=20), put("never"))
    assert await lab.store.due(NS, 19, 10) == ()
    assert await lab.store.due(NS, 20, 10) == ("a", "b")
    assert await lab.store.due(NS, 99, 10) == ("a", "b", "c")
    assert await lab.store.due(NS, 99, 10) == ("a", "b", "c"), "asking changes nothing"
    assert await lab.store.due(NS, 99, 2) == ("a", "b")
    await write(lab.store, change("a", due_ms=40), change("b"), reap("c"))
    await write(lab.store, put("d", due_ms=25))
    for _ in range(2):
        assert await lab.store.due(NS, 99, 10) == ("d", "a")
        assert (await lab.store.namespaces("", "", 1))[0].next_due_ms <= 25
        await lab.reopen()
    await write(lab.store, reap("a"), reap("d"))
    assert await lab.store.due(NS, 99, 10) == ()
    assert (await lab.store.namespaces("", "", 1))[0].next_due_ms == NEVER_MS
    assert await lab.store.due(NamespaceRef("shared/none"), 99, 10) == ()


async def test_stats_count_what_is_there(lab: StoreLab) -> None:
    now_ms = lab.store.now_ms()
    await write(lab.store, put("a", b"12345", event=b"ev"), put("ä", b"", event=b"e"))
    lab.advance(10)
    await write(lab.store, change("a", b"123", event=b"e"), request=remember(uuid("x")))
    revision = await write(lab.store, bury("ä", event=b"e"))
    for _ in range(2):
        stats = await lab.store.stats(NS)
        assert stats.view.head == revision
        assert stats.record_count == 2
        assert stats.record_bytes == len("a") + 3 + len("ä".encode()) + len(b"tombstone")
        assert (stats.log_count, stats.log_first_ms, stats.request_count) == (3, now_ms, 1)
        assert stats.log_bytes == (1 + 5 + 2) + (2 + 0 + 1) + (1 + 3 + 1) + (2 + 9 + 1)
        await lab.reopen()
    await lab.store.compact(NS, revision - 1)
    stats = await lab.store.stats(NS)
    assert (stats.log_count, stats.log_bytes, stats.log_first_ms) == (1, 2 + 9 + 1, now_ms + 10)
    await write(lab.store, reap("ä"))
    assert (await lab.store.stats(NS)).record_count == 1


async def test_the_services_own_records_are_stored_like_all_but_counted_apart(lab: StoreLab) -> None:
    """Their keys begin with NUL, and they have no event: no log, no stamp."""
    own = {"event": b"", "members": False}
    first = await write(lab.store, put("a"), put("\0conflicts/1", b"own", due_ms=7, **own), put("\0x/2", b"", **own))
    for _ in range(2):
        stats = await lab.store.stats(NS)
        assert (stats.record_count, stats.own_count) == (1, 2)
        assert (await lab.store.read(NS, ("gone",), counted=True)).record_count == 1
        assert (await lab.store.read(NS, ("gone",))).record_count is None
        assert (await lab.store.totals()).record_count == 1
        assert await keys(lab.store) == ["\0conflicts/1", "\0x/2", "a"]
        assert await keys(lab.store, "\0conflicts/") == ["\0conflicts/1"]
        assert await keys(lab.store, "", after="\0\U0010ffff") == ["a"]
        assert (await lab.store.scan(NS, "\0conflicts/", limit=1)).stamps == (0, 0)
        assert [c.key for b in await logged(lab.store) for c in b.changes] == ["a"]
        assert await lab.store.due(NS, 7, 10) == ("\0conflicts/1",)
        entry = await get(lab.store, "\0conflicts/1")
        assert entry is not None
        assert (entry.revision, entry.data) == (first, b"own")
        await lab.reopen()
    await write(lab.store, reap("\0conflicts/1"))
    await lab.crash()
    assert (await lab.store.stats(NS)).own_count == 1
    assert await lab.store.drop(NS, None) == Dropped(first + 1, 1)


async def test_totals_count_over_all_namespaces_loaded_or_not(lab: StoreLab) -> None:
    for i in range(3):
        await write(lab.store, put("a", b"123"), put("b", b""), namespace=NamespaceRef(f"shared/{i}"))
    totals = await lab.store.totals()
    assert (totals.namespace_count, totals.loaded_count) == (3, 3)
    assert (totals.record_count, totals.record_bytes) == (6, 3 * (1 + 3 + 1))
    assert totals.commit_count == 3
    assert 1 <= totals.sync_count <= 3
    await lab.reopen()
    totals = await lab.store.totals()
    assert (totals.namespace_count, totals.record_count, totals.record_bytes) == (3, 6, 15)
    assert totals.commit_count == 0


async def test_an_epoch_cuts_every_namespace_at_its_head_once(lab: StoreLab) -> None:
    first_epoch = lab.store.epoch
    idle = NamespaceRef("shared/idle")
    old = await write(lab.store, put("a"))
    old_idle = await write(lab.store, put("a"), namespace=idle)
    await lab.crash()
    second_epoch = lab.store.epoch
    assert second_epoch > first_epoch
    expected = (Cut(first_epoch, 0), Cut(second_epoch, old))
    assert (await lab.store.read(NS, ())).view.cuts == expected
    newer = await write(lab.store, put("a"))
    assert (await lab.store.read(NS, ())).view.cuts == expected
    await lab.crash()
    third_epoch = lab.store.epoch
    assert (await lab.store.read(NS, ())).view.cuts == (*expected, Cut(third_epoch, newer))
    # Nobody wrote to the idle one in the second epoch: one cut says all that is to be said.
    assert (await lab.store.read(idle, ())).view.cuts == (Cut(first_epoch, 0), Cut(third_epoch, old_idle))
    await write(lab.store, put("a"))
    await lab.reopen()
    assert lab.store.epoch == third_epoch
    assert (await lab.store.read(NS, ())).view.cuts == (*expected, Cut(third_epoch, newer))
    assert await head(lab.store) > third_epoch << 40
