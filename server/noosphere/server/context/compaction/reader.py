"""Reads the compact notation that :mod:`.writer` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .atoms import ABSENT, DITTO, ROW_KEY, read_bare
from .document import DEPTH_MAX, Fields, Node
from .tables import ABSENT_CELL, Absent, Cell

_SKIP = re.compile(r"[\s|]*")
_WORD = re.compile(r'[^\s"{}\[\]=|]+')
_NAME = re.compile(r'[^\s"{}\[\]=|.]+')
_ROW_NUMBER = re.compile(r"\^([0-9]{1,9})")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ANY_NAME = rf"(?:{_NAME.pattern}|{_STRING.pattern})"
_FIELD = re.compile(rf"{_ANY_NAME}(?:\.{_ANY_NAME})*[={{\[]", re.DOTALL)
# A heading adds a level of its own to those of the values in it.
_LEVELS_MAX = 3 * DEPTH_MAX


class NotCompact(ValueError):
    """Text that is not in the compact notation."""


class _Blank(NamedTuple):
    """A column whose cells stand in the rows."""


class _RowKey(NamedTuple):
    """A column that repeats its row's key."""


class _Head(NamedTuple):
    """A heading: names with what stands for them, at least one of them in the rows or from the row's key."""

    entries: tuple[tuple[str, _Entry], ...]


class _HeadOfLists(NamedTuple):
    """The heading of arrays."""

    inner: _Head | _HeadOfLists


_Entry: TypeAlias = "_Blank | _RowKey | _Head | _HeadOfLists | Node"
_Heading: TypeAlias = "_Head | _HeadOfLists"


def read(text: str) -> Node:
    """Returns a document in the compact notation.

    Raises:
        NotCompact: it is none.
    """
    reader = _Reader(text)
    try:
        return reader.document()
    except RecursionError:
        raise NotCompact("nested too deeply") from None


