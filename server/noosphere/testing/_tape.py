"""The journal on tape: every batch of a server's life, so that a crash can be made to have lost the last ones.

What a crash without a loss leaves is the files as the life found them plus the whole tape, written by the
journal itself and never closed in order. A crash that loses commits leaves the same without the tape's end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from noosphere.server.memory.codec import decode_events
from noosphere.server.storage.embedded.codec import CommitItem, Item, decode_batch, encode_batch
from noosphere.server.storage.embedded.sqlite import FILE, SqliteJournal

_HEAD_BYTES = 12


class TapedJournal(SqliteJournal):
    """The real journal, which also writes down each batch.

    Args:
        folder: the data folder, not open yet.
        workshop: where tape and base go.
    """

    def __init__(self, folder: Path, workshop: Path) -> None:
        super().__init__(folder, "os")
        self._base = workshop / "base"
        self._base.mkdir(parents=True)
        folder.mkdir(exist_ok=True)
        for file in folder.glob(f"{FILE}*"):
            shutil.copy(file, self._base)
        self._tape_path = workshop / "tape"
        self._tape = self._tape_path.open("wb", buffering=0)

    def append(self, number: int, blob: bytes) -> None:
        """Begins a transaction and inserts a row."""
        self._tape.write(number.to_bytes(8, "big") + len(blob).to_bytes(4, "big") + blob)
        super().append(number, blob)

    def close(self) -> None:
        """Closes the connections."""
        self._tape.close()
        super().close()

    def check(self, lose: int) -> None:
        """Checks that so many commits can be lost.

        Raises:
            ValueError: fewer were made.
        """
        self._kept(lose)

    def leave_behind(self, target: Path, epoch: int, lose: int) -> None:
        """Writes what a crash would have left; to be called after :meth:`close`.

        Args:
            target: the next life's data folder.
            epoch: this life's epoch.
            lose: how many of the last commits that somebody was told of are lost.
        """
        kept = self._kept(lose)
        for file in self._base.iterdir():
            shutil.copy(file, target)
        journal = SqliteJournal(target, "os")
        try:
            recovered = journal.recover()
            journal.begin(epoch, recovered.time_ms, recovered.asleep_ms, recovered.last_batch)
            for number, blob in kept:
                journal.append(number, blob)
                journal.sync()
        finally:
            # Without `finish`: the next opening finds a journal that was not closed in order.
            journal.close()

    def _kept(self, lose: int) -> list[tuple[int, bytes]]:
        tape = list(self._read())
        told = [
            (position, index)
            for position, (_, blob) in enumerate(tape)
            for index, item in enumerate(decode_batch(blob).items)
            if _was_told(item)
        ]
        if lose > len(told):
            raise ValueError(f"lose: {lose} commits, but only {len(told)} were made since the server was started")
        if not lose:
            return tape
        end, first_lost = told[-lose]
        if not first_lost:
            return tape[:end]
        number, blob = tape[end]
        batch = decode_batch(blob)
        return [*tape[:end], (number, encode_batch(batch.time_ms, batch.items[:first_lost]))]

    def _read(self) -> Iterator[tuple[int, bytes]]:
        with self._tape_path.open("rb") as tape:
            while head := tape.read(_HEAD_BYTES):
                yield int.from_bytes(head[:8], "big"), tape.read(int.from_bytes(head[8:], "big"))


def _was_told(item: Item) -> bool:
    """Tells whether a commit was made for a caller, and not by the server's own upkeep."""
    if not isinstance(item, CommitItem) or not item.cells:
        return False
    if item.request is not None:
        return True
    return any(event.actor for cell in item.cells if cell.event for event in decode_events(cell.event))
