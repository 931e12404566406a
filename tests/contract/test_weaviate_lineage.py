"""Whose collection a Weaviate has: one that is gone or is another one is told of, and nothing is done to it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from tests.contract.factlab import MODEL, fact, ids, refused, where
from tests.support.weaviate import WeaviateProcess, drop_collections, needs_weaviate

from noosphere.consistency import Reason
from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.ports.factstore import FactContent, StoreModel
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.weaviate import OtherCollection, WeaviateAccess, WeaviateFactStore, rewrite
from noosphere.server.storage.weaviate.lineage import KEY, TABLE, Noted, decode, note

pytestmark = needs_weaviate

NORTH = (1.0, 0.0, 0.0, 0.0)
_numbers = itertools.count(1)


class Replicas:
    """Opens stores of a fleet, whose coordinator is in this process.

    Attributes:
        access: how Weaviate is reached.
        coordinator: of the fleet.
    """

    def __init__(self, server: WeaviateProcess, coordinator: EmbeddedCoordinator, name: str) -> None:
        self.server = server
        self.coordinator = coordinator
        self.access = WeaviateAccess(server.url, server.grpc, collection=name, buckets=2, call_ms_max=60_000)
        self._stack = contextlib.AsyncExitStack()

    async def open(self, model: StoreModel = MODEL, collection: str = "") -> WeaviateFactStore:
        """Opens the store of one more replica."""
        store = await WeaviateFactStore.open(
            self.access._replace(collection=collection or self.access.collection),
            model=model,
            clock=SystemClock(),
            tables=self.coordinator,
        )
        self._stack.push_async_callback(store.close)
        return store

    @property
    def noted(self) -> Noted | None:
        """What the coordinator notes."""
        return decode(self.coordinator.table(TABLE).get(KEY))

    def wipe(self) -> None:
        """Removes what Weaviate has of this fleet."""
        drop_collections(self.server, self.access.collection)

    def names(self) -> list[str]:
        """Returns the collections that there are of this fleet."""
        found = httpx.get(f"{self.server.url}/v1/schema", timeout=60, trust_env=False).json()["classes"]
        return [one["class"] for one in found if one["class"].startswith(self.access.collection)]

    async def close(self) -> None:
        """Closes all of them, and removes what they have made."""
        await self._stack.aclose()
        self.wipe()


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[EmbeddedCoordinator]:
    folder = tmp_path / "coordinator"
    folder.mkdir()
    made = await EmbeddedCoordinator.open(folder, clock=SystemClock(), agent_lease_ms=AGENT_LEASE_MS)
    yield made
    await made.close()


@pytest.fixture
async def replicas(weaviate_server: WeaviateProcess, coordinator: EmbeddedCoordinator) -> AsyncIterator[Replicas]:
    made = Replicas(weaviate_server, coordinator, f"Lineage{next(_numbers)}")
    yield made
    await made.close()


async def test_all_replicas_of_a_fleet_use_the_collection_that_the_first_has_noted(replicas: Replicas) -> None:
    first, second = await replicas.open(), await replicas.open()
    await first.ready()
    await second.ready()
    assert first.collection_id == second.collection_id
    assert replicas.noted == Noted(first.collection_id or "", replicas.access.collection, holds=False)
    await second.write([fact("one", "tea", vector=NORTH)])
    assert replicas.noted == Noted(first.collection_id or "", replicas.access.collection, holds=True)
    assert ids(await first.by_keywords(["tea"], where(), 10)) == ["one"]


async def test_a_collection_that_held_facts_is_not_made_again_when_it_is_gone(replicas: Replicas) -> None:
    store = await replicas.open()
    await store.write([fact("one", "tea", vector=NORTH)])
    replicas.wipe()
    for opened in (store, await replicas.open()):
        with refused(Reason.ENGINE_UNAVAILABLE, replicas.access.collection, "is gone", "noosphere facts adopt"):
            await opened.ready()
        with refused(Reason.ENGINE_UNAVAILABLE, "is gone"):
            await opened.write([fact("two", "tea")])
        with refused(Reason.ENGINE_UNAVAILABLE, "is gone"):
            await opened.by_keywords(["tea"], where(), 10)
    assert replicas.names() == []


async def test_a_collection_that_never_held_a_fact_is_made_again(replicas: Replicas) -> None:
    store = await replicas.open()
    await store.ready()
    before = store.collection_id
    replicas.wipe()
    await store.write([fact("one", "tea")])
    assert store.collection_id != before
    assert replicas.noted == Noted(store.collection_id or "", replicas.access.collection, holds=True)


async def test_another_collection_under_the_same_name_is_neither_written_to_nor_searched(replicas: Replicas) -> None:
    store = await replicas.open()
    await store.write([fact("ours", "tea")])
    replicas.wipe()
    # Another fleet's, or one that a server of before has made: nobody compared anything.
    stranger = await WeaviateFactStore.open(replicas.access, model=MODEL, clock=SystemClock())
    await stranger.write([fact("theirs", "tea")])
    with pytest.raises(OtherCollection, match="is another collection"):
        await store.ready()
    for opened in (store, await replicas.open(StoreModel("another-model", 3))):
        with refused(Reason.ENGINE_UNAVAILABLE, "is another collection"):
            await opened.by_keywords(["tea"], where(), 10)
        with refused(Reason.ENGINE_UNAVAILABLE, "is another collection"):
            await opened.write([fact("ours", "tea", vector=None)])
    assert ids(await stranger.by_keywords(["tea"], where(), 10)) == ["theirs"]
    assert (await stranger.stats()).model == MODEL
    await stranger.close()


async def test_a_replica_that_names_another_collection_is_told_so_and_makes_none(replicas: Replicas) -> None:
    name = replicas.access.collection
    await (await replicas.open()).ready()
    other = await replicas.open(collection=f"{name}Other")
    with refused(Reason.ENGINE_UNAVAILABLE, f"{name}Other", f"the fleet's facts are in {name}"):
        await other.ready()
    assert replicas.names() == [f"{name}_1"]


async def test_an_index_made_anew_is_the_same_fleets(replicas: Replicas) -> None:
    store = await replicas.open()
    await store.write([fact("one", "tea", vector=NORTH)])
    noted = replicas.noted

    async def unchanged(contents: Sequence[FactContent]) -> Sequence[FactContent]:
        return contents

    impatient = replicas.access._replace(call_ms_max=1_500)
    await rewrite(impatient, MODEL, unchanged, clock=SystemClock(), told=lambda *counts: None)
    assert replicas.names() == [f"{replicas.access.collection}_2"]
    for opened in (store, await replicas.open()):
        await opened.ready()
        assert ids(await opened.by_keywords(["tea"], where(), 10)) == ["one"]
    await store.write([fact("two", "tea", vector=NORTH)])
    assert replicas.noted == noted


async def test_what_is_there_is_taken_once_the_note_is_given_up(replicas: Replicas) -> None:
    store = await replicas.open()
    await store.write([fact("lost", "tea")])
    replicas.wipe()
    with refused(Reason.ENGINE_UNAVAILABLE, "is gone"):
        await store.ready()
    await note(replicas.coordinator, None)
    await store.ready()
    assert ids(await store.by_keywords(["tea"], where(), 10)) == []
    await store.write([fact("new", "tea")])
    await note(replicas.coordinator, None)
    # One with facts in it: it must not be made again from now on, whoever wrote them.
    await store.ready()
    assert replicas.noted == Noted(store.collection_id or "", replicas.access.collection, holds=True)


async def test_a_collection_from_before_there_were_ids_is_taken_and_told_from_others(replicas: Replicas) -> None:
    name = f"{replicas.access.collection}_1"
    old = await WeaviateFactStore.open(replicas.access, model=MODEL, clock=SystemClock())
    await old.write([fact("one", "tea")])
    async with httpx.AsyncClient(base_url=f"{replicas.server.url}/v1", timeout=60, trust_env=False) as rest:
        described = (await rest.get(f"/schema/{name}")).json()
        description = '{"format": 1, "buckets": 2, "model": "test-model/1", "dimension": 4}'
        changed = await rest.put(f"/schema/{name}", json={**described, "description": description})
        changed.raise_for_status()
    await old.close()
    store = await replicas.open()
    await store.ready()
    assert replicas.noted == Noted("", replicas.access.collection, holds=True)
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["one"]
    replicas.wipe()
    with refused(Reason.ENGINE_UNAVAILABLE, "is gone"):
        await store.ready()


async def test_a_damaged_note_is_told_of(replicas: Replicas) -> None:
    await replicas.coordinator.put_entry(TABLE, KEY, b"{}")
    with refused(Reason.ENGINE_UNAVAILABLE, "is damaged"):
        await (await replicas.open()).ready()
