"""The atomic step: what a commit checks, in which order, and what it leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.build import (
    NS,
    absent,
    alive,
    bury,
    change,
    commit,
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
from tests.contract.lab import FIRST_EPOCH, StoreLab

from noosphere.consistency import NEVER_MS, Cut, Reason, Refusal, epoch_of, make_revision, seq_of, to_hex
from noosphere.server.ports.store import (
    CollectionCheck,
    Committed,
    Failure,
    FailureKind,
    Fence,
    KeyCheck,
    Mutation,
    NamespaceRef,
    StampMode,
    StoredEntry,
)


async def test_revisions_of_a_namespace_follow_each_other_and_carry_the_epoch(lab: StoreLab) -> None:
    first = await write(lab.store, put("a"))
    second = await write(lab.store, put("b"))
    other = await write(lab.store, put("a"), namespace=NamespaceRef("shared/other"))
    assert lab.store.epoch > FIRST_EPOCH
    assert (epoch_of(first), seq_of(first)) == (lab.store.epoch, 1)
    assert second == first + 1
    assert other == first, "namespaces do not share a sequence"


async def test_what_was_written_is_read_back_at_its_revision(lab: StoreLab) -> None:
    until_ms = lab.store.now_ms() + 60_000
    revision = await write(lab.store, put("a", b"\x00\xff", live_until_ms=until_ms), put("b", b""))
    read = await lab.store.read(NS, ("b", "missing", "a", "b"))
    b = StoredEntry("b", revision, b"", NEVER_MS)
    assert read.entries == (b, None, StoredEntry("a", revision, b"\x00\xff", until_ms), b)
    view = read.view
    assert (view.exists, view.deleted, view.head, view.epoch) == (True, False, revision, lab.store.epoch)


async def test_a_namespace_nobody_wrote_to_is_empty_and_does_not_come_to_be_by_reading(lab: StoreLab) -> None:
    read = await lab.store.read(NS, ("a",), request=sequence(1), locks=("l",))
    assert read.entries == (None,)
    assert read.remembered is None
    assert read.fences == (("l", 0),)
    view = read.view
    assert (view.exists, view.deleted, view.head, view.floor, view.config_version) == (False, False, 0, 0, 0)
    assert await keys(lab.store) == []
    assert await lab.store.namespaces("", "", 10) == ()


async def test_a_commit_without_mutations_uses_no_revision_but_makes_the_namespace_exist(lab: StoreLab) -> None:
    assert await write(lab.store) == 0
    assert (await lab.store.read(NS, ())).view.exists
    assert [n.ref for n in await lab.store.namespaces("", "", 10)] == [NS]
    revision = await write(lab.store, put("a"))
    assert await write(lab.store, checks=[alive("a", revision)]) == revision
    assert await head(lab.store) == revision
    assert len(await logged(lab.store)) == 1


async def test_a_commit_without_mutations_is_checked_all_the_same(lab: StoreLab) -> None:
    await write(lab.store, put("a"))
    assert [f.kind for f in await failures(lab.store, checks=[absent("a")])] == [FailureKind.KEY]


@pytest.mark.parametrize(
    ("key", "offset", "live", "holds"),
    [
        ("live", 0, True, True),
        ("live", 0, False, False),
        ("live", -1, True, False),
        ("live", 1, True, False),
        ("dead", 1, False, True),
        ("dead", 1, True, False),
        ("dead", None, False, False),
        ("lapsed", 2, False, True),
        ("lapsed", 2, True, False),
        ("none", None, False, True),
        ("none", None, True, False),
        ("none", 0, False, False),
    ],
)
async def test_a_key_check_compares_stored_revision_and_liveness(
    lab: StoreLab, key: str, offset: int | None, live: bool, holds: bool
) -> None:
    first = await write(lab.store, put("live"), put("dead"), put("lapsed"))
    await write(lab.store, bury("dead"))
    await write(lab.store, change("lapsed", live_until_ms=lab.store.now_ms() + 1_000))
    lab.advance(1_000)
    check = KeyCheck(key, 0 if offset is None else first + offset, live)
    result = await commit(lab.store, put("probe"), checks=[check])
    assert isinstance(result, Committed) is holds


async def test_a_value_is_gone_exactly_at_its_expiry_with_no_sweeper(lab: StoreLab) -> None:
    until_ms = lab.store.now_ms() + 1_000
    revision = await write(lab.store, put("a", live_until_ms=until_ms))
    lab.advance(until_ms - 1 - lab.store.now_ms())
    assert await commit(lab.store, checks=[alive("a", revision)]) == Committed(revision, until_ms - 1)
    lab.advance(1)
    (failure,) = await failures(lab.store, checks=[alive("a", revision)])
    assert failure == Failure(FailureKind.KEY, "a", revision)
    assert await commit(lab.store, checks=[KeyCheck("a", revision, False)]) == Committed(revision, until_ms)


async def test_delete_create_delete_does_not_pass_a_check_on_the_first_tombstone(lab: StoreLab) -> None:
    await write(lab.store, put("a"))
    tombstone = await write(lab.store, bury("a"))
    await write(lab.store, put("a"))
    again = await write(lab.store, bury("a"))
    (failure,) = await failures(lab.store, put("a"), checks=[KeyCheck("a", tombstone, False)])
    assert failure == Failure(FailureKind.KEY, "a", again)


async def test_a_reaped_key_is_stored_at_no_revision(lab: StoreLab) -> None:
    tombstone = await write(lab.store, put("a"), bury("b"))
    await write(lab.store, reap("b"), checks=[KeyCheck("b", tombstone, False)])
    assert await get(lab.store, "b") is None
    assert await failures(lab.store, checks=[KeyCheck("b", tombstone, False)]) == (Failure(FailureKind.KEY, "b", 0),)
    await write(lab.store, put("b"), checks=[absent("b")])


async def test_one_failed_check_among_many_changes_nothing_and_all_failures_are_told(lab: StoreLab) -> None:
    before = await write(lab.store, *(put(f"k{i}") for i in range(10)))
    changes = [change(f"k{i}") for i in range(10)]
    checks = [alive(f"k{i}", before if i not in (3, 7) else before - 1) for i in range(10)]
    found = await failures(lab.store, *changes, put("new"), checks=checks, request=remember(sequence(1)))
    assert found == (Failure(FailureKind.KEY, "k3", before), Failure(FailureKind.KEY, "k7", before))
    read = await lab.store.read(NS, ("k0", "new"), request=sequence(1))
    assert read.view.head == before
    assert read.entries == (StoredEntry("k0", before, b"value", NEVER_MS), None)
    assert read.remembered is None
    assert len(await logged(lab.store)) == 1


async def test_collections_change_for_every_ancestor_and_members_only_with_membership(lab: StoreLab) -> None:
    async def stamps(collection: str) -> tuple[int, int]:
        found = (await lab.store.scan(NS, collection, limit=1)).stamps
        return found.changed, found.members

    first = await write(lab.store, put("a/b/c"), put("top"))
    assert await stamps("") == await stamps("a/") == await stamps("a/b/") == (first, first)
    second = await write(lab.store, change("a/b/c"))
    assert await stamps("") == await stamps("a/") == await stamps("a/b/") == (second, first)
    third = await write(lab.store, put("a/x"), change("a/b/c"))
    assert await stamps("a/b/") == (third, first)
    assert await stamps("a/") == await stamps("") == (third, third)
    assert await stamps("a/b/c/") == await stamps("other/") == (0, 0)
    tombstone = await write(lab.store, bury("a/x"))
    await write(lab.store, reap("a/x"))
    assert await stamps("a/") == (tombstone, tombstone), "reaping moves no collection"


@pytest.mark.parametrize("mode", list(StampMode))
async def test_a_collection_check_compares_its_stamp(lab: StoreLab, mode: StampMode) -> None:
    created = await write(lab.store, put("a/x"))
    changed = await write(lab.store, change("a/x"))
    good, bad = (changed, created) if mode is StampMode.CHANGED else (created, changed)
    await write(lab.store, checks=[CollectionCheck("a/", mode, good), CollectionCheck("b/", mode, 0)])
    found = await failures(lab.store, checks=[CollectionCheck("a/", mode, bad), CollectionCheck("b/", mode, 1)])
    assert found == (Failure(FailureKind.COLLECTION, "a/", good), Failure(FailureKind.COLLECTION, "b/", 0))


async def test_a_collection_that_was_emptied_by_reaping_never_shows_an_old_stamp_again(lab: StoreLab) -> None:
    """Absent is stamp 0 at first. If it were 0 again, a check made before would pass after everything changed."""
    seen = set()
    for _ in range(4):
        stamps = (await lab.store.scan(NS, "a/", limit=1)).stamps
        assert stamps not in seen
        seen.add(stamps)
        await write(lab.store, put("a/x"))
        await write(lab.store, bury("a/x"))
        await write(lab.store, reap("a/x"))
        await lab.reopen()


async def test_a_commit_under_another_epoch_fails_and_says_which_it_is(lab: StoreLab) -> None:
    for epoch in (lab.store.epoch - 1, lab.store.epoch + 1):
        assert await failures(lab.store, put("a"), epoch=epoch) == (Failure(FailureKind.EPOCH, "", lab.store.epoch),)
    assert await get(lab.store, "a") is None


async def test_a_commit_fails_below_the_highest_configuration_and_otherwise_raises_it(lab: StoreLab) -> None:
    await write(lab.store, put("a"), config_version=5)
    assert (await lab.store.read(NS, ())).view.config_version == 5
    assert await failures(lab.store, put("a"), config_version=4) == (Failure(FailureKind.CONFIG, "", 5),)
    await write(lab.store, put("a"), config_version=5)
    await write(lab.store, put("a"), config_version=9)
    assert await failures(lab.store, config_version=8) == (Failure(FailureKind.CONFIG, "", 9),)


async def test_a_smaller_fencing_token_than_the_highest_seen_is_refused(lab: StoreLab) -> None:
    await write(lab.store, put("a"), fences=(Fence("lock|1", 7), Fence("锁", 3)))
    await write(lab.store, put("a"), fences=(Fence("lock|1", 7),))
    await write(lab.store, put("a"), fences=(Fence("lock|1", 12),))
    found = await failures(lab.store, put("a"), fences=(Fence("锁", 3), Fence("lock|1", 11)))
    assert found == (Failure(FailureKind.FENCE, "lock|1", 12),)
    read = await lab.store.read(NS, (), locks=("锁", "lock|1", "never"))
    assert read.fences == (("锁", 3), ("lock|1", 12), ("never", 0))


async def test_a_failed_commit_does_not_raise_a_fence(lab: StoreLab) -> None:
    await failures(lab.store, put("a"), fences=(Fence("lock", 7),), checks=[alive("a", 1)])
    assert (await lab.store.read(NS, (), locks=("lock",))).fences == (("lock", 0),)


async def test_a_commit_fails_at_its_deadline_and_not_before(lab: StoreLab) -> None:
    deadline_ms = lab.store.now_ms() + 500
    lab.advance(499)
    await write(lab.store, put("a"), not_after_ms=deadline_ms)
    lab.advance(1)
    (failure,) = await failures(lab.store, put("b"), not_after_ms=deadline_ms)
    assert failure == Failure(FailureKind.NOT_AFTER, "", deadline_ms)


async def test_floor_context_only_rises(lab: StoreLab) -> None:
    for raised, expected in ((7, 7), (5, 7), (9, 9), (0, 9)):
        await write(lab.store, put("a", raise_floor_context=raised))
        assert (await lab.store.read(NS, ())).view.floor_context == expected


async def test_the_order_of_checks_is_the_ports(lab: StoreLab) -> None:
    """Each step makes one more of the earlier checks hold."""
    first = await write(
        lab.store, put("a"), config_version=5, fences=(Fence("lock", 7),), request=remember(sequence(1))
    )
    wrong: dict[str, Any] = {
        "epoch": lab.store.epoch - 1,
        "config_version": 4,
        "fences": (Fence("lock", 6),),
        "not_after_ms": lab.store.now_ms(),
        "checks": [absent("a"), CollectionCheck("", StampMode.CHANGED, 0)],
    }
    right: dict[str, Any] = {
        "epoch": lab.store.epoch,
        "fences": (Fence("lock", 7),),
        "config_version": 5,
        "not_after_ms": None,
        "checks": [alive("a", first), CollectionCheck("", StampMode.CHANGED, first)],
    }
    order = [
        ("epoch", FailureKind.EPOCH),
        ("fences", FailureKind.FENCE),
        ("config_version", FailureKind.CONFIG),
        ("not_after_ms", FailureKind.NOT_AFTER),
    ]
    for field, kind in order:
        assert [f.kind for f in await failures(lab.store, put("b"), **wrong)] == [kind]
        wrong[field] = right[field]
    found = await failures(lab.store, put("b"), **wrong)
    assert [f.kind for f in found] == [FailureKind.KEY, FailureKind.COLLECTION]


async def test_a_replay_wins_over_every_check_but_epoch_and_deletion(lab: StoreLab) -> None:
    request = remember(sequence(1), b"the reply")
    first = await write(lab.store, put("a"), config_version=5, fences=(Fence("lock", 7),), request=request)
    hopeless: dict[str, Any] = {
        "config_version": 0,
        "fences": (Fence("lock", 1),),
        "not_after_ms": 0,
        "checks": [absent("a")],
        "request": request,
    }
    result = await commit(lab.store, put("a", b"twice"), **hopeless)
    assert not isinstance(result, Committed)
    remembered = getattr(result, "remembered", None)
    assert remembered is not None
    assert (remembered.revision, remembered.reply, remembered.fingerprint) == (first, b"the reply", b"meaning")
    assert [f.kind for f in await failures(lab.store, epoch=1, **hopeless)] == [FailureKind.EPOCH]
    await lab.store.drop(NS, None)
    assert [f.kind for f in await failures(lab.store, epoch=1, **hopeless)] == [FailureKind.DELETED]


async def test_rev_slots_take_the_commits_revision_and_the_index(lab: StoreLab) -> None:
    slots = [put("log/", bytes([i]), rev_slot=True) for i in range(3)]
    first = await write(lab.store, slots[0], put("plain"), slots[1], slots[2])
    second = await write(lab.store, put("log/", b"later", rev_slot=True))
    expected = [f"log/{to_hex(first)}-{i:04x}" for i in (0, 2, 3)] + [f"log/{to_hex(second)}-0000"]
    page = await lab.store.scan(NS, "log/", limit=10)
    assert [e.key for e in page.entries] == expected
    assert [e.data for e in page.entries] == [b"\0", b"\1", b"\2", b"later"]
    assert [c.key for c in (await logged(lab.store))[1].changes] == expected[3:]


async def test_appends_keep_their_order_as_text_over_epochs_and_powers_of_sixteen(lab: StoreLab) -> None:
    written = []
    for round_ in range(2):
        for i in range(20):
            data = f"{round_}.{i}".encode()
            written.append(data)
            await write(lab.store, put("log/", data, rev_slot=True))
        await lab.crash()
    page = await lab.store.scan(NS, "log/", limit=100)
    assert [e.data for e in page.entries] == written


async def test_bounds_of_a_commit(lab: StoreLab) -> None:
    await write(lab.store, *(put(f"k{i}", b"") for i in range(512)))
    await write(lab.store, put("big", b"x" * (1024 * 1024 - 100)))
    before = await head(lab.store)
    cases: list[tuple[list[Mutation], Reason]] = [
        ([put(f"k{i}", b"") for i in range(1_025)], Reason.VALUE_TOO_LARGE),
        ([put("a", b"x" * (1024 * 1024 + 1))], Reason.VALUE_TOO_LARGE),
        ([put("a"), put("b"), put("a")], Reason.INVALID_FIELD),
    ]
    for mutations, reason in cases:
        with pytest.raises(Refusal) as refused:
            await commit(lab.store, *mutations)
        assert refused.value.reason is reason
    assert await head(lab.store) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"mutations": [put("\ud800")]},
        {"request": remember(sequence(1, client="\udfff#1"))},
        {"request": remember(uuid("\ud800"))},
        {"fences": (Fence("\ud800", 1),)},
        {"fences": (Fence("lock", -1),)},
        {"fences": (Fence("lock", 1 << 63),)},
    ],
)
async def test_what_no_journal_could_store_is_refused_and_hurts_nobody_else(
    lab: StoreLab, fields: dict[str, Any]
) -> None:
    """A value that fails only when a batch is written would take everybody's commits in that batch along."""
    mutations = fields.get("mutations", [put("a")])
    others = {name: value for name, value in fields.items() if name != "mutations"}
    results = await asyncio.gather(
        commit(lab.store, put("before")),
        commit(lab.store, *mutations, **others),
        commit(lab.store, put("after")),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [Committed, Refusal, Committed]
    assert getattr(results[1], "reason", None) is Reason.INVALID_FIELD
    await lab.crash()
    assert await keys(lab.store) == ["after", "before"]


async def test_the_log_holds_records_and_events_of_each_commit(lab: StoreLab) -> None:
    now_ms = lab.store.now_ms()
    first = await write(lab.store, put("a", b"1", event=b"one"), put("b", b"2", event=b"two"))
    lab.advance(5)
    second = await write(lab.store, bury("a", event=b"gone"))
    batches = await logged(lab.store)
    assert [(b.revision, b.time_ms) for b in batches] == [(first, now_ms), (second, now_ms + 5)]
    assert [tuple(c) for b in batches for c in b.changes] == [
        ("a", b"1", b"one"),
        ("b", b"2", b"two"),
        ("a", b"tombstone", b"gone"),
    ]


async def test_reaping_takes_a_revision_but_is_not_logged(lab: StoreLab) -> None:
    first = await write(lab.store, bury("a"), bury("b"))
    second = await write(lab.store, reap("a"))
    third = await write(lab.store, reap("b"), put("c"))
    assert (second, third) == (first + 1, first + 2)
    batches = await logged(lab.store)
    assert [b.revision for b in batches] == [first, third]
    assert [c.key for c in batches[1].changes] == ["c"]
    assert await head(lab.store) == third


async def test_cuts_begin_with_the_epoch_in_which_a_namespace_was_first_written(lab: StoreLab) -> None:
    epoch = lab.store.epoch
    assert (await lab.store.read(NS, ())).view.cuts == (Cut(epoch, 0),)
    first = await write(lab.store, put("a"))
    assert first == make_revision(epoch, 1)
    assert (await lab.store.read(NS, ())).view.cuts == (Cut(epoch, 0),)
    await write(lab.store, put("a"))
    assert (await lab.store.read(NS, ())).view.cuts == (Cut(epoch, 0),)
