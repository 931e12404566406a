"""Versions of facts as rows of the fact store's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactContent, FactKey, StoreModel
from ..embedded.database import damaged

# Rows are numbered by arrival: new ones go to the end of the file's tree, and moving no other is what keeps
# copies of words from being left behind.
SCHEMA = """
CREATE TABLE model(name TEXT NOT NULL, dimension INTEGER NOT NULL);
CREATE TABLE facts(
    number INTEGER PRIMARY KEY, scope TEXT NOT NULL, fact_id TEXT NOT NULL, version INTEGER NOT NULL,
    owner TEXT NOT NULL, memory_type TEXT NOT NULL, trust REAL NOT NULL, valid_from_ms INTEGER NOT NULL,
    valid_to_ms INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL, recorded_ms INTEGER NOT NULL,
    subject TEXT NOT NULL, predicate TEXT NOT NULL, terms BLOB NOT NULL, body BLOB NOT NULL, vector BLOB
);
CREATE UNIQUE INDEX fact_keys ON facts(scope, fact_id, version);
"""

_COLUMNS = ", ".join(FactContent._fields)
_PLACES = ", ".join("?" * len(FactContent._fields))
_BY_KEY = "WHERE scope = ? AND fact_id = ? AND version = ?"
_TERMS = msgspec.msgpack.Decoder(tuple[str, ...])
_LITTLE = np.dtype("<f4")


def load_model(db: sqlite3.Connection) -> StoreModel:
    """Returns which model the vectors are of."""
    found = db.execute("SELECT name, dimension FROM model").fetchone()
    return StoreModel(*found) if found is not None else StoreModel("", 0)


def store_model(db: sqlite3.Connection, model: StoreModel) -> None:
    """Records which model the vectors are of."""
    db.execute("BEGIN IMMEDIATE")
    db.execute("DELETE FROM model")
    db.execute("INSERT INTO model VALUES (?, ?)", tuple(model))
    db.execute("COMMIT")


def any_vector(db: sqlite3.Connection) -> bool:
    """Tells whether any row has a vector."""
    return db.execute("SELECT 1 FROM facts WHERE vector IS NOT NULL LIMIT 1").fetchone() is not None


def load(db: sqlite3.Connection, path: Path) -> Iterator[tuple[FactContent, NDArray[np.float32] | None]]:
    """Reads every version, without its body.

    Raises:
        DataFolderError: a row makes no sense.
    """
    columns = _COLUMNS.replace(", body", ", x''")
    for row in db.execute(f"SELECT {columns} FROM facts ORDER BY number"):
        try:
            # A tuple of 512 floats is only needed by whoever reads a version.
            yield _content((*row[:-1], None)), decode_vector(row[-1])
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(path, error) from None


def exists(db: sqlite3.Connection, key: FactKey) -> bool:
    """Tells whether a version is there."""
    return db.execute(f"SELECT 1 FROM facts {_BY_KEY}", key).fetchone() is not None


def insert(db: sqlite3.Connection, content: FactContent, vector: bytes | None) -> None:
    """Adds a version."""
    terms = msgspec.msgpack.encode(content.terms)
    db.execute(f"INSERT INTO facts({_COLUMNS}) VALUES ({_PLACES})", (*content[:-3], terms, content.body, vector))


def find(db: sqlite3.Connection, key: FactKey) -> FactContent | None:
    """Reads a version."""
    row = db.execute(f"SELECT {_COLUMNS} FROM facts {_BY_KEY}", key).fetchone()
    return None if row is None else _content(row)


def delete(db: sqlite3.Connection, key: FactKey) -> None:
    """Removes a version; its bytes are overwritten, since the file is opened so."""
    db.execute(f"DELETE FROM facts {_BY_KEY}", key)


def file_bytes(db: sqlite3.Connection) -> int:
    """Returns the size of the file."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_bytes)


def encode_vector(vector: tuple[float, ...] | None) -> bytes | None:
    """Returns a vector as it is stored."""
    return None if vector is None else np.asarray(vector, _LITTLE).tobytes()


def decode_vector(data: bytes | None) -> NDArray[np.float32] | None:
    """Returns a stored vector."""
    return None if data is None else np.frombuffer(data, _LITTLE).astype(np.float32)


def _content(row: tuple[Any, ...]) -> FactContent:
    *plain, terms, body, vector = row
    numbers = decode_vector(vector)
    meaning = None if numbers is None else tuple(numbers.tolist())
    return FactContent._make((*plain, _TERMS.decode(terms), body, meaning))
