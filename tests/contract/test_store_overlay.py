"""What is accepted but not synced: commits decide on it, readers never see it, and no answer depends on it early."""

from __future__ import annotations

import asyncio
import random

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
    write,
)
from tests.contract.lab import StoreLab, turns

from noosphere.server.ports.store import (
    Changes,
    CollectionCheck,
    Committed,
    Dropped,
    Failed,
    FailureKind,
    Fence,
    HeadMoved,
    NamespaceRef,
    Replayed,
    StampMode,
)


async def test_readers_see_only_what_is_synced(lab: StoreLab) -> None:
    before = await write(lab.store, put("old"), put("other"))
    feed = lab.store.heads()
    async with lab.holding():
        request = remember(sequence(1))
        making = asyncio.create_task(
            commit(
                lab.store,
                change("old", b"new"),
                put("a/b"),
                bury("other"),
                request=request,
                fences=(Fence("lock", 4),),
                config_version=3,
            )
        )
        await turns()
        assert not making.done()
        read = await lab.store.read(NS, ("old", "a/b", "other"), request=request.ref, locks=("lock",))
        assert [e and (e.revision, e.data) for e in read.entries] == [(before, b"value"), None, (before, b"value")]
        assert (read.view.head, read.view.config_version, read.remembered) == (before, 0, None)
        assert read.fences == (("lock", 0),)
        page = await lab.store.scan(NS, "", limit=10)
        assert [e.key for e in page.entries] == ["old", "other"]
        assert page.stamps == (before, before)
        assert (await lab.store.scan(NS, "a/", limit=10)).stamps == (0, 0)
        assert await lab.store.changes(NS, before, 10) == Changes((), before, False)
        assert (await lab.store.stats(NS)).record_count == 2
        (summary,) = await lab.store.namespaces("", "", 10)
        assert summary.head == before
    assert isinstance(await making, Committed)
    assert await anext(feed) == HeadMoved(NS.storage_id, before + 1)
    assert (await lab.store.read(NS, (), request=request.ref)).remembered is not None


async def test_deciders_see_what_is_accepted(lab: StoreLab) -> None:
    before = await write(lab.store, put("old"), put("other"))
    async with lab.holding():
        request = remember(sequence(1))
        making = asyncio.create_task(
            commit(
                lab.store,
                change("old", b"new"),
                put("a/b"),
                reap("other"),
                request=request,
                fences=(Fence("lock", 4),),
                config_version=3,
            )
        )
        await turns()
        read = await lab.store.read(NS, ("old", "a/b", "other"), request=request.ref, locks=("lock",), accepted=True)
        accepted = before + 1
        assert [e and (e.revision, e.data) for e in read.entries] == [(accepted, b"new"), (accepted, b"value"), None]
        assert (read.view.head, read.view.config_version) == (accepted, 3)
        assert read.remembered is not None
        assert read.remembered.revision == accepted
        assert read.fences == (("lock", 4),)
        page = await lab.store.scan(NS, "", limit=10, accepted=True)
        assert [e.key for e in page.entries] == ["a/b", "old"]
        assert page.stamps == (accepted, accepted)
    await making


async def test_of_many_writers_in_one_group_only_one_wins(lab: StoreLab) -> None:
    before = await write(lab.store, put("a"))
    async with lab.holding():
        racing = [
            asyncio.create_task(commit(lab.store, change("a", bytes([i])), checks=[alive("a", before)]))
            for i in range(50)
        ]
        await turns()
    results = await asyncio.gather(*racing)
    assert [type(r) for r in results].count(Committed) == 1
    assert all(r.failures[0].actual == before + 1 for r in results if isinstance(r, Failed))


async def test_commits_pipeline_on_each_other_without_waiting_for_a_sync(lab: StoreLab) -> None:
    async with lab.holding():
        chain = [asyncio.create_task(commit(lab.store, put("a"), checks=[absent("a")]))]
        await turns()
        for _ in range(30):
            seen = await get(lab.store, "a", accepted=True)
            assert seen is not None
            chain.append(asyncio.create_task(commit(lab.store, change("a"), checks=[alive("a", seen.revision)])))
            await turns(3)
        assert await head(lab.store) == 0
    results = await asyncio.gather(*chain)
    revisions = [r.revision for r in results if isinstance(r, Committed)]
    assert revisions == list(range(revisions[0], revisions[0] + 31))


async def test_a_refusal_waits_for_what_it_depends_on(lab: StoreLab) -> None:
    async with lab.holding():
        winning = asyncio.create_task(commit(lab.store, put("a"), checks=[absent("a")]))
        await turns()
        losing = asyncio.create_task(commit(lab.store, put("a"), checks=[absent("a")]))
        await turns()
        assert not losing.done()
    assert isinstance(await losing, Failed)
    assert winning.done()


