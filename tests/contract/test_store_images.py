"""Images of namespaces: all of what counts, at one head, also while others write, on every driver."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.build import NS, bury, change, put, reap
from tests.contract.lab import StoreLab

from noosphere.consistency import NEVER_MS, Cut
from noosphere.server.ports.images import PAGE_RECORDS_MAX, ImageRecord, NamespaceImage
from noosphere.server.ports.store import Commit, Committed, Fence, Mutation, NamespaceRef, WorkingStore


async def image_of(store: WorkingStore, ref: NamespaceRef = NS) -> tuple[NamespaceImage | None, list[ImageRecord]]:
    image: NamespaceImage | None = None
    records: list[ImageRecord] = []
    async with aclosing(store.export(ref)) as parts:
        async for part in parts:
            if isinstance(part, NamespaceImage):
                assert image is None, "one image"
                image = part
            else:
                assert image is not None, "an image comes first"
                records += part
    return image, records


async def make(store: WorkingStore, *mutations: Mutation, ref: NamespaceRef = NS, version: int = 0) -> int:
    made = await store.commit(ref, Commit(store.epoch, version, (), mutations, fences=(Fence("lock", store.epoch),)))
    assert isinstance(made, Committed), made
    return made.revision


async def test_an_image_has_everything_that_counts(lab: StoreLab) -> None:
    store = lab.store
    first = await make(store, put("b", b"two", live_until_ms=9, due_ms=7), put("a", b"one"), put("\0own", b"ours"))
    second = await make(store, bury("c", due_ms=5), change("a", b"three"), put("gone"), version=3)
    third = await make(store, reap("gone", raise_floor_context=second), version=3)
    image, records = await image_of(store)
    cuts = (Cut(store.epoch, 0),)
    assert image == NamespaceImage(NS, False, third, 3, second, cuts, (("lock", store.epoch),))
    assert records == [
        ImageRecord("\0own", first, NEVER_MS, NEVER_MS, b"ours"),
        ImageRecord("a", second, NEVER_MS, NEVER_MS, b"three"),
        ImageRecord("b", first, 9, 7, b"two"),
        ImageRecord("c", second, 0, 5, b"tombstone"),
    ]


async def test_nothing_is_yielded_of_what_does_not_exist_and_no_records_of_what_was_dropped(lab: StoreLab) -> None:
    store = lab.store
    assert await image_of(store) == (None, [])
    head = await make(store, put("a"))
    await store.drop(NS, None)
    image, records = await image_of(store)
    assert image is not None
    assert (image.deleted, image.head, image.fences, records) == (True, head, (), [])


async def test_a_large_namespace_is_told_in_pages_as_it_was_at_one_head(lab: StoreLab) -> None:
    store = lab.store
    count = 2 * PAGE_RECORDS_MAX + 10
    for start in range(0, count, 256):
        await make(store, *(put(f"k/{at:05}", bytes([at % 7])) for at in range(start, min(start + 256, count))))
    head = (await store.read(NS, ())).view.head
    seen: list[ImageRecord] = []
    pages = 0
    async with aclosing(store.export(NS)) as parts:
        image = await anext(parts)
        async for part in parts:
            assert not isinstance(part, NamespaceImage)
            seen += part
            pages += 1
            # Others go on, before and behind.
            await make(store, change("k/00000", b"later"), put(f"k/9{pages}"), reap(f"k/{count - pages:05}"))
    assert isinstance(image, NamespaceImage)
    assert image.head == head
    assert [record.key for record in seen] == [f"k/{at:05}" for at in range(count)]
    assert all(record.data == bytes([at % 7]) for at, record in enumerate(seen))
    assert pages >= 3


async def test_an_image_that_nobody_reads_to_its_end_harms_nobody(lab: StoreLab) -> None:
    store = lab.store
    for start in range(0, PAGE_RECORDS_MAX + 2, 128):
        await make(store, *(put(f"k/{at:05}") for at in range(start, start + 128)))
    for _ in range(3):
        async with aclosing(store.export(NS)) as parts:
            await anext(parts)
            await anext(parts)
    image, records = await image_of(store)
    assert image is not None
    assert len(records) >= PAGE_RECORDS_MAX


@pytest.mark.parametrize("bytes_each", [40_000])
async def test_large_records_come_a_few_at_a_time(lab: StoreLab, bytes_each: int) -> None:
    store = lab.store
    for at in range(0, 240, 20):
        await make(store, *(put(f"k/{at + one:03}", b"x" * bytes_each) for one in range(20)))
    async with aclosing(store.export(NS)) as parts:
        await anext(parts)
        pages = [part async for part in parts if not isinstance(part, NamespaceImage)]
    sizes = [sum(len(record.data) for record in page) for page in pages]
    assert sum(sizes) == 240 * bytes_each
    assert max(sizes) < 6 * 1024 * 1024


async def test_images_of_many_namespaces_at_once(lab: StoreLab) -> None:
    store = lab.store
    refs = [NamespaceRef(f"shared/{at}") for at in range(8)]
    for ref in refs:
        await make(store, put(ref.name), ref=ref)
    found = await asyncio.gather(*(image_of(store, ref) for ref in refs))
    assert [[record.key for record in records] for _, records in found] == [[ref.name] for ref in refs]
