"""Versions of facts as rows of the fact store's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactContent, FactKey, StoreModel
from ..embedded.database import damaged
from .apart import Apart

# Only keys share pages; what a fact says stands apart, so that it can be removed without a trace.
SCHEMA = """
CREATE TABLE model(name TEXT NOT NULL, dimension INTEGER NOT NULL);
CREATE TABLE facts(
    number INTEGER PRIMARY KEY, scope TEXT NOT NULL, fact_id TEXT NOT NULL, version INTEGER NOT NULL,
    has_vector INTEGER NOT NULL
);
CREATE UNIQUE INDEX fact_keys ON facts(scope, fact_id, version);
CREATE TABLE contents(number INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""

_BY_KEY = "WHERE scope = ? AND fact_id = ? AND version = ?"
_Stored = tuple[str, str, float, int, int, int, int, str, str, tuple[str, ...], bytes, bytes | None]
_DECODER = msgspec.msgpack.Decoder(_Stored)
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
    return db.execute("SELECT 1 FROM facts WHERE has_vector LIMIT 1").fetchone() is not None


def load(db: sqlite3.Connection, path: Path) -> Iterator[tuple[FactContent, NDArray[np.float32] | None]]:
    """Reads every version, without its body.

    Raises:
        DataFolderError: a row makes no sense.
    """
    apart = Apart.of(db)
    for scope, fact_id, version, data in db.execute(
        "SELECT scope, fact_id, version, data FROM facts JOIN contents USING (number) ORDER BY number"
    ):
        try:
            stored = _DECODER.decode(apart.strip(data))
            # Of what is searched neither bodies nor tuples of floats are kept.
            content = _content(FactKey(scope, fact_id, version), (*stored[:10], b"", None))
            yield content, decode_vector(stored[11])
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(path, error) from None


def page(db: sqlite3.Connection, path: Path, after: int, limit: int) -> list[tuple[int, FactContent]]:
    """Returns the first versions after a row number, whole, each with its number.

    Raises:
        DataFolderError: a row makes no sense.
    """
    apart = Apart.of(db)
    found = db.execute(
        "SELECT number, scope, fact_id, version, data FROM facts JOIN contents USING (number) "
        "WHERE number > ? ORDER BY number LIMIT ?",
        (after, limit),
    )
    try:
        return [(number, _content(FactKey(*key), _DECODER.decode(apart.strip(data)))) for number, *key, data in found]
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged(path, error) from None


def ordered(db: sqlite3.Connection, path: Path, after: FactKey, limit: int) -> list[FactContent]:
    """Returns the first versions after a key, whole, by key.

    Raises:
        DataFolderError: a row makes no sense.
    """
    apart = Apart.of(db)
    found = db.execute(
        "SELECT scope, fact_id, version, data FROM facts JOIN contents USING (number) "
        "WHERE (scope, fact_id, version) > (?, ?, ?) ORDER BY scope, fact_id, version LIMIT ?",
        (*after, limit),
    )
    try:
        return [_content(FactKey(*key), _DECODER.decode(apart.strip(data))) for *key, data in found]
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged(path, error) from None


def count(db: sqlite3.Connection) -> int:
    """Returns how many versions there are."""
    return int(db.execute("SELECT count(*) FROM facts").fetchone()[0])


def exists(db: sqlite3.Connection, key: FactKey) -> bool:
    """Tells whether a version is there."""
    return db.execute(f"SELECT 1 FROM facts {_BY_KEY}", key).fetchone() is not None


def insert(db: sqlite3.Connection, content: FactContent, vector: bytes | None) -> None:
    """Adds a version."""
    number = db.execute(
        "INSERT INTO facts(scope, fact_id, version, has_vector) VALUES (?, ?, ?, ?)",
        (*content.key, vector is not None),
    ).lastrowid
    fields = (
        content.owner,
        content.memory_type,
        float(content.trust),
        content.valid_from_ms,
        content.valid_to_ms,
        content.expires_at_ms,
        content.recorded_ms,
        content.subject,
        content.predicate,
        content.terms,
        content.body,
        vector,
    )
    data = Apart.of(db).pad(msgspec.msgpack.encode(fields))
    db.execute("INSERT INTO contents VALUES (?, ?)", (number, data))


def find(db: sqlite3.Connection, key: FactKey) -> FactContent | None:
    """Reads a version."""
    row = db.execute(f"SELECT data FROM facts JOIN contents USING (number) {_BY_KEY}", key).fetchone()
    return None if row is None else _content(key, _DECODER.decode(Apart.of(db).strip(row[0])))


def delete(db: sqlite3.Connection, key: FactKey) -> None:
    """Removes a version; its bytes are overwritten, since the file is opened so."""
    db.execute(f"DELETE FROM contents WHERE number = (SELECT number FROM facts {_BY_KEY})", key)
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


def _content(key: FactKey, stored: _Stored) -> FactContent:
    owner, memory_type, trust, *times, subject, predicate, terms, body, vector = stored
    valid_from_ms, valid_to_ms, expires_at_ms, recorded_ms = times
    numbers = decode_vector(vector)
    return FactContent(
        fact_id=key.fact_id,
        version=key.version,
        scope=key.scope,
        owner=owner,
        memory_type=memory_type,
        trust=trust,
        valid_from_ms=valid_from_ms,
        valid_to_ms=valid_to_ms,
        expires_at_ms=expires_at_ms,
        recorded_ms=recorded_ms,
        subject=subject,
        predicate=predicate,
        terms=terms,
        body=body,
        vector=None if numbers is None else tuple(numbers.tolist()),
    )