_Rows: TypeAlias = "list[list[Cell]]"
"""The cells of the rows so far under one heading, for the sake of repetitions."""


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._level = 0

    def document(self) -> Node:
        self._skip()
        # The outermost object stands without braces.
        is_field = _FIELD.match(self._text, self._at) is not None
        node = self._as_value(self._entries("") if is_field else self._element())
        self._skip()
        if self._at < len(self._text):
            raise self._error("the end")
        return node

    def _element(self) -> _Heading | Node:
        """Reads a value, or what turns out to be the heading of a table."""
        self._skip()
        opening = self._peek()
        if opening not in ("{", "["):
            return self._atom()
        self._level += 1
        if self._level > _LEVELS_MAX:
            raise NotCompact(f"nested deeper than {_LEVELS_MAX} levels")
        self._at += 1
        element = self._braces() if opening == "{" else self._brackets()
        self._level -= 1
        return element

    def _braces(self) -> _Heading | Node:
        self._skip()
        if self._peek() in ("{", "["):
            heading = self._heading()
            rows: _Rows = []
            pairs = []
            while not self._closed("}"):
                key = self._string_or_word()
                pairs.append((key, self._row(heading, rows, key)))
            return Fields(pairs)
        entries = self._entries("}")
        self._at += 1
        return entries

    def _brackets(self) -> _Heading | Node:
        if self._closed("]"):
            return []
        first = self._element()
        if not isinstance(first, _Head | _HeadOfLists):
            nodes = [first]
            while not self._closed("]"):
                nodes.append(self._as_value(self._element()))
            return nodes
        if self._peek() != ":":
            if not self._closed("]"):
                raise self._error("`]`")
            return _HeadOfLists(first)
        self._at += 1
        rows: _Rows = []
        nodes = []
        while not self._closed("]"):
            nodes.append(self._row(first, rows, None))
        return nodes

    def _heading(self) -> _Heading:
        heading = self._element()
        if isinstance(heading, Fields):
            # Of an object of objects: the rows may consist of their keys alone.
            heading = _Head(tuple(heading))
        if not isinstance(heading, _Head | _HeadOfLists) or self._peek() != ":":
            raise self._error("a heading with a colon behind it")
        self._at += 1
        return heading

    def _entries(self, end: str) -> _Head | Fields:
        """Reads fields, or the columns of a heading, up to ``end`` or the end of the text."""
        entries: list[tuple[str, _Entry]] = []
        is_head = False
        while True:
            self._skip()
            if self._at == len(self._text) or (end and self._peek() == end):
                break
            entry = self._entry()
            is_head = is_head or isinstance(entry[1], _Blank | _RowKey | _Head | _HeadOfLists)
            entries.append(entry)
        if end and self._at == len(self._text):
            raise self._error(f"`{end}`")
        return _Head(tuple(entries)) if is_head else Fields(entries)  # type: ignore[arg-type]

    def _entry(self) -> tuple[str, _Entry]:
        names = [self._name()]
        while self._peek() == ".":
            self._at += 1
            names.append(self._name())
        entry: _Entry = _Blank()
        if self._peek() == "=":
            self._at += 1
            if self._text.startswith(ROW_KEY, self._at):
                self._at += len(ROW_KEY)
                entry = _RowKey()
            else:
                entry = self._atom()
        elif self._peek() in ("{", "["):
            entry = self._element()
        for name in reversed(names[1:]):
            if isinstance(entry, _Blank | _RowKey | _Head | _HeadOfLists):
                raise self._error("a value behind joined names")
            entry = Fields([(name, entry)])
        return names[0], entry

    def _row(self, heading: _Heading, rows: _Rows, key: str | None) -> Node:
        self._skip()
        if isinstance(heading, _HeadOfLists):
            if self._peek() != "[":
                raise self._error("`[`")
            self._at += 1
            nodes = []
            while not self._closed("]"):
                nodes.append(self._row(heading.inner, rows, None))
            return nodes
        if repeated := _ROW_NUMBER.match(self._text, self._at):
            self._at = repeated.end()
            number = int(repeated[1])
            if not 1 <= number <= len(rows):
                raise self._error("the number of a row above")
            cells = rows[number - 1]
        else:
            above = rows[-1] if rows else []
            cells = [self._cell(column, index, above) for index, column in enumerate(_open_columns(heading))]
        rows.append(cells)
        return _fill(heading, iter(cells), key)

    def _cell(self, column: _Blank | _HeadOfLists, index: int, above: list[Cell]) -> Cell:
        self._skip()
        if self._peek() == DITTO:
            self._at += 1
            if index >= len(above):
                raise self._error("a cell: there is none above")
            return above[index]
        if self._peek() == ABSENT:
            self._at += 1
            return ABSENT_CELL
        if isinstance(column, _HeadOfLists):
            return self._row(column, [], None)
        return self._as_value(self._element())

    def _atom(self) -> Node:
        self._skip()
        if self._peek() == '"':
            return self._string()
        return read_bare(self._match(_WORD, "a value"))

    def _name(self) -> str:
        self._skip()
        return self._string() if self._peek() == '"' else self._match(_NAME, "a name")

    def _string_or_word(self) -> str:
        self._skip()
        return self._string() if self._peek() == '"' else self._match(_WORD, "a name or a value")

    def _string(self) -> str:
        quoted = self._match(_STRING, "a string's closing quote")
        try:
            text = json.loads(quoted, strict=False)
        except ValueError:
            raise self._error("a string") from None
        assert isinstance(text, str)
        return text

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._error(expected)
        self._at = found.end()
        return found[0]

    def _as_value(self, element: _Heading | Node) -> Node:
        if isinstance(element, _Head | _HeadOfLists):
            raise self._error("a value, not a heading")
        return element

    def _closed(self, bracket: str) -> bool:
        self._skip()
        if self._peek() != bracket:
            if self._at == len(self._text):
                raise self._error(f"`{bracket}`")
            return False
        self._at += 1
        return True

    def _skip(self) -> None:
        found = _SKIP.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _error(self, expected: str) -> NotCompact:
        return NotCompact(f"character {self._at}: expected {expected}")


def _open_columns(head: _Head) -> Iterator[_Blank | _HeadOfLists]:
    """Yields the columns that have a cell in every row, in their order."""
    for _, entry in head.entries:
        if isinstance(entry, _Head):
            yield from _open_columns(entry)
        elif isinstance(entry, _Blank | _HeadOfLists):
            yield entry


def _fill(head: _Head, cells: Iterator[Cell], key: str | None) -> Fields:
    pairs: list[tuple[str, Node]] = []
    for name, entry in head.entries:
        if isinstance(entry, _Head):
            pairs.append((name, _fill(entry, cells, key)))
        elif isinstance(entry, _Blank | _HeadOfLists):
            if not isinstance(cell := next(cells), Absent):
                pairs.append((name, cell))
        elif isinstance(entry, _RowKey):
            if key is None:
                raise NotCompact(f"{name}={ROW_KEY}: these rows have no keys")
            pairs.append((name, key))
        else:
            pairs.append((name, entry))
    return Fields(pairs)
