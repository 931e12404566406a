"""The fact store on Weaviate: what only a store elsewhere can suffer, on a real one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from tests.bench.weaviate_facts import Plan, measure
from tests.contract.factlab import MODEL, WeaviateFactLab, fact, ids, refused, where
from tests.support.cli import Cli
from tests.support.ports import free_port
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.consistency import NEVER_MS, Reason, Refusal
from noosphere.server.config import Settings
from noosphere.server.fact_stores import weaviate_store
from noosphere.server.facts.contents import Body
from noosphere.server.facts.ledger import encode
from noosphere.server.ports.factstore import BODY_BYTES_MAX, FactContent, StoreModel
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.startup import StartupError
from noosphere.server.storage.weaviate import WeaviateAccess, WeaviateFactStore, rewrite
from noosphere.server.storage.weaviate.schema import FORMAT, Stamp

pytestmark = needs_weaviate

NORTH = (1.0, 0.0, 0.0, 0.0)
CALL_MS_MAX = 1_500


@pytest.fixture
async def impatient(weaviate_server: WeaviateProcess) -> AsyncIterator[WeaviateFactLab]:
    """A fact store that waits for no call for long, with a fact in it."""
    lab = WeaviateFactLab(weaviate_server, call_ms_max=CALL_MS_MAX)
    await lab.open()
    await written(lab.store, "kept")
    yield lab
    await lab.close()
    lab.drop()


def rest_of(lab: WeaviateFactLab) -> httpx.AsyncClient:
    """Weaviate's own interface."""
    return httpx.AsyncClient(base_url=f"{lab.access.url}/v1", timeout=60, trust_env=False)


async def written(store: WeaviateFactStore, *names: str) -> None:
    """Writes facts, as often as a loaded machine needs."""
    for _ in range(200):
        try:
            await store.write([fact(name, "tea", vector=NORTH) for name in names])
            return
        except Refusal as refusal:
            if refusal.reason is not Reason.ENGINE_UNAVAILABLE:
                raise
            await asyncio.sleep((refusal.retry_after_ms or 100) / 1000)
    raise AssertionError("Weaviate takes no writes")


async def test_it_opens_without_weaviate_and_says_why_it_cannot_be_used() -> None:
    access = WeaviateAccess(f"http://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", call_ms_max=CALL_MS_MAX)
    store = await WeaviateFactStore.open(access, model=MODEL, clock=SystemClock())
    assert (store.engine, store.model, store.available) == ("weaviate", None, False)
    with refused(Reason.ENGINE_UNAVAILABLE, access.url, "cannot be reached"):
        await store.ready()
    with refused(Reason.INVALID_FIELD, "vector"):
        await store.write([fact("one", vector=(1.0,))])
    for _ in range(2):
        with refused(Reason.ENGINE_UNAVAILABLE, "cannot be reached"):
            await store.read([fact("one").key])
    with refused(Reason.ENGINE_UNAVAILABLE, "failed several times in a row"):
        await store.read([fact("one").key])
    await store.close()


async def test_a_killed_weaviate_is_unavailable_and_works_again_without_a_restart_of_ours(
    impatient: WeaviateFactLab,
) -> None:
    store, server = impatient.store, impatient.server
    server.kill()
    for _ in range(4):
        with refused(Reason.ENGINE_UNAVAILABLE, server.url):
            await store.by_keywords(["tea"], where(), 10)
    assert not store.available
    await asyncio.to_thread(server.start)
    await written(store, "later")
    assert store.available
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["kept", "later"]
    assert await store.near(NORTH, [fact("kept").key, fact("later").key]) == (1.0, 1.0)
    # Weaviate's graph may lack what was written just before it was killed; see docs/facts.md.
    assert "later" in ids(await store.by_vector(NORTH, where(), 10))


