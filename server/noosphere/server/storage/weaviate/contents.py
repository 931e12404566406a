"""Writing, reading and removing versions of facts in a collection of Weaviate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...ports.factstore import FactContent, FactKey
from .calls import TooMuch, refused, together, unavailable
from .filters import with_ids
from .naming import bucket_of, object_id
from .querying import Queries
from .records import PAYLOAD, TERMS, content_of, object_of
from .schema import Collection

if TYPE_CHECKING:
    from .wire import batch_pb2

T = TypeVar("T")

CALL_BYTES_MAX = 8 * 1024 * 1024
"""What is written is split into calls of about so many bytes."""


class Contents:
    """See the module.

    Args:
        queries: to the collection.
        collection: what is written to.
    """

    def __init__(self, queries: Queries, collection: Collection) -> None:
        self._queries = queries
        self._collection = collection
        # Keys that are being written or removed: Weaviate would let two writers of one overwrite each other.
        self._busy: set[FactKey] = set()
        self._changed = asyncio.Condition()

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Stores versions that are not there yet; each once.

        A caller that is cancelled leaves the call to end by itself, so nothing is cut off in the middle.

        Raises:
            Refusal: ENGINE_UNAVAILABLE: some of them may be stored.
            TooMuch: a single version is too large.
        """
        await _unbroken(self._write(contents))

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes versions; returns how many there were.

        Raises:
            Refusal: ENGINE_UNAVAILABLE: some of them may be gone.
        """
        return await _unbroken(self._remove(keys))

    async def read(self, keys: Iterable[FactKey]) -> dict[FactKey, FactContent]:
        """Returns the versions that there are.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
            TooMuch: a single version is too large.
        """
        parts = await together(self._read(bucket, some) for bucket, some in self._by_bucket(keys).items())
        return {key: content for part in parts for key, content in part.items()}

    async def _read(self, bucket: str, keys: dict[str, FactKey]) -> dict[FactKey, FactContent]:
        try:
            results = await self._queries.objects(bucket, with_ids(list(keys)), len(keys), (PAYLOAD, TERMS))
        except TooMuch:
            # Versions of a MiB each: half of them at a time.
            if len(keys) == 1:
                raise
            ids = list(keys)
            halves = (ids[: len(ids) // 2], ids[len(ids) // 2 :])
            parts = [await self._read(bucket, {id: keys[id] for id in half}) for half in halves]
            return parts[0] | parts[1]
        found: dict[FactKey, FactContent] = {}
        for result in results:
            key = keys[result.metadata.id]
            try:
                found[key] = content_of(key, result)
            except ValueError as error:
                raise unavailable(f"what Weaviate holds of {key} is damaged: {error}") from error
        return found

    async def _write(self, contents: Sequence[FactContent]) -> None:
        async with self._alone([content.key for content in contents]):
            present = await self._present([content.key for content in contents])
            absent = [content for content in contents if content.key not in present]
            made = [object_of(content, self._collection.name, self._collection.buckets) for content in absent]
            for part in _parts(made):
                failed = await self._queries.write(part)
                if failed:
                    what = f"Weaviate has not taken {len(failed)} of {len(part)} versions"
                    raise refused(what, next(iter(failed.values()))[:300])

    async def _remove(self, keys: Sequence[FactKey]) -> int:
        async with self._alone(keys):
            found = await together(
                self._queries.delete(bucket, with_ids(list(some))) for bucket, some in self._by_bucket(keys).items()
            )
        if failed := sum(one for _, one in found):
            raise unavailable(f"Weaviate has not removed {failed} of {len(keys)} versions")
        return sum(gone for gone, _ in found)

    async def _present(self, keys: Sequence[FactKey]) -> set[FactKey]:
        parts = self._by_bucket(keys)
        found = await together(
            self._queries.objects(bucket, with_ids(list(some)), len(some), ()) for bucket, some in parts.items()
        )
        return {some[one.metadata.id] for some, results in zip(parts.values(), found, strict=True) for one in results}

    def _by_bucket(self, keys: Iterable[FactKey]) -> dict[str, dict[str, FactKey]]:
        """Returns the keys by tenant and id."""
        found: dict[str, dict[str, FactKey]] = {}
        for key in dict.fromkeys(keys):
            found.setdefault(bucket_of(key.scope, self._collection.buckets), {})[object_id(key)] = key
        return found

    @contextlib.asynccontextmanager
    async def _alone(self, keys: Sequence[FactKey]) -> AsyncIterator[None]:
        """Waits until nobody else of this process changes one of these keys."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._busy.isdisjoint(keys))
            self._busy.update(keys)
        try:
            yield
        finally:
            async with self._changed:
                self._busy.difference_update(keys)
                self._changed.notify_all()


async def _unbroken(change: Coroutine[Any, Any, T]) -> T:
    """Awaits a change that goes on when its caller is cancelled."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_heed)
        raise


def _heed(task: asyncio.Future[Any]) -> None:
    # Otherwise the event loop complains of an exception that nobody has looked at.
    if not task.cancelled():
        task.exception()


def _parts(objects: Sequence[batch_pb2.BatchObject]) -> Iterable[list[batch_pb2.BatchObject]]:
    """Returns objects in parts that one call can hold."""
    part: list[batch_pb2.BatchObject] = []
    size = 0
    for one in objects:
        one_bytes = one.ByteSize()
        if part and size + one_bytes > CALL_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(one)
        size += one_bytes
    if part:
        yield part