async def test_a_replay_waits_for_the_commit_that_it_repeats(lab: StoreLab) -> None:
    request = remember(sequence(1))
    async with lab.holding():
        first = asyncio.create_task(commit(lab.store, put("a"), request=request))
        await turns()
        retry = asyncio.create_task(commit(lab.store, put("a"), request=request))
        await turns()
        assert not retry.done()
    result = await retry
    assert isinstance(result, Replayed)
    made = await first
    assert isinstance(made, Committed)
    assert result.remembered.revision == made.revision


async def test_a_commit_without_mutations_waits_for_what_its_checks_saw(lab: StoreLab) -> None:
    before = await write(lab.store, put("a"))
    async with lab.holding():
        making = asyncio.create_task(commit(lab.store, change("a")))
        await turns()
        checking = asyncio.create_task(commit(lab.store, checks=[alive("a", before + 1)]))
        await turns()
        assert not checking.done()
    result = await checking
    assert isinstance(result, Committed)
    assert result.revision == before + 1
    await making


async def test_settle_waits_for_what_was_accepted_and_for_nothing_else(lab: StoreLab) -> None:
    await lab.store.settle(NS)
    other = NamespaceRef("shared/other")
    async with lab.holding():
        making = asyncio.create_task(commit(lab.store, put("a")))
        await turns()
        settling = asyncio.create_task(lab.store.settle(NS))
        await lab.store.settle(other)
        await turns()
        assert not settling.done()
    await settling
    assert await head(lab.store) != 0
    await making


async def test_accepted_scans_merge_both_states_in_both_directions(lab: StoreLab) -> None:
    chance = random.Random(1)
    names = [f"k{i:02}" for i in range(40)]
    for name in names[::2]:
        await write(lab.store, put(name, b"synced"))
    expected = {name: b"synced" for name in names[::2]}
    async with lab.holding():
        making = []
        for name in chance.sample(names, 25):
            if name in expected and chance.random() < 0.5:
                making.append(asyncio.create_task(commit(lab.store, reap(name))))
                del expected[name]
            else:
                making.append(asyncio.create_task(commit(lab.store, put(name, b"accepted"))))
                expected[name] = b"accepted"
        await turns()
        for reverse in (False, True):
            for limit in (1, 2, 5, 100):
                found: list[tuple[str, bytes]] = []
                edge: dict[str, str] = {}
                while True:
                    page = await lab.store.scan(NS, "", limit=limit, reverse=reverse, accepted=True, **edge)
                    found += [(e.key, e.data) for e in page.entries]
                    if not page.more:
                        break
                    edge = {"before" if reverse else "after": found[-1][0]}
                assert found == sorted(expected.items(), reverse=reverse)
        assert await keys(lab.store) == names[::2]
    await asyncio.gather(*making)
    assert await keys(lab.store) == sorted(expected)


async def test_a_drop_is_accepted_before_it_is_synced(lab: StoreLab) -> None:
    await write(lab.store, put("a"), put("b"))
    async with lab.holding():
        last = asyncio.create_task(commit(lab.store, put("c")))
        await turns()
        dropping = asyncio.create_task(lab.store.drop(NS, None))
        await turns()
        late = asyncio.create_task(commit(lab.store, put("d")))
        await turns()
        assert not dropping.done()
        assert not late.done()
        assert await keys(lab.store) == ["a", "b"]
        assert await keys(lab.store, accepted=True) == []
        assert (await lab.store.read(NS, (), accepted=True)).view.deleted
        assert not (await lab.store.read(NS, ())).view.deleted
    made = await last
    assert isinstance(made, Committed)
    assert await dropping == Dropped(made.revision, 3)
    refused = await late
    assert isinstance(refused, Failed)
    assert refused.failures[0].kind is FailureKind.DELETED
    assert refused.failures[0].actual == made.revision


async def test_a_cancelled_caller_does_not_take_its_commit_back(lab: StoreLab) -> None:
    async with lab.holding():
        making = asyncio.create_task(commit(lab.store, put("a")))
        await turns()
        making.cancel()
        await turns()
        assert making.cancelled()
        assert await get(lab.store, "a", accepted=True) is not None
        await turns()
    await lab.store.settle(NS)
    assert await get(lab.store, "a") is not None


