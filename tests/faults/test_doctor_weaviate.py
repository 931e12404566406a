"""`noosphere doctor` on Weaviate: each fault that is planted in a real one is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.authority import TestAuthority
from tests.support.doctor import findings, names
from tests.support.ports import free_port
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.server.config import Settings
from noosphere.server.doctor import weaviate as examination
from noosphere.server.fact_stores import weaviate_store
from noosphere.server.ports.factstore import StoreModel
from noosphere.server.ports.runtime import SystemClock

pytestmark = [needs_weaviate, pytest.mark.campaign]

KEYED: dict[str, Any] = {
    "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
    "AUTHENTICATION_APIKEY_ENABLED": "true",
    "AUTHENTICATION_APIKEY_ALLOWED_KEYS": "right-canary",
    "AUTHENTICATION_APIKEY_USERS": "noosphere",
}


@pytest.fixture(scope="module")
def weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeaviateProcess]:
    made = WeaviateProcess(tmp_path_factory.mktemp("weaviate"))
    made.start()
    yield made
    made.kill()


def flags_of(folder: Path, weaviate: WeaviateProcess, **more: Any) -> dict[str, Any]:
    told = {"weaviate_url": weaviate.url, "weaviate_grpc": weaviate.grpc, "embedder": "none"}
    return {"listen": f"127.0.0.1:{free_port()}", "data": folder / "data", **told, **more}


async def made(weaviate: WeaviateProcess, collection: str, model: StoreModel | None = None, **more: Any) -> str:
    """Makes a collection as a server does; returns its name in Weaviate."""
    settings = Settings(weaviate_url=weaviate.url, weaviate_grpc=weaviate.grpc, weaviate_collection=collection, **more)
    store = await weaviate_store(settings, model or StoreModel("", 0), SystemClock())
    try:
        await store.ready()
        assert (await store.stats()).versions == 0
    finally:
        await store.close()
    return str(asked(weaviate, "GET", f"schema/{collection}")["class"])


def asked(weaviate: WeaviateProcess, method: str, path: str, body: Any = None) -> Any:
    reply = httpx.request(method, f"{weaviate.url}/v1/{path}", json=body, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_nothing_is_wrong_with_a_weaviate_that_is_well(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    assert await findings(**flags_of(tmp_path, weaviate, weaviate_collection="NotYet")) == []
    assert not [one for one in asked(weaviate, "GET", "schema")["classes"] if "NotYet" in one["class"]]
    await made(weaviate, "Well")
    assert await findings(**flags_of(tmp_path, weaviate, weaviate_collection="Well")) == []


async def test_a_weaviate_that_is_not_there(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    gone = f"127.0.0.1:{free_port()}"
    (found,) = await findings(**flags_of(tmp_path, weaviate, weaviate_url=f"http://{gone}"))
    assert (found.name, gone in found.evidence) == ("weaviate_unreachable", True)
    (found,) = await findings(**flags_of(tmp_path, weaviate, weaviate_grpc=gone))
    assert (found.name, gone in found.evidence) == ("weaviate_unreachable", True)


async def test_somebody_else_at_its_address(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    found = await names(**flags_of(tmp_path, weaviate, weaviate_url=f"http://{weaviate.grpc}"))
    assert found in (["weaviate_unreachable"], ["weaviate_strange"], ["weaviate_not_ready"])


async def test_a_wrong_key_and_none(tmp_path: Path) -> None:
    weaviate = WeaviateProcess(tmp_path / "weaviate", **KEYED)
    weaviate.start()
    config = tmp_path / "server.toml"
    try:
        for line in ("", 'weaviate_api_key = "wrong-canary"\n'):
            config.write_text(weaviate.config + line)
            config.chmod(0o600)
            (found,) = await findings(config, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data")
            assert found.name == "weaviate_key"
            assert "canary" not in repr(found)
        config.write_text(f'{weaviate.config}weaviate_api_key = "right-canary"\n')
        assert await names(config, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data") == []
    finally:
        weaviate.kill()


async def test_a_certificate_that_does_not_hold(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "authority")
    other = TestAuthority(tmp_path / "other", "another one")
    files = authority.server()
    weaviate = WeaviateProcess(tmp_path / "weaviate", certificate=files.certificate, key=files.key)
    weaviate.start()
    try:
        assert await names(**flags_of(tmp_path, weaviate, weaviate_tls_ca=authority.ca)) == []
        for trust in ({"weaviate_tls_ca": other.ca}, {}):
            assert await names(**flags_of(tmp_path, weaviate, **trust)) == ["weaviate_certificate"]
    finally:
        weaviate.kill()


async def test_a_weaviate_that_everybody_reaches_and_nobody_guards(
    tmp_path: Path, weaviate: WeaviateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As seen from another machine.
    monkeypatch.setattr(examination, "is_loopback", lambda address: False)
    assert await names(**flags_of(tmp_path, weaviate)) == ["weaviate_open"]
    config = tmp_path / "server.toml"
    config.write_text(f'{weaviate.config}weaviate_api_key = "canary"\n')
    config.chmod(0o600)
    found = await findings(config, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data")
    # It lets nobody in with a key where none is set up.
    assert [one.name for one in found] == ["weaviate_key"]
    assert "canary" not in repr(found)
    guarded = WeaviateProcess(tmp_path / "weaviate", **KEYED)
    guarded.start()
    try:
        config.write_text(f'{guarded.config}weaviate_api_key = "right-canary"\n')
        assert await names(config, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data") == ["weaviate_plain_text"]
    finally:
        guarded.kill()


async def test_a_weaviate_that_is_too_old(
    tmp_path: Path, weaviate: WeaviateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "VERSION_MIN", (9, 9))
    (found,) = await findings(**flags_of(tmp_path, weaviate))
    assert (found.name, found.evidence.endswith("at least 9.9 is needed")) == ("weaviate_version", True)


async def test_a_collection_that_takes_no_writes(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    name = await made(weaviate, "Closed", weaviate_buckets=2)
    shard = asked(weaviate, "GET", f"schema/{name}/shards")[0]["name"]
    asked(weaviate, "PUT", f"schema/{name}/shards/{shard}", {"status": "READONLY"})
    (found,) = await findings(**flags_of(tmp_path, weaviate, weaviate_collection="Closed"))
    assert (found.name, shard in found.evidence) == ("weaviate_read_only", True)


async def test_too_few_nodes_and_another_number_of_copies(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    assert await names(**flags_of(tmp_path, weaviate, weaviate_collection="None", weaviate_replication=3)) == [
        "weaviate_nodes"
    ]
    await made(weaviate, "Single")
    assert await names(**flags_of(tmp_path, weaviate, weaviate_collection="Single", weaviate_replication=3)) == [
        "weaviate_replication"
    ]


async def test_vectors_of_another_model(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    await made(weaviate, "Foreign", StoreModel("another-model", 3))
    (found,) = await findings(**flags_of(tmp_path, weaviate, weaviate_collection="Foreign"))
    assert (found.name, found.severity) == ("weaviate_model", "warning")
    assert "another-model" in found.evidence


async def test_collections_of_others_and_of_the_future(tmp_path: Path, weaviate: WeaviateProcess) -> None:
    asked(weaviate, "POST", "schema", {"class": "Theirs", "description": "cats"})
    assert await names(**flags_of(tmp_path, weaviate, weaviate_collection="Theirs")) == ["weaviate_foreign"]
    stamp = '{"format": 99, "buckets": 8, "model": "", "dimension": 0}'
    asked(weaviate, "POST", "schema", {"class": "Future", "description": stamp})
    assert await names(**flags_of(tmp_path, weaviate, weaviate_collection="Future")) == ["newer_format"]


async def test_a_weaviate_that_hangs_holds_nobody_up_for_long(
    tmp_path: Path, weaviate: WeaviateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "ANSWER_SECONDS_MAX", 0.2)
    weaviate.pause()
    try:
        assert await names(**flags_of(tmp_path, weaviate)) == ["weaviate_unreachable"]
    finally:
        weaviate.resume()
