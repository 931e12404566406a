"""Whether the collection of facts that Weaviate has is the one that the fleet uses."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec

from noosphere.consistency import Refusal

from ..addresses import split_list
from ..config import Settings
from ..drivers import access_of, is_replica
from ..storage.embedded.coordinator import FILE as COORDINATION
from ..storage.etcd.access import UnfitFiles
from ..storage.etcd.client import EtcdClient
from ..storage.etcd.keys import Layout
from ..storage.weaviate.lineage import ADVICE, KEY, TABLE, decode, difference
from ..storage.weaviate.schema import Stamp
from .files import reading
from .findings import Finding, problem


async def examine_lineage(settings: Settings, described: Mapping[str, Any]) -> list[Finding]:
    """Compares what is there with what the coordinator notes.

    Args:
        settings: the configuration.
        described: the collection as Weaviate describes it; empty if it is not there.
    """
    found: str | None = None
    if described:
        try:
            found = msgspec.json.decode(described.get("description") or "", type=Stamp).id
        except msgspec.DecodeError:
            # Not ours, which is told of by itself.
            return []
    try:
        noted = decode(await (_in_etcd(settings) if is_replica(settings) else asyncio.to_thread(_in_folder, settings)))
    except (Refusal, UnfitFiles, sqlite3.Error):
        # Coordinators that cannot be read are told of by themselves.
        return []
    if noted is None or not (why := difference(noted, settings.weaviate_collection, found)):
        return []
    if noted.name == settings.weaviate_collection and found is None:
        return [problem("weaviate_lost", "the fleet's facts are gone from Weaviate", why, ADVICE)]
    return [problem("weaviate_other", "what Weaviate has is not the collection of facts of this fleet", why, ADVICE)]


async def _in_etcd(settings: Settings) -> bytes | None:
    client = EtcdClient(split_list(settings.etcd_endpoints), access_of(settings))
    try:
        entry = await client.read(Layout(settings.etcd_root).entry(TABLE, KEY))
    finally:
        await client.close()
    return None if entry is None else entry.value


def _in_folder(settings: Settings) -> bytes | None:
    path = settings.data / COORDINATION
    if not path.exists():
        return None
    with closing(reading(path)) as db:
        try:
            rows = db.execute(
                "SELECT CAST(value AS BLOB) FROM entries WHERE tbl = ? AND key = ?", (TABLE, KEY)
            ).fetchall()
        except sqlite3.OperationalError:
            # There is no such table before a first entry.
            return None
    return bytes(rows[0][0]) if rows else None
