"""Writes the fact store's file anew, beside the old one, which it replaces in the end or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...ports.factstore import BATCH_MAX, FactContent, StoreModel
from ..embedded.database import damaged, open_database
from ..embedded.folder import DataFolderError, sync_folder
from . import rows
from .store import FILE

NEW = ".new"

Change = Callable[[Sequence[FactContent]], Awaitable[Sequence[FactContent]]]


class Rewritten(NamedTuple):
    """How many versions and vectors a file has now, and which model its vectors were of before."""

    versions: int
    vectors: int
    before: StoreModel


async def rewrite(folder: Path, model: StoreModel, change: Change, *, told: Callable[[int, int], None]) -> Rewritten:
    """Writes every version anew, as ``change`` returns it.

    Nobody may use the folder meanwhile: whoever calls this has locked it. Whatever ends it early, a crash too, leaves
    the old file as it was.

    Args:
        folder: the data folder.
        model: which embedder the vectors are of from now on.
        change: returns up to 256 versions, given in the same order, with the same keys.
        told: is told after every batch how many versions are done, and how many there are.

    Raises:
        DataFolderError: the file is damaged or cannot be used, or the disk is full.
    """
    path = folder / FILE
    new = path.with_name(FILE + NEW)
    _remove(new)
    try:
        try:
            with _opened(path) as source, _opened(new) as target:
                done = await _copy(path, source, target, model, change, told)
        except sqlite3.DatabaseError as error:
            raise damaged(path, error) from None
        # Each was closed by its last user with an empty log, which would else be taken for that of the other file.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.replace(new, path)
        sync_folder(folder)
        return done
    except OSError as error:
        raise DataFolderError(f"cannot write {new}: {error.strerror}") from None
    finally:
        _remove(new)


async def _copy(
    path: Path,
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    model: StoreModel,
    change: Change,
    told: Callable[[int, int], None],
) -> Rewritten:
    before, total = rows.load_model(source), rows.count(source)
    rows.store_model(target, model)
    done = vectors = last = 0
    while found := rows.page(source, path, last, BATCH_MAX):
        last = found[-1][0]
        changed = await change([content for _, content in found])
        target.execute("BEGIN IMMEDIATE")
        for (_, old), content in zip(found, changed, strict=True):
            assert content.key == old.key, "a version keeps its key"
            rows.insert(target, content, rows.encode_vector(content.vector))
            vectors += content.vector is not None
        target.execute("COMMIT")
        done += len(found)
        told(done, total)
    return Rewritten(done, vectors, before)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a file, and closes it with an empty log."""
    db, _ = open_database(path, rows.SCHEMA)
    try:
        yield db
        ((busy, *_),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise DataFolderError(f"another program reads {path}")
    finally:
        db.close()


def _remove(path: Path) -> None:
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        path.with_name(name).unlink(missing_ok=True)
