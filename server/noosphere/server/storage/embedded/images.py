"""Images of namespaces: out of memory, and into the tables of a new journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from noosphere.consistency import NEVER_MS

from ...ports.images import PAGE_BYTES_MAX, PAGE_RECORDS_MAX, ImageRecord, ImageRecords, NamespaceImage
from ..keys import text_bytes
from .codec import Cell
from .journal import FoldChunk, Journal, Mark, NamespaceRow
from .namespace import Namespace

CHUNK_BYTES = 1024 * 1024
"""About how much is stored in one transaction."""

_RECORD_BYTES = 64
_MARK_BYTES = 128


def image_of(namespace: Namespace) -> tuple[NamespaceImage, list[Cell]]:
    """Returns what is synced of a loaded namespace: cells do not change, so a list of them is a snapshot."""
    body = namespace.body
    image = NamespaceImage(
        namespace.ref,
        namespace.deleted,
        namespace.head,
        namespace.config_version,
        namespace.floor_context,
        namespace.cuts,
        () if body is None else tuple(sorted(body.fences.items())),
    )
    return image, [] if body is None else list(body.cells.values())


def pages_of(cells: Iterable[Cell]) -> Iterator[ImageRecords]:
    """Cuts records into pages."""
    page: list[ImageRecord] = []
    size = 0
    for cell in cells:
        data = cell.data or b""
        page.append(ImageRecord(cell.key, cell.revision, cell.live_until_ms, cell.due_ms, data))
        size += len(cell.key) + len(data)
        if len(page) >= PAGE_RECORDS_MAX or size >= PAGE_BYTES_MAX:
            yield tuple(page)
            page, size = [], 0
    if page:
        yield tuple(page)


class ImageWriter:
    """Puts images into a journal that holds nothing yet, one after the other. Blocking.

    Args:
        journal: a journal that has begun.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunk = FoldChunk()
        self._image: NamespaceImage | None = None
        self._own_count = self._count = self._bytes = 0
        self._next_due_ms = NEVER_MS

    def begin(self, image: NamespaceImage) -> None:
        """Begins a namespace, and ends the one before."""
        self.end()
        self._image = image
        self._own_count = self._count = self._bytes = 0
        self._next_due_ms = NEVER_MS
        of = image.ref.storage_id
        for lock, token in image.fences:
            self._chunk.marks.append((of, Mark(True, lock, token, 0)))
            self._weigh(_MARK_BYTES)

    def add(self, records: Sequence[ImageRecord]) -> None:
        """Adds records to the namespace that was begun last."""
        assert self._image is not None, "records are of a namespace"
        of = self._image.ref.storage_id
        for key, revision, live_until_ms, due_ms, data in records:
            self._chunk.cells.append((of, Cell(key, revision, data, live_until_ms, due_ms)))
            size = text_bytes(key) + len(data)
            self._bytes += size
            self._count += 1
            self._own_count += key.startswith("\0")
            self._next_due_ms = min(self._next_due_ms, due_ms)
            self._weigh(_RECORD_BYTES + size)

    def end(self) -> None:
        """Ends the namespace that was begun last, and stores what is left."""
        image, self._image = self._image, None
        if image is None:
            return
        row = NamespaceRow(
            image.ref.storage_id,
            image.ref.name,
            image.ref.generation,
            image.ref.origin,
            image.deleted,
            image.head,
            image.config_version,
            image.floor_context,
            # There is no log, and nobody knows any more when which collection has changed.
            image.head,
            image.head,
            image.cuts,
            0,
            self._count - self._own_count,
            self._bytes,
            self._next_due_ms,
        )
        self._chunk.rows.append((row, ()))
        self._flush()

    def _weigh(self, size: int) -> None:
        self._chunk.weight += size
        if self._chunk.weight >= CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        chunk, self._chunk = self._chunk, FoldChunk()
        self._journal.fold(chunk)
