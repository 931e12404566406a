"""Weaviate: whether it answers, whom it answers, and whether it keeps facts as it is meant to."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..addresses import address_of_weaviate, is_loopback, split_address
from ..config import Settings
from ..fact_stores import weaviate_access
from .findings import Finding, problem, warning

VERSION_MIN = (1, 32)
"""The first one whose collections have aliases."""

ANSWER_SECONDS_MAX = 5.0
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


class _Answer(NamedTuple):
    status: int
    content: Any


class _Door:
    """Asks its REST interface. Blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host, self._port = split_address(address_of_weaviate(settings.weaviate_url))
        self._key = settings.weaviate_api_key.get_secret_value()

    def ask(self, path: str, *, with_key: bool = True) -> _Answer:
        """Returns what it answers.

        Raises:
            OSError, http.client.HTTPException, ValueError: nothing that makes sense.
        """
        connection: http.client.HTTPConnection
        if self._settings.weaviate_url.startswith("https://"):
            trust = ssl.create_default_context(cafile=self._settings.weaviate_tls_ca)
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=ANSWER_SECONDS_MAX, context=trust)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS_MAX)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key and with_key else {}
        try:
            connection.request("GET", f"/v1/{path}", headers=headers)
            reply = connection.getresponse()
            text = reply.read(_ANSWER_BYTES_MAX)
            return _Answer(reply.status, json.loads(text) if reply.status == http.client.OK and text else None)
        finally:
            connection.close()


async def examine_weaviate(settings: Settings) -> tuple[list[Finding], dict[str, Any] | None]:
    """Looks at the Weaviate that is configured, and changes nothing there.

    Returns:
        What is wrong, and how it describes the collection; empty if that is not there, None if it cannot be asked for.
    """
    examination = _Examination(settings)
    found = await asyncio.to_thread(lambda: list(examination.run()))
    return found, examination.described