async def test_a_paused_weaviate_holds_nobody_longer_than_the_longest_call(impatient: WeaviateFactLab) -> None:
    store, server = impatient.store, impatient.server
    server.pause()
    try:
        calls = [asyncio.create_task(store.by_keywords(["tea"], where(), 10)) for _ in range(40)]
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert {getattr(one, "reason", None) for one in ended} == {Reason.ENGINE_UNAVAILABLE}
        with refused(Reason.ENGINE_UNAVAILABLE, "failed several times in a row"):
            await store.read([fact("kept").key])
    finally:
        server.resume()
    await written(store, "kept", "later")
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["kept", "later"]


async def test_a_write_whose_caller_was_cancelled_ends_by_itself(impatient: WeaviateFactLab) -> None:
    store = impatient.store
    writing = asyncio.create_task(store.write([fact(f"f{at}", "juice") for at in range(50)]))
    # So far that the call is on its way.
    await asyncio.sleep(0.005)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    # Of the same versions: it begins when the other has ended.
    await written(store, "f0")
    assert len(await store.by_keywords(["juice"], where(), 100)) == 50


async def test_a_read_only_weaviate_refuses_what_it_cannot_write_and_answers(impatient: WeaviateFactLab) -> None:
    store = impatient.store
    opened = await store._ready()
    await store._schema.freeze(opened.collection, frozen=True)
    with refused(Reason.ENGINE_UNAVAILABLE, "read-only"):
        await store.write([fact("other")])
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["kept"]
    await store._schema.freeze(opened.collection, frozen=False)
    await written(store, "other")
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["kept", "other"]


async def test_servers_that_open_at_once_make_one_collection(weaviate_server: WeaviateProcess) -> None:
    labs = [WeaviateFactLab(weaviate_server, collection="AtOnce", buckets=buckets) for buckets in (1, 2, 3, 4)]
    for lab in labs:
        await lab.open()
    await asyncio.gather(*(lab.store.write([fact(f"f{at}", "tea")]) for at, lab in enumerate(labs)))
    for lab in labs:
        assert ids(await lab.store.by_keywords(["tea"], where(), 10)) == ["f0", "f1", "f2", "f3"]
        await lab.close()
    labs[0].drop()


async def test_vectors_of_another_model_are_kept_and_those_of_none_make_room(weaviate_facts: WeaviateFactLab) -> None:
    await weaviate_facts.store.write([fact("plain", "tea")])
    weaviate_facts.model = StoreModel("other/1", 2)
    await weaviate_facts.reopen()
    assert weaviate_facts.store.model is None
    await weaviate_facts.store.write([fact("one", "tea", vector=(1.0, 0.0))])
    assert weaviate_facts.store.model == StoreModel("other/1", 2)
    weaviate_facts.model = MODEL
    await weaviate_facts.reopen()
    await weaviate_facts.store.ready()
    assert weaviate_facts.store.model == StoreModel("other/1", 2)
    with refused(Reason.INVALID_FIELD, "vector", "2"):
        await weaviate_facts.store.write([fact("two", vector=NORTH)])
    assert ids(await weaviate_facts.store.by_vector((1.0, 0.0), where(), 10)) == ["one"]


async def test_a_collection_of_a_newer_format_or_of_somebody_else_is_not_touched(
    weaviate_facts: WeaviateFactLab,
) -> None:
    await weaviate_facts.store.ready()
    name = f"{weaviate_facts.access.collection}_1"
    async with rest_of(weaviate_facts) as rest:
        made = (await rest.get(f"/schema/{name}")).json()
        for description, words in (
            ('{"format": 2, "buckets": 2, "model": "", "dimension": 0}', ("format 2", "newer")),
            ("Articles", ("not made by this program", "weaviate_collection")),
        ):
            reply = await rest.put(f"/schema/{name}", json={**made, "description": description})
            reply.raise_for_status()
            await weaviate_facts.reopen()
            with refused(Reason.ENGINE_UNAVAILABLE, name, *words):
                await weaviate_facts.store.ready()


