"""What a driver of facts must offer so that its contract suites can run against it, and the embedded drivers' answer.

A driver to come joins by a class like :class:`WeaviateFactLab` and one more parameter of the fixtures in ``conftest``.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.support.weaviate import WeaviateProcess, drop_collections

from noosphere.consistency import NEVER_MS, Reason, Refusal
from noosphere.server.ports.factqueue import FactQueue, Job, LeasedJob
from noosphere.server.ports.factstore import FactContent, FactFilter, FactKey, FactStore, RawHit, StoreModel
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.facts import EmbeddedFactQueue, EmbeddedFactStore
from noosphere.server.storage.weaviate import WeaviateAccess, WeaviateFactStore
from noosphere.testing import ManualClock

DIMENSION = 4
MODEL = StoreModel("test-model/1", DIMENSION)
QUEUE_MAX = 12
ODD = (
    "snake_case",
    "100%",
    "fo*",
    "a-b",
    "NOT",
    "OR",
    "NEAR(x y)",
    "null",
    "true",
    "x|y",
    "col:value",
    '{"a": 1}',
    '"quoted',
    "it's",
    "\\",
    "a b",
    "new\nline",
    "nul\0byte",
    "乌班图",
    "系统",
    "🦊",
    "مرحبا",
    "É",
    "e\u0301",
)
"""Texts that are syntax somewhere, or of which some tokenizer makes less than they are."""


class FactStoreLab(Protocol):
    """A fact store under test and power over its surroundings."""

    @property
    def store(self) -> FactStore:
        """The present store; its vectors have :data:`DIMENSION` numbers."""
        ...

    async def reopen(self) -> None:
        """Closes in order and opens again."""
        ...

    async def crash(self) -> None:
        """Ends without warning and opens what is durable."""
        ...

    def bytes_at_rest(self) -> bytes:
        """Returns everything that is on disk, or skips the test if the driver's files are elsewhere."""
        ...


class FactQueueLab(Protocol):
    """A fact queue under test, which holds at most :data:`QUEUE_MAX` jobs, and power over its surroundings."""

    @property
    def queue(self) -> FactQueue:
        """The present queue."""
        ...

    def advance(self, by_ms: int) -> None:
        """Moves store time on, or skips the test if the driver takes its time from elsewhere."""
        ...

    async def reopen(self) -> None:
        """Closes in order and opens again."""
        ...

    async def crash(self) -> None:
        """Ends without warning and opens what is durable."""
        ...

    def bytes_at_rest(self) -> bytes:
        """Returns everything that is on disk, or skips the test if the driver's files are elsewhere."""
        ...


class _Folder:
    """A folder that can be left behind as a crash would leave it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lives = 0
        self.folder = root / "life-0"
        self.folder.mkdir()

    def bytes_at_rest(self) -> bytes:
        files = [file for file in sorted(self.folder.iterdir()) if not file.name.endswith("-shm")]
        return b"\n".join(file.read_bytes() for file in files)

    def leave(self) -> None:
        """Goes on with a copy of the files as they are."""
        self._lives += 1
        copy = self._root / f"life-{self._lives}"
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        self.folder = copy


class EmbeddedFactLab(_Folder):
    """The embedded fact store. Durability ``os``: these tests never cut the power."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root)
        self.options = {"durability": "os", "model": MODEL, **options}
        self.fatal: list[BaseException] = []
        self._store: EmbeddedFactStore | None = None

    @property
    def store(self) -> EmbeddedFactStore:
        assert self._store is not None
        return self._store

    async def open(self) -> None:
        self._store = await EmbeddedFactStore.open(self.folder, on_fatal=self.fatal.append, **self.options)

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        old = self.store
        self.leave()
        # The old life still has to end; nobody reads its files again.
        await old.close()
        await self.open()


_numbers = itertools.count(1)


class WeaviateFactLab:
    """A fact store on a collection of its own of a real Weaviate.

    Args:
        server: which runs.
        options: of :class:`WeaviateAccess`.
    """

    def __init__(self, server: WeaviateProcess, **options: Any) -> None:
        self.server = server
        fields: dict[str, Any] = {
            "url": server.url,
            "grpc": server.grpc,
            "collection": f"Lab{next(_numbers)}",
            "buckets": 2,
            "call_ms_max": 60_000,
            **options,
        }
        self.access = WeaviateAccess(**fields)
        self.model = MODEL
        self.fatal: list[BaseException] = []
        self._store: WeaviateFactStore | None = None

    @property
    def store(self) -> WeaviateFactStore:
        assert self._store is not None
        return self._store

    async def open(self) -> None:
        self._store = await WeaviateFactStore.open(self.access, model=self.model, clock=SystemClock())

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        self.server.restart()
        await self.reopen()

    def drop(self) -> None:
        """Removes what was written."""
        drop_collections(self.server, self.access.collection)

    def bytes_at_rest(self) -> bytes:
        pytest.skip("on Weaviate words go from disk when it compacts its files, at a time of its choosing")


class EmbeddedQueueLab(_Folder):
    """The embedded fact queue under a clock that the test moves."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root)
        self.options = {"durability": "os", "jobs_max": QUEUE_MAX, **options}
        self.clock = ManualClock()
        self.fatal: list[BaseException] = []
        self._queue: EmbeddedFactQueue | None = None

    @property
    def queue(self) -> EmbeddedFactQueue:
        assert self._queue is not None
        return self._queue

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    async def open(self) -> None:
        self._queue = await EmbeddedFactQueue.open(
            self.folder, clock=self.clock, on_fatal=self.fatal.append, **self.options
        )

    async def close(self) -> None:
        await self.queue.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        old = self.queue
        self.leave()
        await old.close()
        await self.open()


def fact(fact_id: str, *terms: str, **fields: Any) -> FactContent:
    """A version of a fact."""
    given: dict[str, Any] = {
        "version": 1,
        "scope": "shared/launch",
        "owner": "ada",
        "memory_type": "semantic",
        "trust": 0.5,
        "valid_from_ms": 0,
        "valid_to_ms": NEVER_MS,
        "expires_at_ms": NEVER_MS,
        "recorded_ms": 1_000,
        "subject": "",
        "predicate": "",
        "body": b"body of " + fact_id.encode(),
        **fields,
    }
    return FactContent(fact_id=fact_id, terms=terms, **given)


def where(**fields: Any) -> FactFilter:
    """A filter that leaves what :func:`fact` makes."""
    return FactFilter(**{"scopes": ("shared/launch",), "owners": ("ada",), **fields})


def ids(found: Iterable[RawHit | FactKey]) -> list[str]:
    """The ids of hits or keys, in order."""
    return [(item.key if isinstance(item, RawHit) else item).fact_id for item in found]


def job(id: str, **fields: Any) -> Job:
    """A piece of work."""
    return Job(**{"id": id, "priority": 5, "body": b"do " + id.encode("utf-8", "replace"), **fields})


def job_ids(leased: Iterable[LeasedJob]) -> list[str]:
    """The ids of leased jobs, in order."""
    return [one.job.id for one in leased]


@contextlib.contextmanager
def refused(reason: Reason, *words: str) -> Any:
    """Checks that the block is refused, in a message that names ``words``."""
    with pytest.raises(Refusal) as caught:
        yield
    assert caught.value.reason is reason
    assert all(word in caught.value.message for word in words), caught.value.message
