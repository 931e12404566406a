"""The embedded fact store: rows in SQLite, searched in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from noosphere.consistency import NEVER_MS, exhausted

from ...ports.factstore import (
    HITS_MAX,
    FactContent,
    FactFilter,
    FactKey,
    FactStoreStats,
    RawHit,
    StoreModel,
    TermStatistics,
)
from ..embedded.folder import DataFolderError, log_failure
from ..embedded.worker import ThreadWorker, Worker, run
from . import rows
from .checks import check_contents, check_filter, check_keys, check_limit, check_scope, check_terms, check_vector
from .file import FactFile
from .index import FactIndex

FILE = "facts.sqlite3"

VERSIONS_MAX = 2_000_000
"""Most versions of one store: above it, memory rather than this driver is the limit."""

NO_MODEL = StoreModel("", 0)

_PAGE_KEYS = 256

T = TypeVar("T")


class EmbeddedFactStore:
    """See :class:`~noosphere.server.ports.factstore.FactStore`. Lives on one event loop, with two threads of its own.

    One thread reads and writes the file, the other searches, so that no search waits for the disk. What is written
    stands in the file before it stands in the index, and in both before the call returns.
    """

    engine = "embedded"

    def __init__(
        self, file: FactFile, index: FactIndex, searcher: Worker, model: StoreModel, versions_max: int
    ) -> None:
        self._file = file
        self._index = index
        self._searcher = searcher
        self._model = model
        self._versions_max = versions_max
        # Of the file's thread alone; the index follows only when a transaction has ended.
        self._held = len(index)
        self._stopped = False

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        model: StoreModel = NO_MODEL,
        keep_model: bool = False,
        durability: Literal["fsync", "os"] = "fsync",
        versions_max: int = VERSIONS_MAX,
        on_fatal: Callable[[BaseException], None] = log_failure,
        worker: Callable[[str], Worker] = ThreadWorker,
    ) -> EmbeddedFactStore:
        """Opens the store in a locked data folder, or creates it. Reads all of it but bodies.

        Args:
            folder: the data folder.
            model: which embedder the vectors are of. A store without vectors takes any.
            keep_model: open a store whose vectors are of another model, too; :attr:`model` tells of which.
            durability: what an acknowledged write survives: ``fsync`` a loss of power, ``os`` the end of the process.
            versions_max: most versions.
            on_fatal: is told of a failure of the disk.
            worker: makes the threads.

        Raises:
            DataFolderError: it is damaged, unreadable, of a newer format, or its vectors are of another model and
                ``keep_model`` is not set.
        """
        path = folder / FILE

        def load(db: sqlite3.Connection) -> tuple[FactIndex, StoreModel]:
            stored = rows.load_model(db)
            used = model
            if stored != model:
                if not (stored.dimension and rows.any_vector(db)):
                    rows.store_model(db, model)
                elif keep_model:
                    used = stored
                else:
                    raise DataFolderError(
                        f"{path} holds vectors of the model {stored.name!r} ({stored.dimension} numbers), not of "
                        f"{model.name!r} ({model.dimension} numbers)"
                    )
            index = FactIndex(used.dimension)
            for content, vector in rows.load(db, path):
                index.put(content, vector)
            return index, used

        file, (index, used) = await FactFile.open(
            path,
            rows.SCHEMA,
            load,
            durability=durability,
            worker=worker("noosphere-facts"),
            what="the fact store",
            on_fatal=on_fatal,
        )
        return cls(file, index, worker("noosphere-facts-search"), used, versions_max)

    @property
    def model(self) -> StoreModel:
        """Which embedder the vectors are of."""
        return self._model

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Stores versions; see the port."""
        self._file.check()
        check_contents(contents, self._model.dimension)
        first: dict[FactKey, FactContent] = {}
        for content in contents:
            first.setdefault(content.key, content)
        if not first:
            return
        encoded = [(content, rows.encode_vector(content.vector)) for content in first.values()]

        def change(db: sqlite3.Connection) -> list[tuple[FactContent, bytes | None]]:
            absent = [(content, vector) for content, vector in encoded if not rows.exists(db, content.key)]
            count = self._held + len(absent)
            if count > self._versions_max:
                raise exhausted("contents", count, self._versions_max, "too many versions of facts")
            self._held = count
            for content, vector in absent:
                rows.insert(db, content, vector)
            return absent

        def applied(added: list[tuple[FactContent, bytes | None]]) -> None:
            for content, vector in added:
                self._index.put(content, rows.decode_vector(vector))

        await self._file.write(change, applied=applied)

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        """Returns versions; see the port."""
        self._file.check()
        check_keys(keys)
        wanted = tuple(keys)
        return await self._file.read(lambda db: tuple(rows.find(db, key) for key in wanted))

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns versions that have any of the terms; see the port."""
        self._file.check()
        check_terms(terms)
        check_filter(where)
        check_limit(limit, HITS_MAX)
        wanted = tuple(terms)
        return await self._search(lambda: self._index.by_keywords(wanted, where, limit))

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns versions by cosine similarity; see the port."""
        self._file.check()
        check_vector(vector, self._model.dimension)
        check_filter(where)
        check_limit(limit, HITS_MAX)
        wanted = tuple(vector)
        return await self._search(lambda: self._index.by_vector(wanted, where, limit))

    async def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Returns how near versions are; see the port."""
        self._file.check()
        check_vector(vector, self._model.dimension)
        check_keys(keys)
        direction, wanted = tuple(vector), tuple(keys)
        return await self._search(lambda: self._index.near(direction, wanted))

    async def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Counts what a filter leaves; see the port."""
        self._file.check()
        check_terms(terms)
        check_filter(where)
        wanted = tuple(terms)
        return await self._search(lambda: self._index.statistics(wanted, where))

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Lists what a filter leaves; see the port."""
        self._file.check()
        check_filter(where)
        check_limit(limit, HITS_MAX)
        return await self._search(lambda: self._index.matching(where, after, limit))

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes versions for good; see the port."""
        self._file.check()
        check_keys(keys)
        wanted = tuple(dict.fromkeys(keys))

        def change(db: sqlite3.Connection) -> list[FactContent]:
            gone = [content for key in wanted if (content := rows.find(db, key)) is not None]
            for content in gone:
                rows.delete(db, content.key)
            self._held -= len(gone)
            return gone

        def applied(gone: list[FactContent]) -> None:
            for content in gone:
                self._index.drop(content)

        gone = await self._file.write(change, applied=applied, erases=True)
        return len(gone)

    async def watermark(self) -> int:
        """Tells that nothing has to be looked for elsewhere; see the port."""
        self._file.check()
        return NEVER_MS

    async def versions(self, scope: str) -> AsyncIterator[FactKey]:
        """Streams the versions of a scope by pages: what comes or goes meanwhile may be among them or not."""
        self._file.check()
        check_scope(scope)
        after: FactKey | None = None
        while page := await self._search(partial(self._index.page, scope, after, _PAGE_KEYS)):
            for key in page:
                yield key
            after = page[-1]

    async def everything(self) -> AsyncIterator[FactContent]:
        """Streams every version whole, by pages: what comes or goes meanwhile may be among them or not."""
        after = FactKey("", "", 0)
        while page := await self._file.read(partial(rows.ordered, path=self._file.path, after=after, limit=_PAGE_KEYS)):
            for content in page:
                yield content
            after = page[-1].key

    async def stats(self) -> FactStoreStats:
        """Returns how much it holds; see the port."""
        file_bytes = await self._file.read(rows.file_bytes)
        return FactStoreStats(len(self._index), self._index.vector_count, file_bytes, self._model)

    async def close(self) -> None:
        """Ends both threads after what was begun; may be called twice."""
        if self._stopped:
            return
        self._stopped = True
        await self._file.close()
        self._searcher.stop()

    async def _search(self, call: Callable[[], T]) -> T:
        self._file.check()
        return await run(self._searcher, call)