async def test_collections_of_others_whose_names_are_like_ours_are_neither_used_nor_removed(
    weaviate_facts: WeaviateFactLab,
) -> None:
    name = weaviate_facts.access.collection
    access = weaviate_facts.access._replace(call_ms_max=CALL_MS_MAX)
    async with rest_of(weaviate_facts) as rest:
        first = (await rest.post("/schema", json={"class": f"{name}_1", "vectorizer": "none"})).raise_for_status()
        with refused(Reason.ENGINE_UNAVAILABLE, f"{name}_1", "not made by this program"):
            await weaviate_facts.store.ready()
        assert (await rest.get(f"/aliases/{name}")).status_code == 404, "nothing leads to what is not ours"
        assert (await rest.get(f"/schema/{name}_1")).json() == first.json()
        await rest.delete(f"/schema/{name}_1")
        await weaviate_facts.store.write([fact("one", "tea")])
        (await rest.post("/schema", json={"class": f"{name}_2", "vectorizer": "none"})).raise_for_status()
        with refused(Reason.ENGINE_UNAVAILABLE, f"{name}_2", "not made by this program"):
            await rewrite(access, MODEL, _unchanged, clock=SystemClock(), told=lambda *counts: None)
        with refused(Reason.ENGINE_UNAVAILABLE, f"{name}_2", "not made by this program"):
            await weaviate_facts.store.begin_anew()
        assert (await rest.get(f"/schema/{name}_2")).status_code == 200
        assert ids(await weaviate_facts.store.by_keywords(["tea"], where(), 10)) == ["one"]


async def test_the_alias_of_another_fleet_is_not_taken_for_a_collection(weaviate_facts: WeaviateFactLab) -> None:
    await weaviate_facts.store.write([fact("one", "tea")])
    name = weaviate_facts.access.collection
    async with rest_of(weaviate_facts) as rest:
        # What another fleet is called is what this one's second collection would be called.
        alias = {"alias": f"{name}_2", "class": f"{name}_1"}
        (await rest.post("/aliases", json=alias)).raise_for_status()
        try:
            access = weaviate_facts.access._replace(call_ms_max=CALL_MS_MAX)
            with refused(Reason.ENGINE_UNAVAILABLE, f"{name}_2 already exists"):
                await rewrite(access, MODEL, _unchanged, clock=SystemClock(), told=lambda *counts: None)
        finally:
            await rest.delete(f"/aliases/{name}_2")
    assert ids(await weaviate_facts.store.by_keywords(["tea"], where(), 10)) == ["one"]


async def test_a_collection_that_lacks_a_property_is_completed(weaviate_facts: WeaviateFactLab) -> None:
    store = weaviate_facts.store
    definition = store._schema._definition
    name = f"{weaviate_facts.access.collection}_1"
    made = definition(name, Stamp(FORMAT, 2, MODEL.name, MODEL.dimension))
    made["properties"] = [one for one in made["properties"] if one["name"] not in ("slice", "vectored")]
    async with rest_of(weaviate_facts) as rest:
        (await rest.post("/schema", json=made)).raise_for_status()
        await store.write([fact("one", "tea", vector=NORTH)])
        names = {one["name"] for one in (await rest.get(f"/schema/{name}")).json()["properties"]}
    assert {"slice", "vectored"} <= names
    assert (await store.stats())[:2] == (1, 1)


async def test_a_collection_that_took_the_place_of_another_is_found(weaviate_facts: WeaviateFactLab) -> None:
    store = weaviate_facts.store
    await store.write([fact("old", "tea")])
    name = weaviate_facts.access.collection
    await store._schema.make(f"{name}_2", MODEL)
    await store._schema.read(f"{name}_2")
    await store._schema.move(f"{name}_2")
    await store._schema.drop(f"{name}_1")
    assert await store.by_keywords(["tea"], where(), 10) == ()
    await store.write([fact("new", "tea")])
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["new"]


