"""The journal seam: how the embedded store gets durable, as blocking calls.

Commits are appended as batches; in the background their effect is *folded* into tables by namespace,
after which their batches are trimmed. A namespace is loaded from its tables plus the batches that are
not folded yet. Every folded fact is either keyed by what it describes or only ever rises, so replaying
a batch over a fold that already contains it changes nothing, and a fold may be torn anywhere. (The one
thing that is taken away, the stamps of collections that became empty, goes after the row that makes up
for it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from noosphere.consistency import Cut

from .codec import Cell, LogItem, Request


class NamespaceRow(NamedTuple):
    """What is known of a namespace without loading it.

    Attributes:
        folded: every batch up to this one is contained in the namespace's tables.
        next_due_ms: no key is due earlier.
    """

    storage_id: bytes
    name: str
    generation: int
    origin: int
    deleted: bool
    head: int
    config_version: int
    floor_context: int
    floor: int
    stamps_floor: int
    cuts: tuple[Cut, ...]
    folded: int
    record_count: int
    record_bytes: int
    next_due_ms: int


class RewriteFailed(Exception):
    """The journal could not be written anew. Nothing has changed; its text is one line."""


class Recovered(NamedTuple):
    """What a journal holds when it is opened.

    Attributes:
        fresh: the journal was created just now.
        clean: it was closed in order.
        epoch: the epoch of the last opening.
        time_ms: the newest stored time.
        asleep_ms: how much of it passed while the store was closed.
        last_batch: the newest batch ever appended.
        erasing: whether it was marked as holding what was to be erased.
        namespaces: every namespace that was ever folded.
        batches: ``(number, blob)`` of what is not trimmed, in order.
    """

    fresh: bool
    clean: bool
    epoch: int
    time_ms: int
    asleep_ms: int
    last_batch: int
    erasing: bool
    namespaces: tuple[NamespaceRow, ...]
    batches: tuple[tuple[int, bytes], ...]


class Mark(NamedTuple):
    """A collection's stamps, or with ``is_fence`` a lock's highest token (``second`` is then 0)."""

    is_fence: bool
    name: str
    first: int
    second: int


class Image(NamedTuple):
    """A namespace's tables.

    Attributes:
        cells: by ascending key.
        log: by ascending revision; shares its cells with ``cells`` where both have the same.
        logged: the log contains every batch up to this one.
    """

    cells: list[Cell]
    marks: tuple[Mark, ...]
    log: list[LogItem]
    logged: int
    requests: tuple[Request, ...]


class LogStretch(NamedTuple):
    """Consecutive log items, up to and including those of batch ``last_batch``."""

    last_batch: int
    items: tuple[LogItem, ...]


class FoldChunk:
    """A piece of a fold, stored as a whole or not at all; holds parts of one or of many namespaces.

    Attributes:
        cells: records; one without data is removed.
        marks: stamps and fences.
        forgotten: collections whose stamps are removed.
        log: what is appended to the log.
        rows: namespaces whose tables are now complete up to ``row.folded``, with their remembered requests.
        weight: about how many bytes of work this is.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[bytes, Cell]] = []
        self.marks: list[tuple[bytes, Mark]] = []
        self.forgotten: list[tuple[bytes, str]] = []
        self.log: list[tuple[bytes, LogStretch]] = []
        self.rows: list[tuple[NamespaceRow, Sequence[Request]]] = []
        self.weight = 0


class Journal(Protocol):
    """Blocking calls. One thread makes :meth:`load` and :meth:`relieve`, another :meth:`copy`, a third all others."""

    def recover(self) -> Recovered:
        """Opens the journal, or creates one.

        Raises:
            DataFolderError: it is damaged, unreadable or of a newer format.
        """
        ...

    def begin(self, epoch: int, time_ms: int, asleep_ms: int, last_batch: int) -> None:
        """Records, beyond the reach of anything that may happen to the journal's tail, that it is in use."""
        ...

    def append(self, number: int, blob: bytes) -> None:
        """Appends a batch; it is durable after the next :meth:`sync`."""
        ...

    def sync(self) -> None:
        """Makes what was appended durable, as configured. An error here is final."""
        ...

    def load(self, storage_id: bytes, floor: int) -> Image:
        """Reads a namespace's tables; log items up to ``floor`` are left out."""
        ...

    def fold(self, chunk: FoldChunk) -> None:
        """Stores a piece of a fold. Not durable before the next :meth:`sync`, but never out of order with it."""
        ...

    def trim_log(self, storage_id: bytes, floor: int) -> bool:
        """Removes some log items up to ``floor``; returns whether there are more."""
        ...

    def purge(self, storage_id: bytes, whole: bool) -> bool:
        """Removes some of a namespace's records, marks and log, with ``whole`` at last its row; False when done."""
        ...

    def trim(self, through: int, time_ms: int) -> bool:
        """Removes some batches up to number ``through``, keeps the time; returns whether there are more."""
        ...

    def relieve(self) -> None:
        """Moves what was written to its final place, as far as that goes beside appends."""
        ...

    def restart(self) -> None:
        """Ends what :meth:`relieve` has begun."""
        ...

    def mark_erasing(self) -> None:
        """Notes that the files hold what is to be erased, until :meth:`swap`. As durable as a fold."""
        ...

    def copy(self) -> None:
        """Begins to write the journal anew, beside appends; nothing may be folded or trimmed from here to :meth:`swap`.

        Raises:
            RewriteFailed: it cannot be written.
        """
        ...

    def swap(self) -> None:
        """Puts what :meth:`copy` began in the journal's place: it holds the same, and no byte that is not of that.

        Raises:
            RewriteFailed: it cannot be; the journal is as before.
            StoreFailed: not even that.
        """
        ...

    def finish(self, epoch: int, time_ms: int, last_batch: int) -> None:
        """Records that the journal is closed in order."""
        ...

    def close(self) -> None:
        """Releases files; without :meth:`finish` the next opening is unclean."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that are not trimmed."""
        ...

    @property
    def wants_relief(self) -> bool:
        """Whether :meth:`relieve` is due."""
        ...
