"""Writes JSON in the compact notation; :mod:`.reader` is the way back.

Fields are ``name=value``, ``name{…}`` and ``name[…]``, and a field that is alone in its object is joined to the
outer name by a dot. Strings lose their quotes where nothing else could be meant. Objects of the same make become a
table: ``[{name price{net gross}}: pen 1 1.2 ink 4 4.8]`` says each name once. In its heading ``name=value`` holds for
every row and ``name=@`` is the key under which a row stands; among its cells ``~`` is a field that this row does not
have, ``^`` the cell above, and ``^3`` the whole row 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from .atoms import ABSENT, DITTO, ROW_KEY, write_atom, write_key, write_row_key
from .document import Fields, Node
from .tables import ABSENT_CELL, Absent, Cell, Column, Constant, Heading, Lists, Plain, SameAsKey, Table, find_heading

DITTO_CHARS_MIN = 8
"""What is shorter than this is repeated, which reads better and costs as little."""


def write(node: Node, *, lines: bool = True) -> str:
    """Writes a document in the compact notation.

    Args:
        node: the document.
        lines: give each row of a table a line of its own, which a reader follows more easily; else only spaces
            stand between them, which saves about a token per row.

    Returns:
        Text from which ``reader.read`` makes the same document again.
    """
    writer = _Writer(lines)
    if isinstance(node, Fields) and node and find_heading(*_entries(node)) is None:
        return writer.fields(node)
    return writer.value(node)


def _entries(node: Fields) -> tuple[list[Node], list[str]]:
    return [value for _, value in node], [key for key, _ in node]


class _Writer:
    def __init__(self, lines: bool) -> None:
        self._lines = lines
        self._tables = 0

    def fields(self, node: Fields) -> str:
        return " ".join(self._field(key, value) for key, value in node)

    def value(self, node: Node) -> str:
        if isinstance(node, Fields) and node:
            return self._object(node)
        if isinstance(node, list) and node:
            return self._array(node)
        return write_atom(node)

    def _field(self, key: str, node: Node) -> str:
        name = write_key(key)
        if isinstance(node, Fields | list):
            if isinstance(node, Fields) and len(node) == 1:
                return f"{name}.{self._field(*node[0])}"
            return name + self.value(node)
        return f"{name}={write_atom(node)}"

    def _object(self, node: Fields) -> str:
        values, keys = _entries(node)
        heading = find_heading(values, keys)
        if heading is None:
            return "{" + self.fields(node) + "}"
        return "{" + self._table(heading, values, keys) + "}"

    def _array(self, node: list[Node]) -> str:
        heading = find_heading(node)
        if heading is None:
            return "[" + " ".join(map(self.value, node)) + "]"
        return "[" + self._table(heading, node, ()) + "]"

    def _table(self, heading: Heading, values: list[Node], keys: list[str] | tuple[()]) -> str:
        head = self._heading(heading)
        self._tables += 1
        rows = _Rows(self, heading, repeats=True)
        texts: Iterator[str] = map(rows.write, values)
        if keys:
            texts = (f"{write_row_key(key)} {text}".rstrip() for key, text in zip(keys, texts, strict=True))
        separator = "\n" if self._lines and self._tables == 1 else " "
        body = separator.join(texts)
        self._tables -= 1
        return f"{head}:{separator}{body}"

    def _heading(self, heading: Heading) -> str:
        if isinstance(heading, Lists):
            return "[" + self._heading(heading.inner) + "]"
        return "{" + " ".join(self._column(name, column) for name, column in heading.columns) + "}"

    def _column(self, name: str, column: Column) -> str:
        if isinstance(column, Constant):
            return self._field(name, column.value)
        if isinstance(column, SameAsKey):
            return f"{write_key(name)}={ROW_KEY}"
        return write_key(name) + ("" if isinstance(column, Plain) else self._heading(column))

    @property
    def inner_separator(self) -> str:
        return " | " if self._lines else " "


class _Rows:
    """Writes values under one heading, and remembers what it wrote for the sake of repetitions."""

    def __init__(self, writer: _Writer, heading: Heading, *, repeats: bool) -> None:
        self._writer = writer
        self._repeats = repeats
        self._inner = _Rows(writer, heading.inner, repeats=repeats) if isinstance(heading, Lists) else None
        self._table = heading if isinstance(heading, Table) else None
        self._above: list[str] = []
        self._numbers: dict[str, int] = {}
        self._count = 0

    def write(self, value: Node) -> str:
        if self._inner is not None and isinstance(value, list):
            return "[" + self._writer.inner_separator.join(map(self._inner.write, value)) + "]"
        assert self._table is not None
        cells = list(self._cells(self._table, value))
        text = " ".join(cells)
        if not self._repeats:
            return text
        self._count += 1
        above, self._above = self._above, cells
        if len(text) >= DITTO_CHARS_MIN and (number := self._numbers.setdefault(text, self._count)) < self._count:
            return f"{DITTO}{number}"
        if not above:
            return text
        pairs = zip(cells, above, strict=True)
        return " ".join(DITTO if cell == old and len(cell) >= DITTO_CHARS_MIN else cell for cell, old in pairs)

    def _cells(self, table: Table, row: Node) -> Iterator[str]:
        assert isinstance(row, Fields)
        given: dict[str, Cell] = dict(row)
        for name, column in table.columns:
            cell = given.get(name, ABSENT_CELL)
            if isinstance(column, Constant | SameAsKey):
                continue
            if isinstance(cell, Absent):
                yield ABSENT
            elif isinstance(column, Table):
                yield from self._cells(column, cell)
            elif isinstance(column, Lists):
                # Without repetitions: these would refer to rows of other cells, and the cell itself may be repeated.
                yield _Rows(self._writer, column, repeats=False).write(cell)
            else:
                yield self._writer.value(cell)