async def test_exact_numbers_and_large_bodies_come_back_as_they_were(weaviate_facts: WeaviateFactLab) -> None:
    contents = [
        fact(
            f"f{at}",
            "tea",
            version=(1 << 62) + at,
            valid_from_ms=(1 << 53) + 1 + at,
            valid_to_ms=NEVER_MS - 1,
            recorded_ms=NEVER_MS - at,
            trust=0.1 + 0.2,
            body=bytes(range(256)) * (BODY_BYTES_MAX // 256),
            vector=(0.1, 0.2, 0.3, 1e-30),
        )
        for at in range(3)
    ]
    await weaviate_facts.store.write(contents)
    read = await weaviate_facts.store.read([content.key for content in contents])
    for content, found in zip(contents, read, strict=True):
        assert found is not None
        assert found._replace(vector=None) == content._replace(vector=None)
        assert found.vector == pytest.approx(content.vector)
    assert [key async for key in weaviate_facts.store.versions("shared/launch")] == [one.key for one in contents]


async def test_everything_comes_by_key_over_all_buckets(weaviate_facts: WeaviateFactLab) -> None:
    made = [fact(f"f{at}", "tea", scope=f"shared/s{at % 5}") for at in range(300)]
    for start in (0, 150):
        await weaviate_facts.store.write(made[start : start + 150])
    assert [one.key async for one in weaviate_facts.store.everything()] == sorted(one.key for one in made)


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[WeaviateProcess]:
    """A Weaviate that lets nobody in without the key ``secret``."""
    server = WeaviateProcess(
        tmp_path / "guarded",
        AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED="false",
        AUTHENTICATION_APIKEY_ENABLED="true",
        AUTHENTICATION_APIKEY_ALLOWED_KEYS="secret",
        AUTHENTICATION_APIKEY_USERS="noosphere",
    )
    server.start()
    yield server
    server.kill()


async def test_who_has_no_key_or_a_wrong_one_is_told(guarded_server: WeaviateProcess) -> None:
    for key, words in (("", "asks for an API key"), ("wrong", "does not accept the API key")):
        lab = WeaviateFactLab(guarded_server, api_key=key)
        await lab.open()
        with refused(Reason.ENGINE_UNAVAILABLE, words, "weaviate_api_key"):
            await lab.store.ready()
        await lab.close()
    lab = WeaviateFactLab(guarded_server, api_key="secret")
    await lab.open()
    await lab.store.write([fact("one", "tea")])
    assert ids(await lab.store.by_keywords(["tea"], where(), 10)) == ["one"]
    await lab.close()


async def test_an_index_made_anew_takes_the_place_of_one_that_is_written_to_meanwhile(
    weaviate_facts: WeaviateFactLab,
) -> None:
    store = weaviate_facts.store
    other = StoreModel("other/1", 2)
    await store.write([fact(f"f{at}", "tea", scope=f"shared/s{at % 3}", vector=NORTH) for at in range(30)])
    scopes = tuple(f"shared/s{at}" for at in range(3))
    batches = 0

    async def change(contents: Sequence[FactContent]) -> Sequence[FactContent]:
        nonlocal batches
        batches += 1
        if batches == 2:
            await store.write([fact("late", "tea", scope="shared/s0", vector=NORTH)])
            await store.remove([fact("f0", scope="shared/s0").key, fact("f1", scope="shared/s1").key])
        return [one._replace(terms=("new", *one.terms), vector=(1.0, float(len(one.fact_id)))) for one in contents]

    said: list[tuple[int, int]] = []
    access = weaviate_facts.access._replace(call_ms_max=CALL_MS_MAX)
    done = await rewrite(access, other, change, clock=SystemClock(), told=lambda *counts: said.append(counts))
    assert done == (29, 29, MODEL)
    assert said[-1][0] == said[-1][1]
    # The server that goes on finds the new one by itself.
    names = sorted({"late", *(f"f{at}" for at in range(2, 30))})
    assert sorted(ids(await store.by_keywords(["new"], where(scopes=scopes), 100))) == names
    assert store.model == other
    assert sorted(ids(await store.by_vector((1.0, 2.0), where(scopes=scopes), 100))) == names
    await store.write([fact("after", "new", scope="shared/s0", vector=(0.0, 1.0))])
    async with rest_of(weaviate_facts) as rest:
        classes = [one["class"] for one in (await rest.get("/schema")).json()["classes"]]
    mine = [name for name in classes if name.startswith(f"{weaviate_facts.access.collection}_")]
    assert mine == [f"{weaviate_facts.access.collection}_2"]


async def test_an_index_that_cannot_be_made_anew_leaves_the_old_one_as_it_was(weaviate_facts: WeaviateFactLab) -> None:
    store = weaviate_facts.store

    class Broken(Exception):
        pass

    async def change(contents: Sequence[FactContent]) -> Sequence[FactContent]:
        if len(contents) == 1:
            # The second time it is asked, for what came after the copy: writes are held off by then.
            raise Broken
        await store.write([fact("late", "tea", vector=NORTH)])
        return contents

    await store.write([fact("one", "tea", vector=NORTH), fact("two", "tea", vector=NORTH)])
    access = weaviate_facts.access._replace(call_ms_max=CALL_MS_MAX)
    with pytest.raises(Broken):
        await rewrite(access, MODEL, change, clock=SystemClock(), told=lambda *counts: None)
    await store.write([fact("three", "tea", vector=NORTH)])
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["late", "one", "three", "two"]
    async with rest_of(weaviate_facts) as rest:
        classes = [one["class"] for one in (await rest.get("/schema")).json()["classes"]]
    assert f"{weaviate_facts.access.collection}_2" not in classes


async def test_what_is_not_there_cannot_be_made_anew(weaviate_facts: WeaviateFactLab) -> None:
    with refused(Reason.ENGINE_UNAVAILABLE, "holds no facts"):
        await rewrite(weaviate_facts.access, MODEL, _unchanged, clock=SystemClock(), told=lambda *counts: None)


async def _unchanged(contents: Sequence[FactContent]) -> Sequence[FactContent]:
    return contents


async def test_the_command_makes_the_index_on_weaviate_anew(weaviate_facts: WeaviateFactLab) -> None:
    words = encode(Body("Tea is green"))
    await weaviate_facts.store.write([fact(f"f{at}", "old", body=words, vector=NORTH) for at in range(3)])
    options = [f"--weaviate-{name}={getattr(weaviate_facts.access, name)}" for name in ("url", "grpc", "collection")]
    command = ("--json", "facts", "reindex", *options, "--weaviate-call-ms-max=1500", "--embedder=none")
    done = await asyncio.to_thread(Cli().run, *command)
    assert done.code == 0, done.err
    assert done.json == {"version_count": 3, "vector_count": 0, "model": None, "model_before": MODEL.name}
    assert ids(await weaviate_facts.store.by_keywords(["tea"], where(), 10)) == ["f0", "f1", "f2"]
    assert await weaviate_facts.store.by_keywords(["old"], where(), 10) == ()


async def test_without_the_package_a_server_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weaviate.proto.v1", None)
    settings = Settings(weaviate_url="http://127.0.0.1:1")
    with pytest.raises(StartupError, match=r"weaviate_url needs another package: pip install 'noosphere\[weaviate\]'"):
        await weaviate_store(settings, MODEL, SystemClock())


async def test_the_benchmark_of_both_stores_measures_both(tmp_path: Path) -> None:
    measured = await measure(Plan(300, 3, 20, 60.0), tmp_path, lambda _: None)
    assert measured["weaviate"]["recall"] == 1.0, "of so few, all are compared"
    assert all(figure > 0 for store in ("embedded", "weaviate") for figure in measured[store].values())
