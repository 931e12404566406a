"""Images of namespaces: out of Redis, and into one that holds nothing yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence

from noosphere.consistency import NEVER_MS, Reason, Refusal, to_hex

from ...ports.images import PAGE_BYTES_MAX, PAGE_RECORDS_MAX, ImageRecord, ImageRecords, NamespaceImage
from ...ports.store import NamespaceRef
from .catalogue import Catalogue
from .engine import Engine
from .fence import META, NAMES, QUEUE
from .packing import common, entry_of, stem_of, view_of
from .scripts import Script
from .storetime import StoreTime
from .wire import Reply

COPY_SECONDS = 600
"""How long a copy outlives whoever has made it and reads it no more."""

_EXACT_MS = (1 << 53) - 1
_DELETED_AT_ONCE = 500
_OURS = b"noosphere:{*"


class Images:
    """Takes and makes images.

    Args:
        engine: executes scripts.
        catalogue: knows the names of namespaces.
        time: store time.
    """

    def __init__(self, engine: Engine, catalogue: Catalogue, time: StoreTime) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._time = time

    async def export(self, ref: NamespaceRef) -> AsyncGenerator[NamespaceImage | ImageRecords, None]:
        """Yields an image and its records; a large namespace is copied within Redis first, in one step.

        Raises:
            Refusal: also LIMIT_EXCEEDED, if Redis has no memory for the copy.
        """
        word = secrets.token_hex(8)
        reply = await self._call(Script.EXPORT, ref, word, PAGE_RECORDS_MAX, PAGE_BYTES_MAX, COPY_SECONDS)
        if reply[0] == b"N":
            return
        view = view_of(reply[1])
        fences = sorted((lock.decode(), int(token, 16)) for lock, token in _pairs(reply[2]))
        yield NamespaceImage(
            ref, view.deleted, view.head, view.config_version, view.floor_context, view.cuts, tuple(fences)
        )
        if reply[0] == b"O":
            if records := _records(*reply[3:]):
                yield records
            return
        try:
            bound = b"-"
            while records := await self._page(ref, word, bound):
                yield records
                bound = b"(" + records[-1].key.encode()
        finally:
            await self._call(Script.EXPORT_END, ref, word)

    async def _page(self, ref: NamespaceRef, word: str, bound: bytes) -> ImageRecords:
        reply = await self._call(Script.EXPORT_PAGE, ref, word, bound, PAGE_RECORDS_MAX, PAGE_BYTES_MAX, COPY_SECONDS)
        if reply[0] == b"N":
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "Redis has failed over while a namespace was read; begin anew")
        return _records(*reply[1:])

    async def is_empty(self) -> bool:
        """Tells whether there is no namespace and no job."""
        names = await self._engine.ask(META, "ZCARD", NAMES)
        jobs = await self._engine.ask(QUEUE, "HLEN", QUEUE + b":i")
        return not names and not jobs

    async def mark(self) -> None:
        """Keeps everybody but a restore from using this Redis."""
        await self._engine.ask(META, "HSET", META, "restoring", 1)

    async def unmark(self) -> None:
        """Ends what :meth:`mark` began."""
        await self._engine.ask(META, "HDEL", META, "restoring")

    async def clear(self) -> None:
        """Removes everything but what is known of epochs."""
        for node in await self._engine.nodes():
            cursor = b"0"
            while True:
                cursor, keys = await self._engine.ask_node(
                    node, "SCAN", cursor, "MATCH", _OURS, "COUNT", _DELETED_AT_ONCE
                )
                # One by one: in a cluster they are of different slots.
                gone = (self._engine.ask_node(node, "UNLINK", key) for key in keys if key != META)
                await asyncio.gather(*gone)
                if cursor == b"0":
                    break

    async def begin(self, image: NamespaceImage) -> None:
        """Begins a namespace."""
        await self._catalogue.note(image.ref)
        await self._call(
            Script.IMPORT_SPACE,
            image.ref,
            to_hex(image.ref.generation),
            2 if image.deleted else 1,
            to_hex(image.head),
            to_hex(image.config_version),
            to_hex(image.floor_context),
            "".join(f"{cut.epoch:06x}{to_hex(cut.cut)}" for cut in image.cuts),
            *(part for lock, token in image.fences for part in (lock, to_hex(token))),
        )

    async def add(self, image: NamespaceImage, records: Sequence[ImageRecord]) -> None:
        """Adds records to a namespace that was begun; at most a page."""
        parts: list[str | bytes | int] = []
        for key, revision, live_until_ms, due_ms, data in records:
            due = "" if due_ms == NEVER_MS else min(due_ms, _EXACT_MS)
            parts += (key, to_hex(revision), to_hex(live_until_ms), due, data)
        await self._call(Script.IMPORT_RECORDS, image.ref, *parts)

    async def _call(self, script: Script, ref: NamespaceRef, *arguments: str | bytes | int) -> Reply:
        given = (*common(ref, self._time.told_ms), *arguments)
        _, reply = await self._engine.call(script, stem_of(ref), *given)
        return reply


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _records(keys: Sequence[bytes], stored: Sequence[bytes], dues: Sequence[bytes | None]) -> ImageRecords:
    found = []
    for key, record, due in zip(keys, stored, dues, strict=True):
        entry = entry_of(key.decode(), record)
        assert entry is not None, "order and records are written in one step"
        due_ms = NEVER_MS if due is None else int(float(due))
        found.append(ImageRecord(entry.key, entry.revision, entry.live_until_ms, due_ms, entry.data))
    return tuple(found)
