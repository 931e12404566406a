"""What many values have in common: the heading of a table, found in the values themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from .document import Fields, Node

COLUMNS_MAX = 256
"""Objects of more different fields than this become no table."""
ABSENT_SHARE_MAX = 0.4
"""A table of which more than this is empty costs more than it saves."""


class Absent:
    """The type of :data:`ABSENT_CELL`: a row without this column's field."""


ABSENT_CELL: Final = Absent()
Cell: TypeAlias = "Node | Absent"


class Plain(NamedTuple):
    """A column whose cells are values."""


class Constant(NamedTuple):
    """A column that stands in the heading, because it is the same in every row."""

    value: Node


class SameAsKey(NamedTuple):
    """A column that repeats the key under which its row stands in an object of objects."""


class Table(NamedTuple):
    """The heading of rows that are objects: their fields in an order that fits every row."""

    columns: tuple[tuple[str, Column], ...]


class Lists(NamedTuple):
    """The heading of rows that are arrays, whose elements share a heading."""

    inner: Table | Lists


Heading: TypeAlias = "Table | Lists"
Column: TypeAlias = "Plain | Constant | SameAsKey | Table | Lists"


def find_heading(values: Sequence[Node], keys: Sequence[str] = ()) -> Heading | None:
    """Returns what at least two objects, or arrays of them, have in common; None if they had better stand alone.

    Args:
        values: the elements of an array, or the values of an object.
        keys: in the second case their keys, in the same order.
    """
    if len(values) < 2:
        return None
    if all(type(value) is Fields and value for value in values):
        return _table([value for value in values if type(value) is Fields], keys)
    if all(type(value) is list for value in values):
        inner = find_heading([element for value in values if type(value) is list for element in value])
        return Lists(inner) if inner is not None else None
    return None


def _table(rows: Sequence[Fields], keys: Sequence[str]) -> Table | None:
    names = _common_order(rows)
    if names is None:
        return None
    given: dict[str, list[Cell]] = {name: [ABSENT_CELL] * len(rows) for name in names}
    present = 0
    for index, row in enumerate(rows):
        present += len(row)
        for name, value in row:
            given[name][index] = value
    if present < (1 - ABSENT_SHARE_MAX) * len(rows) * len(names):
        return None
    columns = [(name, _column(cells, keys)) for name, cells in given.items()]
    if not keys and all(isinstance(column, Constant) for _, column in columns):
        # A row without a key of its own needs a cell that shows that it is there.
        columns[0] = (columns[0][0], Plain())
    return Table(tuple(columns))


def _column(cells: list[Cell], keys: Sequence[str]) -> Column:
    first = cells[0]
    if keys and all(type(cell) is str and cell == key for cell, key in zip(cells, keys, strict=True)):
        return SameAsKey()
    values = [cell for cell in cells if not isinstance(cell, Absent)]
    if len(values) == len(cells):
        if all(type(value) is type(first) and value == first for value in values):
            return Constant(values[0])
        if (heading := find_heading(values)) is not None:
            return heading
    return Plain()


def _common_order(rows: Sequence[Fields]) -> list[str] | None:
    """Returns all names in an order of which every row's is a part; None if there is none or they are too many."""
    order: list[str] = []
    known: set[tuple[str, ...]] = set()
    for row in rows:
        names = tuple(name for name, _ in row)
        if names in known:
            continue
        known.add(names)
        if len(set(names)) < len(names):
            return None
        place = 0
        for name in names:
            if name not in order:
                order.insert(place, name)
            elif order.index(name) < place:
                return None
            place = order.index(name) + 1
        if len(order) > COLUMNS_MAX:
            return None
    return order
