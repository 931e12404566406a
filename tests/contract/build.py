"""Short ways to write commits down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from noosphere.consistency import NEVER_MS, RequestRef
from noosphere.server.ports.store import (
    Changes,
    Check,
    Commit,
    CommitResult,
    Committed,
    Failed,
    Failure,
    KeyCheck,
    LoggedBatch,
    Mutation,
    NamespaceRef,
    RequestRecord,
    StoredEntry,
    WorkingStore,
)

NS = NamespaceRef("shared/launch")


def put(key: str, data: bytes = b"value", **fields: Any) -> Mutation:
    """A mutation that brings ``key`` to life."""
    given = {"live_until_ms": NEVER_MS, "due_ms": NEVER_MS, "members": True, "event": b"put", **fields}
    return Mutation(key, data, **given)


def change(key: str, data: bytes = b"changed", **fields: Any) -> Mutation:
    """A mutation of a key that lives before and after."""
    return put(key, data, **{"members": False, **fields})


def bury(key: str, **fields: Any) -> Mutation:
    """A mutation that leaves a tombstone."""
    return put(key, b"tombstone", **{"live_until_ms": 0, "event": b"delete", **fields})


def reap(key: str, **fields: Any) -> Mutation:
    """A mutation that removes a tombstone: no event, no membership."""
    return Mutation(key, None, 0, NEVER_MS, False, b"", **fields)


def absent(key: str) -> KeyCheck:
    """Holds iff nothing at all is stored at ``key``."""
    return KeyCheck(key, 0, False)


def alive(key: str, revision: int) -> KeyCheck:
    """Holds iff ``key`` was stored at ``revision`` and lives."""
    return KeyCheck(key, revision, True)


def sequence(number: int, answered_through: int = 0, client: str = "planner-0#7") -> RequestRef:
    """A numbered call of our client."""
    return RequestRef(client, number, answered_through)


def uuid(text: str) -> RequestRef:
    """A call of another client."""
    return RequestRef(uuid=text)


def remember(ref: RequestRef, reply: bytes = b"reply", meaning: bytes = b"meaning") -> RequestRecord:
    """What to remember of a call."""
    return RequestRecord(ref, meaning, reply)


async def commit(
    store: WorkingStore,
    *mutations: Mutation,
    checks: Iterable[Check] = (),
    namespace: NamespaceRef = NS,
    **fields: Any,
) -> CommitResult:
    """Commits under the present epoch."""
    given = {"epoch": store.epoch, "config_version": 0, **fields}
    return await store.commit(namespace, Commit(checks=tuple(checks), mutations=mutations, **given))


async def write(store: WorkingStore, *mutations: Mutation, **fields: Any) -> int:
    """Commits what must succeed; returns its revision."""
    result = await commit(store, *mutations, **fields)
    assert isinstance(result, Committed), result
    return result.revision


async def failures(store: WorkingStore, *mutations: Mutation, **fields: Any) -> tuple[Failure, ...]:
    """Commits what must fail; returns why."""
    result = await commit(store, *mutations, **fields)
    assert isinstance(result, Failed), result
    return result.failures


async def get(
    store: WorkingStore, key: str, namespace: NamespaceRef = NS, accepted: bool = False
) -> StoredEntry | None:
    """Reads one key."""
    return (await store.read(namespace, (key,), accepted=accepted)).entries[0]


async def head(store: WorkingStore, namespace: NamespaceRef = NS, accepted: bool = False) -> int:
    """Reads a head."""
    return (await store.read(namespace, (), accepted=accepted)).view.head


async def logged(store: WorkingStore, after: int = 0, namespace: NamespaceRef = NS) -> list[LoggedBatch]:
    """Reads the whole log after a revision, page by page."""
    batches: list[LoggedBatch] = []
    while True:
        result = await store.changes(namespace, after, 7)
        assert isinstance(result, Changes), result
        batches += result.batches
        if not result.more:
            return batches
        after = result.batches[-1].revision


async def keys(store: WorkingStore, collection: str = "", namespace: NamespaceRef = NS, **fields: Any) -> list[str]:
    """Reads the keys of one page."""
    page = await store.scan(namespace, collection, **{"limit": 1000, **fields})
    return [entry.key for entry in page.entries]
