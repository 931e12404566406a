"""Erasing: what is no longer stored is told by nobody any more, and nothing else is touched."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.contract.build import (
    NS,
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
from tests.contract.contents import OTHER, busy, snapshot
from tests.contract.lab import StoreLab, turns

from noosphere.consistency import Remembered, RequestRef
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS
from noosphere.server.ports.store import Changes, Compacted, Erased, FailureKind, NamespaceRef, Replayed

MARK = b"c4nary-"
SIZES = (0, 1, 40, 200, 900, 1_100, 4_000, 9_000, 70_000)


async def test_what_is_stored_stays_and_the_log_begins_anew(lab: StoreLab) -> None:
    await busy(lab.store)
    before = await snapshot(lab.store, NS)
    at = await head(lab.store)
    assert await lab.store.erase(NS) == Erased(at, len(before[5]), 2)
    for _ in range(2):
        after = await snapshot(lab.store, NS)
        assert after[0] == before[0]._replace(floor=at)
        assert after[1:4] == before[1:4]
        assert after[6] == before[6]
        assert await lab.store.changes(NS, at - 1, 10) == Compacted(at, at)
        assert await lab.store.changes(NS, at, 10) == Changes((), at, False)
        await lab.crash()
    revision = await write(lab.store, put("new"))
    assert [batch.revision for batch in await logged(lab.store, at)] == [revision]


async def test_other_namespaces_keep_log_and_answers(lab: StoreLab) -> None:
    for ref in (NS, OTHER):
        await busy(lab.store, ref)
    before = await snapshot(lab.store, OTHER)
    await lab.store.erase(NS)
    assert await snapshot(lab.store, OTHER) == before
    await lab.crash()
    assert await snapshot(lab.store, OTHER) == before


@pytest.mark.parametrize("ref", [sequence(1), uuid("7f0c")])
async def test_a_retry_of_an_erased_call_finds_that_it_was_applied_and_nothing_else(
    lab: StoreLab, ref: RequestRef
) -> None:
    now_ms = lab.store.now_ms()
    revision = await write(lab.store, put("a", b"once"), request=remember(ref))
    assert (await lab.store.erase(NS)).request_count == 1
    left = Remembered(revision, b"", b"", now_ms)
    assert left.erased
    for _ in range(3):
        assert await commit(lab.store, put("a", b"twice"), request=remember(ref)) == Replayed(left)
        for accepted in (False, True):
            assert (await lab.store.read(NS, (), request=ref, accepted=accepted)).remembered == left
        assert (await lab.store.stats(NS)).request_count == 1
        await lab.crash()
    entry = await get(lab.store, "a")
    assert entry is not None
    assert entry.data == b"once"


@pytest.mark.parametrize(("ref", "age_ms"), [(sequence(1), CLIENT_REQUEST_AGE_MS), (uuid("x"), UUID_REQUEST_AGE_MS)])
async def test_an_erased_call_is_known_as_long_as_any(lab: StoreLab, ref: RequestRef, age_ms: int) -> None:
    await write(lab.store, put("a"), request=remember(ref))
    lab.advance(age_ms // 2)
    await lab.store.erase(NS)
    lab.advance(age_ms // 2 - 1)
    assert (await lab.store.read(NS, (), request=ref)).remembered is not None
    lab.advance(1)
    await write(lab.store, put("a", b"anew"), request=remember(ref))


async def test_calls_accepted_after_it_keep_their_answers(lab: StoreLab) -> None:
    """Even those that change nothing, which share the revision of what came before."""
    await write(lab.store, put("a"), request=remember(sequence(1)))
    async with lab.holding():
        before = asyncio.create_task(commit(lab.store, put("b"), request=remember(sequence(2))))
        await turns()
        erasing = asyncio.create_task(lab.store.erase(NS))
        await turns()
        later = [
            asyncio.create_task(commit(lab.store, request=remember(sequence(3), b"nothing"))),
            asyncio.create_task(commit(lab.store, request=remember(uuid("u"), b"nothing either"))),
            asyncio.create_task(commit(lab.store, put("c"), request=remember(sequence(4), b"c"))),
        ]
        await turns()
    await asyncio.gather(before, *later)
    assert (await erasing)[1:] == (2, 2)
    for _ in range(2):
        found = [
            (await lab.store.read(NS, (), request=ref)).remembered
            for ref in (sequence(1), sequence(2), sequence(3), uuid("u"), sequence(4))
        ]
        assert [call is not None and call.reply for call in found] == [b"", b"", b"nothing", b"nothing either", b"c"]
        assert len(await logged(lab.store, (await erasing).floor)) == 1
        await lab.crash()


async def test_a_second_erasure_finds_nothing_left(lab: StoreLab) -> None:
    await busy(lab.store)
    await lab.store.erase(NS)
    before = await snapshot(lab.store, NS)
    assert await lab.store.erase(NS) == Erased(before[0].head, 0, 0)
    assert await snapshot(lab.store, NS) == before


async def test_of_what_never_existed_there_is_nothing_to_erase(lab: StoreLab) -> None:
    later = NamespaceRef("shared/launch", 2, origin=50)
    assert await lab.store.erase(NS) == Erased(0, 0, 0)
    assert await lab.store.erase(later) == Erased(50, 0, 0)
    assert not (await lab.store.read(NS, ())).view.exists


async def test_dropped_namespaces_and_older_generations_can_be_erased(lab: StoreLab) -> None:
    await busy(lab.store)
    at = await head(lab.store)
    await lab.store.drop(NS, None)
    assert await lab.store.erase(NS) == Erased(at, 0, 0)
    (failure,) = await failures(lab.store, put("a"))
    assert failure.kind is FailureKind.DELETED
    newer = NamespaceRef(NS.name, 2, at)
    await write(lab.store, put("a"), namespace=newer, request=remember(sequence(1)))
    before = await snapshot(lab.store, newer)
    assert await lab.store.erase(NS) == Erased(at, 0, 0)
    assert await snapshot(lab.store, newer) == before


async def test_an_erasure_that_meets_a_drop_on_its_way_ends_as_the_drop(lab: StoreLab) -> None:
    await busy(lab.store)
    async with lab.holding():
        first = asyncio.create_task(lab.store.erase(NS))
        await turns()
        dropping = asyncio.create_task(lab.store.drop(NS, None))
        await turns()
        second = asyncio.create_task(lab.store.erase(NS))
        await turns()
    assert (await first).request_count == 2
    await dropping
    assert (await second)[1:] == (0, 0)
    assert (await lab.store.read(NS, ())).view.deleted


async def test_commits_beside_erasures_are_all_there(lab: StoreLab) -> None:
    ended = asyncio.Event()

    async def make(worker: int) -> list[int]:
        made: list[int] = []
        while not ended.is_set() or len(made) < 30:
            number = len(made) + 1
            ref = sequence(number, number - 1, f"w{worker}#1")
            made.append(await write(lab.store, put(f"{worker}/{number}", b"kept"), request=remember(ref)))
        return made

    making = [asyncio.create_task(make(worker)) for worker in range(4)]
    floors = [(await lab.store.erase(NS)).floor for _ in range(4)]
    floors += [erased.floor for erased in await asyncio.gather(*(lab.store.erase(NS) for _ in range(4)))]
    ended.set()
    made = sorted(revision for revisions in await asyncio.gather(*making) for revision in revisions)
    assert len(set(made)) == len(made)
    for _ in range(2):
        assert [batch.revision for batch in await logged(lab.store, max(floors))] == [
            r for r in made if r > max(floors)
        ]
        assert (await lab.store.stats(NS)).record_count == len(made)
        await lab.crash()


async def test_a_cancelled_erasure_does_no_harm(lab: StoreLab) -> None:
    await busy(lab.store)
    erasing = asyncio.create_task(lab.store.erase(NS))
    await turns(5)
    erasing.cancel()
    await asyncio.gather(erasing, return_exceptions=True)
    revision = await write(lab.store, put("new"))
    await lab.store.erase(NS)
    await lab.crash()
    assert await head(lab.store) == revision
    assert await get(lab.store, "new") is not None


def secret(number: int, size: int, kind: bytes) -> bytes:
    """Words that occur nowhere else, so that what is left of them can be told from what is left of others."""
    mark = MARK + kind + f"{number:05}.".encode()
    return (mark * (size // len(mark) + 1))[: max(size, len(mark))]


async def write_secrets(lab: StoreLab, chance: random.Random, ref: NamespaceRef, number: int) -> None:
    """Leaves words in a record, in the log and in the memory of the call, among other records that come and go."""
    ours = chance.choice(SIZES)
    event = secret(number, chance.choice((0, 100)), b"event")
    call = sequence(number + 1) if chance.random() < 0.5 else uuid(f"{ref.name}{number}")
    reply, meaning = secret(number, 200, b"reply"), secret(number, 16, b"means")
    await write(
        lab.store,
        put(f"s/{number}", secret(number, ours, b"value"), event=event),
        put(f"f/{chance.randrange(300)}", b"other" * chance.randrange(300)),
        namespace=ref,
        request=remember(call, reply, meaning),
    )
    if chance.random() < 0.4:
        key = f"f/{chance.randrange(300)}"
        await write(lab.store, chance.choice((reap, bury, put))(key), namespace=OTHER)


@pytest.mark.parametrize("seed", [11, 12, 13, 14])
async def test_no_byte_is_left_of_what_was_overwritten_removed_or_dropped(lab: StoreLab, seed: int) -> None:
    chance = random.Random(seed)
    kept = NamespaceRef("sessions/kept")
    refs = [NamespaceRef(f"sessions/s{number}") for number in range(4)]
    await write(lab.store, put("k", secret(99_999, 900, b"kept")), namespace=kept)
    for number in range(160):
        await write_secrets(lab, chance, refs[number % 4], number)
        if chance.random() < 0.05:
            # As the store's own upkeep does at times of its own, so that words are already in many places.
            lab.advance(6_000)
            await lab.crash()
    assert MARK + b"value" in lab.bytes_at_rest(), "or the search of bytes finds nothing"
    overwritten, reaped, buried, dropped = refs
    for entry in await keys(lab.store, "s/", overwritten):
        await write(lab.store, change(entry, b"[redacted]"), namespace=overwritten)
    for entry in await keys(lab.store, "s/", reaped):
        await write(lab.store, reap(entry), namespace=reaped)
    for entry in await keys(lab.store, "s/", buried):
        await write(lab.store, bury(entry), namespace=buried)
    await lab.store.drop(dropped, None)
    before = [await keys(lab.store, "", ref) for ref in refs]
    await asyncio.gather(*(lab.store.erase(ref) for ref in refs))
    for _ in range(3):
        rest = lab.bytes_at_rest()
        assert [kind for kind in (b"value", b"event", b"reply", b"means") if MARK + kind in rest] == []
        assert MARK + b"kept" in rest
        await write(lab.store, change("k", secret(99_999, 900, b"kept")), namespace=kept)
        assert [await keys(lab.store, "", ref) for ref in refs] == before
        await lab.crash()