class _Examination:
    """Blocks.

    Attributes:
        described: the collection, once it was asked for; empty if it is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._door = _Door(settings)
        self.described: dict[str, Any] | None = None

    def run(self) -> Iterator[Finding]:
        """Finds what is wrong."""
        url = self._settings.weaviate_url
        try:
            ready = self._door.ask(".well-known/ready")
        except ssl.SSLError as error:
            yield problem(
                "weaviate_certificate",
                "the certificate of Weaviate does not hold",
                f"{url}: {getattr(error, 'verify_message', '') or error.reason or error}",
                "weaviate_tls_ca names who may vouch for it; the certificate has to name the host of weaviate_url",
            )
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            yield problem(
                "weaviate_unreachable",
                "Weaviate does not answer",
                f"{url}: {error or type(error).__name__}",
                "start it, or correct weaviate_url; until then facts are refused, and candidates wait",
            )
            return
        if ready.status != http.client.OK:
            yield problem(
                "weaviate_not_ready",
                "Weaviate answers, and is not ready",
                f"{url}/v1/.well-known/ready: {ready.status}",
                "see its log: it may still be loading, or be without a leader",
            )
            return
        yield from self._grpc()
        try:
            meta = self._door.ask("meta")
            if meta.status in (401, 403):
                yield self._key_refused(meta.status)
                return
            yield from self._openness()
            yield from self._version(meta)
            yield from self._what_it_keeps()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            yield problem(
                "weaviate_strange",
                "what answers is no Weaviate, or none that this program knows",
                f"{url}: {type(error).__name__}: {error}",
                "correct weaviate_url",
            )

    def _key_refused(self, status: int) -> Finding:
        given = "the key that is" if self._settings.weaviate_api_key.get_secret_value() else "no key is"
        return problem(
            "weaviate_key",
            "Weaviate does not let this server in",
            f"{self._settings.weaviate_url} answers {status}; {given} configured",
            "set NOOSPHERE_WEAVIATE_API_KEY to one of its AUTHENTICATION_APIKEY_ALLOWED_KEYS that may read and write",
        )

    def _grpc(self) -> Iterator[Finding]:
        address = weaviate_access(self._settings).grpc
        try:
            socket.create_connection(split_address(address), timeout=ANSWER_SECONDS_MAX).close()
        except OSError as error:
            yield problem(
                "weaviate_unreachable",
                "Weaviate's gRPC interface does not answer",
                f"{address}: {error}",
                "correct weaviate_grpc, or open the port (GRPC_PORT)",
            )

    def _openness(self) -> Iterator[Finding]:
        url = self._settings.weaviate_url
        if is_loopback(address_of_weaviate(url)):
            return
        if self._settings.weaviate_api_key.get_secret_value() and not url.startswith("https://"):
            yield warning(
                "weaviate_plain_text",
                "the key of Weaviate and all facts cross the network in plain text",
                url,
                "give Weaviate a certificate, and begin weaviate_url with https://",
            )
        if self._door.ask("schema", with_key=False).status == http.client.OK:
            yield warning(
                "weaviate_open",
                "Weaviate lets everybody in who can reach it",
                f"{url} shows its collections without a key",
                "set AUTHENTICATION_APIKEY_ENABLED, and AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED=false there",
            )

    def _version(self, meta: _Answer) -> Iterator[Finding]:
        version = str(meta.content["version"])
        found = re.match(r"(\d+)\.(\d+)", version)
        if found is None or (int(found[1]), int(found[2])) < VERSION_MIN:
            yield problem(
                "weaviate_version",
                "Weaviate is too old",
                f"{self._settings.weaviate_url} is {version}, at least {'.'.join(map(str, VERSION_MIN))} is needed",
                "use a newer one",
            )

    def _what_it_keeps(self) -> Iterator[Finding]:
        nodes = self._door.ask("nodes?output=verbose")
        if nodes.status in (401, 403):
            # Its user may see no nodes, and need not.
            return
        for node in nodes.content["nodes"]:
            if node["status"] != "HEALTHY" or node.get("operationalMode", "ReadWrite") != "ReadWrite":
                yield problem(
                    "weaviate_node",
                    "a node of Weaviate does not do its part",
                    f"{node['name']} is {node['status']}, {node.get('operationalMode', 'ReadWrite')}",
                    "see its log, its disk and OPERATIONAL_MODE",
                )
        collection = self._door.ask(f"schema/{self._settings.weaviate_collection}")
        factor = self._settings.weaviate_replication
        name = self._settings.weaviate_collection
        if collection.status == http.client.NOT_FOUND:
            self.described = {}
        if collection.status == http.client.OK:
            described = self.described = collection.content
            name, factor = described["class"], described["replicationConfig"]["factor"]
            if factor != self._settings.weaviate_replication:
                yield warning(
                    "weaviate_replication",
                    "facts are on another number of nodes than is configured",
                    f"{name} has the factor {factor}, weaviate_replication is {self._settings.weaviate_replication}",
                    "the setting only counts for a collection that is made; change the factor in Weaviate",
                )
        if factor > len(nodes.content["nodes"]):
            yield problem(
                "weaviate_nodes",
                "Weaviate has too few nodes for as many copies as are wanted",
                f"{len(nodes.content['nodes'])} nodes, factor {factor}",
                "add nodes, or lower weaviate_replication",
            )
        shards = [shard for node in nodes.content["nodes"] for shard in node["shards"] or ()]
        closed = sorted(
            {s["name"] for s in shards if s["class"] == name and s.get("vectorIndexingStatus") == "READONLY"}
        )
        if closed:
            yield problem(
                "weaviate_read_only",
                "Weaviate refuses writes of facts",
                f"of {name} read-only: {', '.join(closed[:10])}",
                "make room (DISK_USE_READONLY_PERCENTAGE), then set the tenants' shards to READY",
            )
