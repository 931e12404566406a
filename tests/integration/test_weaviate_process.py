"""Weaviate as the tests and fleets run it: it serves, keeps what it has over a kill, and guards its doors."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.authority import TestAuthority
from tests.support.weaviate import WeaviateProcess, needs_weaviate

pytestmark = needs_weaviate

CLASS = {"class": "Kept", "vectorizer": "none"}


@pytest.fixture
def made() -> Iterator[list[WeaviateProcess]]:
    """Takes what a test makes, and ends it."""
    processes: list[WeaviateProcess] = []
    yield processes
    for process in processes:
        process.kill()


def ask(
    weaviate: WeaviateProcess, path: str, body: Any = None, *, key: str = "", trust: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    """Asks its REST interface; returns status and answer."""
    host, _, port = weaviate.seat.address.partition(":")
    connection: http.client.HTTPConnection
    if trust is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=trust)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request("GET" if body is None else "POST", f"/v1/{path}", json.dumps(body or None), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"null")
    finally:
        connection.close()


def test_what_it_has_outlives_a_kill_and_a_stop(tmp_path: Path, made: list[WeaviateProcess]) -> None:
    """It comes back on the same addresses, with its schema, whatever its inner ports are then."""
    weaviate = WeaviateProcess(tmp_path)
    made.append(weaviate)
    weaviate.start()
    assert ask(weaviate, "schema", CLASS)[0] == 200
    weaviate.restart()
    assert ask(weaviate, "schema/Kept")[0] == 200
    weaviate.stop()
    weaviate.start()
    assert ask(weaviate, "schema/Kept")[0] == 200


def test_it_asks_for_its_key(tmp_path: Path, made: list[WeaviateProcess]) -> None:
    """Settings reach it: with an API key it refuses others."""
    weaviate = WeaviateProcess(
        tmp_path,
        AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED="false",
        AUTHENTICATION_APIKEY_ENABLED="true",
        AUTHENTICATION_APIKEY_ALLOWED_KEYS="the-key",
        AUTHENTICATION_APIKEY_USERS="noosphere",
    )
    made.append(weaviate)
    weaviate.start()
    assert ask(weaviate, "schema")[0] == 401
    assert ask(weaviate, "schema", key="another")[0] == 401
    assert ask(weaviate, "schema", key="the-key")[0] == 200


def test_it_serves_by_tls(tmp_path: Path, made: list[WeaviateProcess]) -> None:
    """Both interfaces prove themselves with the certificate that they are given."""
    authority = TestAuthority(tmp_path / "authority")
    files = authority.server()
    weaviate = WeaviateProcess(tmp_path / "weaviate", certificate=files.certificate, key=files.key)
    made.append(weaviate)
    weaviate.start()
    trust = ssl.create_default_context(cafile=str(authority.ca))
    assert weaviate.url.startswith("https://")
    assert ask(weaviate, "schema", trust=trust)[0] == 200
    host, _, port = weaviate.grpc.partition(":")
    found = ssl.get_server_certificate((host, int(port)), ca_certs=str(authority.ca))
    assert found in files.certificate.read_text()
