"""Blobs whose content stands in pages of their own, so that a removed one is nowhere.

``secure_delete`` overwrites a removed cell and a freed page. But cells that share a page are moved when it is balanced,
and of a moved cell an older copy may stay in a page's gap, which nothing overwrites when the cell is removed later.
Overflow pages are never moved. So what the first page holds of a payload is padding, and lengths are such that this
is as little as it can be.
"""

from __future__ import annotations

import sqlite3

_LENGTH_BYTES = 4
# A record of a row number and one blob: the header's own size, the number's type and the blob's.
_HEADERS = ((3, 57), (4, 8_185), (5, 1_048_569), (6, 134_217_721))


class Apart:
    """Pads blobs for the pages of one file."""

    def __init__(self, page_bytes: int) -> None:
        # The least that SQLite keeps of a payload in its b-tree, and what an overflow page holds (file format, 1.6).
        self._first = (page_bytes - 12) * 32 // 255 - 23
        self._page = page_bytes - 4

    @classmethod
    def of(cls, db: sqlite3.Connection) -> Apart:
        """Returns what pads for a file."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        return cls(int(page_bytes))

    def pad(self, data: bytes) -> bytes:
        """Returns ``data`` as a blob to be stored beside nothing but a row number."""
        content = bytes(self._first) + len(data).to_bytes(_LENGTH_BYTES, "big") + data
        pages = -(-(len(content) - self._first) // self._page)
        while True:
            payload = self._first + pages * self._page
            for header, blob_max in _HEADERS:
                size = payload - header
                if len(content) <= size <= blob_max:
                    return content.ljust(size, b"\0")
            pages += 1

    def strip(self, blob: bytes) -> bytes:
        """Returns the data of a padded blob."""
        start = self._first + _LENGTH_BYTES
        length = int.from_bytes(blob[self._first : start], "big")
        if start + length > len(blob):
            raise ValueError("a blob is cut off")
        return blob[start : start + length]
