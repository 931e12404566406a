"""Small tables that every replica knows whole: tokens, limits, and other settings that change at run time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, Literal

from noosphere.consistency import Reason, Refusal, exhausted, invalid

TABLE_ENTRIES_MAX = 100_000
ENTRY_KEY_BYTES_MAX = 512
ENTRY_BYTES_MAX = 16 * 1024
TRIES_MAX = 16
"""How often another process may be faster."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class Whatever(Enum):
    """The type of :data:`ANY`."""

    ANY = "any"


ANY: Final = Whatever.ANY
"""Whatever an entry is at present, also none."""

Expected = bytes | None | Literal[Whatever.ANY]


class Table(Mapping[str, bytes]):
    """A table as one process knows it. The same object for as long as the process lives: what it shows changes.

    Only code without an ``await`` in between sees one state of it.

    Attributes:
        version: counts the changes that this process has seen; the same number means the same contents.
    """

    def __init__(self, entries: Mapping[str, bytes] | None = None) -> None:
        self._entries = dict(entries or {})
        self.version = 0

    def __getitem__(self, key: str) -> bytes:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def show(self, key: str, value: bytes | None) -> None:
        """Takes a change; for drivers alone."""
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value
        self.version += 1

    def replace(self, entries: Mapping[str, bytes]) -> None:
        """Takes a whole reading; for drivers alone."""
        if entries != self._entries:
            self._entries = dict(entries)
            self.version += 1


def check_table_name(name: str) -> None:
    """Checks a table's name, which comes from code and never from a caller.

    Raises:
        ValueError: it is not of this form.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"table: {name!r} is not 1 to 32 of a-z, 0-9 and _ that begin with a letter")


def check_entry(table: str, shown: Table, key: str, value: bytes | None) -> None:
    """Checks an entry before it is written.

    Raises:
        Refusal: INVALID_FIELD, a key that is empty, has a NUL, is too long or is not Unicode; LIMIT_EXCEEDED, too
            large a value or too many entries.
    """
    try:
        key_bytes = len(key.encode())
    except UnicodeEncodeError:
        raise invalid("key", f"is not Unicode text, in the table of {table}") from None
    if not key or "\0" in key or key_bytes > ENTRY_KEY_BYTES_MAX:
        raise invalid(
            "key", f"must be 1 to {ENTRY_KEY_BYTES_MAX} bytes without NUL in the table of {table}, is {key_bytes}"
        )
    if value is None:
        return
    if len(value) > ENTRY_BYTES_MAX:
        raise exhausted(table, len(value), ENTRY_BYTES_MAX, "too many bytes in an entry")
    if key not in shown and len(shown) >= TABLE_ENTRIES_MAX:
        raise exhausted(table, len(shown) + 1, TABLE_ENTRIES_MAX, "too many entries")


def check_expected(table: str, present: bytes | None, expected: Expected) -> None:
    """Checks that an entry is what its writer has seen.

    Raises:
        Refusal: CONTENTION.
    """
    if expected is not ANY and present != expected:
        raise Refusal(Reason.CONTENTION, f"the entry in the table of {table} has been changed by others; try again")