async def test_thousands_of_randomly_cancelled_calls_leave_the_store_whole(lab: StoreLab) -> None:
    """Each writer counts what it knows was made; the counter must be between that and what it tried."""
    chance = random.Random(2)
    known = tried = 0

    async def add(key: str) -> None:
        nonlocal known
        for _ in range(1_000):
            entry = await get(lab.store, key, accepted=True)
            check = absent(key) if entry is None else alive(key, entry.revision)
            count = 0 if entry is None else int(entry.data)
            result = await commit(lab.store, put(key, str(count + 1).encode()), checks=[check])
            if isinstance(result, Committed):
                known += 1
                return

    for _ in range(50):
        tasks = [asyncio.create_task(add(f"k{chance.randrange(8)}")) for _ in range(60)]
        tried += len(tasks)
        await turns(chance.randrange(6))
        for task in chance.sample(tasks, 30):
            task.cancel()
            if chance.random() < 0.2:
                await turns(1)
        await asyncio.gather(*tasks, return_exceptions=True)
    await lab.store.settle(NS)
    page = await lab.store.scan(NS, "", limit=100)
    total = sum(int(e.data) for e in page.entries)
    assert known <= total <= tried
    assert known >= tried // 2
    assert len(await logged(lab.store)) == total, "one revision for each that was made, none torn"
    revision = await write(lab.store, put("after"))
    assert await head(lab.store) == revision


async def test_two_groups_in_a_row_keep_their_order(lab: StoreLab) -> None:
    """What is accepted while one sync runs belongs to the next one, and its checks saw the first."""
    async with lab.holding():
        first = [asyncio.create_task(commit(lab.store, put(f"a{i}"))) for i in range(20)]
        await turns()
        second = [asyncio.create_task(commit(lab.store, put(f"b{i}"))) for i in range(20)]
        await turns()
    made = await asyncio.gather(*first, *second)
    revisions = [r.revision for r in made if isinstance(r, Committed)]
    assert revisions == sorted(revisions)
    assert [b.revision for b in await logged(lab.store)] == revisions


async def test_what_is_accepted_after_a_group_stays_accepted_when_that_group_is_synced(lab: StoreLab) -> None:
    """Two groups touch the same key, collection, lock and so on; syncing the first must not uncover the second."""
    before = await write(lab.store, put("a/x"))
    async with lab.holding() as gate:
        first = asyncio.create_task(
            commit(lab.store, change("a/x", b"1"), put("a/new"), fences=(Fence("l", 1),), config_version=1)
        )
        await turns()
        request = remember(sequence(1))
        second = asyncio.create_task(
            commit(
                lab.store,
                change("a/x", b"2", raise_floor_context=9),
                fences=(Fence("l", 2),),
                config_version=2,
                request=request,
            )
        )
        await turns()
        await gate.let_one()
        made = await first
        assert isinstance(made, Committed)
        assert made.revision == before + 1
        assert not second.done()
        page = await lab.store.scan(NS, "a/", limit=10)
        assert page.stamps == (before + 1, before + 1)
        assert [e.data for e in page.entries] == [b"value", b"1"]
        page = await lab.store.scan(NS, "a/", limit=10, accepted=True)
        assert page.stamps == (before + 2, before + 1)
        assert [e.data for e in page.entries] == [b"value", b"2"]
        synced = await lab.store.read(NS, (), locks=("l",), request=request.ref)
        accepted = await lab.store.read(NS, (), locks=("l",), request=request.ref, accepted=True)
        assert (synced.fences, accepted.fences) == ((("l", 1),), (("l", 2),))
        assert (synced.remembered is None, accepted.remembered is None) == (True, False)
        assert (synced.view.head, accepted.view.head) == (before + 1, before + 2)
        assert (synced.view.config_version, accepted.view.config_version) == (1, 2)
        assert (synced.view.floor_context, accepted.view.floor_context) == (0, 9)
        stale = [
            asyncio.create_task(failures(lab.store, config_version=2, **fields))
            for fields in (
                {"checks": [alive("a/x", before + 1)]},
                {"checks": [CollectionCheck("a/", StampMode.CHANGED, before + 1)]},
                {"fences": (Fence("l", 1),)},
            )
        ]
        await turns()
    kinds = [found[0].kind for found in await asyncio.gather(*stale)]
    assert kinds == [FailureKind.KEY, FailureKind.COLLECTION, FailureKind.FENCE]
    assert isinstance(await second, Committed)


async def test_an_unsynced_tombstone_and_value_of_one_key_end_in_the_right_order(lab: StoreLab) -> None:
    async with lab.holding():
        steps = [put("a", b"1"), bury("a"), reap("a"), put("a", b"2"), bury("a"), reap("a"), put("a", b"3")]
        making = []
        for step in steps:
            making.append(asyncio.create_task(commit(lab.store, step)))
            await turns(2)
        entry = await get(lab.store, "a", accepted=True)
        assert entry is not None
        assert entry.data == b"3"
        refusing = asyncio.create_task(failures(lab.store, checks=[alive("a", entry.revision - 1)]))
        await turns()
        assert not refusing.done()
    (failure,) = await refusing
    assert failure.kind is FailureKind.KEY
    await asyncio.gather(*making)
    assert (await get(lab.store, "a")) == entry
