"""What searches keep in memory of facts: so much and no more, and nothing of what was forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.unit.facts.options import option, tokenizer

from noosphere.server.facts.prepared import PreparedContents
from noosphere.server.ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from noosphere.server.storage.facts import EmbeddedFactStore
from noosphere.server.text import terms


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedFactStore]:
    store = await EmbeddedFactStore.open(tmp_path, durability="os")
    yield store
    await store.close()


async def stored(store: EmbeddedFactStore, count: int, text: str = "Likes tea number") -> list[FactKey]:
    contents = [
        option(at, f"{text} {at}").prepared.content._replace(terms=terms(f"{text} {at}")) for at in range(1, count + 1)
    ]
    for start in range(0, count, BATCH_MAX):
        await store.write(contents[start : start + BATCH_MAX])
    return [content.key for content in contents]


async def test_contents_are_read_once_and_those_that_are_gone_left_out(store: EmbeddedFactStore) -> None:
    keys = await stored(store, 300)
    prepared = PreparedContents(store, tokenizer())
    absent = keys[0]._replace(version=7)
    found = await prepared.of([absent, *keys, keys[0]])
    assert list(found) == keys
    assert found[keys[0]].body.text == "Likes tea number 1"
    assert found[keys[0]].document.own == {"like": 1, "tea": 1, "number": 1, "1": 1}
    assert found[keys[0]].tokens == tokenizer().count("Likes tea number 1")
    await store.close()
    assert (await prepared.of(keys))[keys[299]] is found[keys[299]], "without the store"


async def test_the_least_used_go_if_there_are_too_many_or_they_are_too_large(store: EmbeddedFactStore) -> None:
    keys = await stored(store, 4)
    prepared = PreparedContents(store, tokenizer(), kept_max=2)
    for key in keys[:2]:
        await prepared.of([key])
    await prepared.of([keys[0], keys[2]])
    assert len(prepared) == 2
    await store.close()
    assert set(await prepared.of([keys[0], keys[2]])) == {keys[0], keys[2]}


async def test_one_that_is_larger_than_all_may_be_is_not_kept(store: EmbeddedFactStore) -> None:
    (key,) = await stored(store, 1, "x" * 1_000)
    prepared = PreparedContents(store, tokenizer(), bytes_max=500)
    assert set(await prepared.of([key])) == {key}
    assert len(prepared) == 0


async def test_what_is_forgotten_is_in_memory_no_more(store: EmbeddedFactStore) -> None:
    keys = await stored(store, 3)
    prepared = PreparedContents(store, tokenizer())
    await prepared.of(keys)
    await store.remove(keys[:1])
    prepared.forget(keys[:1])
    assert set(await prepared.of(keys)) == set(keys[1:])


class Slow:
    """A store whose answers can be held back."""

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self.read_it = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        found = await self._store.read(keys)
        self.read_it.set()
        await self.go_on.wait()
        return found


async def test_what_was_read_before_something_was_forgotten_is_not_kept_after_it(store: EmbeddedFactStore) -> None:
    keys = await stored(store, 2)
    slow = Slow(store)
    prepared = PreparedContents(slow, tokenizer())  # type: ignore[arg-type] # nothing else is asked of it
    reading = asyncio.create_task(prepared.of(keys))
    await slow.read_it.wait()
    await store.remove(keys[:1])
    prepared.forget(keys[:1])
    slow.go_on.set()
    await reading
    assert len(prepared) == 0
