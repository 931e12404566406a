"""What may be kept of a document: its values with their worth and their tokens, and what holds them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .document import Node


@dataclass(slots=True)
class Leaf:
    """A value, or a piece of a long string.

    Attributes:
        field: the number of the field that it belongs to.
        node: the value.
        worth: how useful it is.
        tokens: about what it costs.
    """

    field: int
    node: Node
    worth: float
    tokens: int


@dataclass(slots=True)
class Record:
    """An object."""

    entries: list[tuple[str, Part]]


@dataclass(slots=True)
class Several:
    """Elements of which some may be kept.

    Attributes:
        parts: the elements of an array, the values of an object of objects, or the pieces of a long string.
        keys: of an object of objects the keys.
        key_tokens: what each key costs.
        ranks: for each element, how many are more promising.
        is_text: whether these are pieces of a string.
        divisible: whether elements may be left out.
        kept: which elements are kept at present.
    """

    parts: list[Part]
    keys: list[str] = field(default_factory=list)
    key_tokens: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    is_text: bool = False
    divisible: bool = True
    kept: list[bool] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Whether each element is a value, so that one matters as much without the others."""
        return self.is_text or isinstance(self.parts[0], Leaf)


Part: TypeAlias = "Leaf | Record | Several"


@dataclass(slots=True)
class Column:
    """A field with all its values.

    Attributes:
        tokens: what its name costs.
        leaves: its values.
    """

    tokens: int
    leaves: list[Leaf] = field(default_factory=list)


def inner_parts(part: Part) -> list[Part]:
    """Returns the parts of a part."""
    if isinstance(part, Leaf):
        return []
    return [inner for _, inner in part.entries] if isinstance(part, Record) else part.parts


def walk(part: Part) -> Iterator[Part]:
    """Yields a part and all parts of it."""
    yield part
    for inner in inner_parts(part):
        yield from walk(inner)
