"""Makes of a document what may be kept of it, and weighs it.

A field is kept in all elements of an array or in none, so that what remains is still a table. Each element is kept
or not, but an array in an array is a group and stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from . import usefulness
from .atoms import write_atom
from .document import DEPTH_MAX, Fields, Node, NotJson, parse
from .parts import Column, Leaf, Part, Record, Several
from .passages import pieces
from .past import Past
from .shortlist import Chosen, shortlist
from .tables import Table, find_heading
from .writer import DITTO_CHARS_MIN

PASSAGE_CHARS_MIN = 240
"""Longer strings may be kept in part."""
ELEMENTS_MIN = 64
"""At least this many elements of an array are looked at closely, however small the budget is."""
WIDE = 64
"""Of objects with more fields, each of its own kind, the fields are chosen from as elements are."""
LEAVES_MIN = 4_000
"""At least this many values are."""

_TOKENS_PER_ELEMENT = 4
_LEAVES_PER_TOKEN = 4
_REPEATED = 0.3
# An element matters less the more there are before it that matter as much: half at this rank.
_HALF_AT = 16
_FIELDS_HALF_AT = 1_000
_ANY: Final = "*"


class Candidates:
    """What may be kept of a document.

    Attributes:
        root: the document.
        columns: its fields; a leaf's ``field`` is a place in here.
        values: how many values it has, with those in strings that hold JSON.
        telling: whether anything but its place speaks for any part of it.
    """

    def __init__(self, document: Node, past: Past, tokens_max: int) -> None:
        """Looks at a document.

        Args:
            document: the document.
            past: what came before it.
            tokens_max: the budget; of long arrays only as many elements are looked at as could ever fit.
        """
        self.columns: list[Column] = []
        self.values = count_values(document)
        self.telling = False
        self._past = past
        self._elements_max = max(ELEMENTS_MIN, tokens_max // _TOKENS_PER_ELEMENT)
        self._numbers: dict[tuple[str, ...], int] = {}
        self._met: set[tuple[int, str]] = set()
        self._leaves = 0
        self._unwrapped = False
        self._emphasis = 1.0
        self.root = self._part(document, (), max(LEAVES_MIN, tokens_max * _LEAVES_PER_TOKEN))
        for column in self.columns:
            first, *others = column.leaves
            # Such a field stands in the heading, once.
            if all(leaf.node == first.node for leaf in others):
                for leaf in others:
                    leaf.worth, leaf.tokens = 0.0, 0

    def _part(self, node: Node, path: tuple[str, ...], leaves_max: int) -> Part:
        if isinstance(node, Fields) and node:
            return self._object(node, path, leaves_max)
        if isinstance(node, list) and node:
            chosen = self._shortlist(node, (), leaves_max)
            parts = self._elements(chosen, node, path, leaves_max)
            return Several(parts, ranks=chosen.ranks[: len(parts)], divisible=path[-1:] != (_ANY,))
        if isinstance(node, str) and len(node) >= PASSAGE_CHARS_MIN:
            return self._long(node, path, leaves_max)
        return self._leaf(node, path)

    def _object(self, node: Fields, path: tuple[str, ...], leaves_max: int) -> Part:
        keys, values = [key for key, _ in node], [value for _, value in node]
        is_table = isinstance(find_heading(values, keys), Table)
        if not is_table and len(node) <= WIDE:
            return Record(self._fields(node, path, leaves_max))
        chosen = self._shortlist(values, keys, leaves_max)
        names = [keys[place] for place in chosen.places]
        parts = self._elements(chosen, values, path, leaves_max, () if is_table else names)
        if not is_table:
            return Record(list(zip(names, parts, strict=False)))
        names = names[: len(parts)]
        return Several(parts, names, [usefulness.tokens(name) + 1 for name in names], chosen.ranks[: len(parts)])

    def _fields(self, node: Fields, path: tuple[str, ...], leaves_max: int) -> list[tuple[str, Part]]:
        entries: list[tuple[str, Part]] = []
        outer = self._emphasis
        # The shares end where there is no room left.
        for (key, value), share in zip(node, self._shares(len(node), leaves_max), strict=False):
            # Between fields that are all alike the order decides; otherwise it hardly matters.
            self._emphasis = outer / (1 + len(entries) / _FIELDS_HALF_AT)
            entries.append((key, self._part(value, (*path, key), share)))
        self._emphasis = outer
        return entries

    def _shortlist(self, elements: Sequence[Node], keys: Sequence[str], leaves_max: int) -> Chosen:
        return shortlist(elements, keys, self._past, max(1, min(self._elements_max, leaves_max)))

    def _elements(
        self, chosen: Chosen, values: list[Node], path: tuple[str, ...], leaves_max: int, names: Sequence[str] = ()
    ) -> list[Part]:
        """Makes parts of the chosen elements, or of fields if they have names of their own."""
        parts: list[Part] = []
        outer = self._emphasis
        shares = self._shares(len(chosen.places), leaves_max)
        for place, emphasis, rank, share in zip(*chosen, shares, strict=False):
            self._emphasis = outer * emphasis / (1 + rank / _HALF_AT)
            name = names[len(parts)] if names else _ANY
            parts.append(self._part(values[place], (*path, name), share))
        self._emphasis = outer
        return parts

    def _shares(self, count: int, leaves_max: int) -> Iterator[int]:
        """Yields how many values each of so many parts may have; what one does not need the next ones may use."""
        end = self._leaves + leaves_max
        for done in range(count):
            if self._leaves >= end:
                return
            yield max(1, (end - self._leaves) // (count - done))

    def _long(self, text: str, path: tuple[str, ...], leaves_max: int) -> Part:
        if text[0] in "{[" and not self._unwrapped:
            # Protocols like MCP wrap a tool's JSON into a string.
            try:
                inner = parse(text, DEPTH_MAX - len(path))
            except NotJson:
                pass
            else:
                self.values += count_values(inner) - 1
                self._unwrapped = True
                part = self._part(inner, path, leaves_max)
                self._unwrapped = False
                return part
        number = self._column(path)
        leaves: list[Part] = []
        for piece in pieces(text, self._past, leaves_max):
            self.telling = self.telling or piece.telling
            leaf = Leaf(number, piece.text, piece.worth, usefulness.tokens(piece.text) + 1 if piece.worth else 1)
            self.columns[number].leaves.append(leaf)
            leaves.append(leaf)
        self._leaves += len(leaves)
        return Several(leaves, ranks=list(range(len(leaves))), is_text=True)

    def _leaf(self, node: Node, path: tuple[str, ...]) -> Leaf:
        self._leaves += 1
        self.telling = True
        number = self._column(path)
        names = [name for name in path if name != _ANY]
        text = node if isinstance(node, str) else write_atom(node)
        worth = usefulness.of_value(node) * usefulness.of_place(names, self._past) * self._emphasis
        worth *= usefulness.of_past(text, self._past)
        if (number, text) in self._met:
            worth *= _REPEATED
        self._met.add((number, text))
        written = write_atom(node)
        # A space is a token only where no letter follows it.
        tokens = usefulness.tokens(written) + (not written[0].isalpha())
        before = self.columns[number].leaves
        if before and len(written) >= DITTO_CHARS_MIN and before[-1].node == node:
            tokens = 1
        leaf = Leaf(number, node, worth, tokens)
        before.append(leaf)
        return leaf

    def _column(self, path: tuple[str, ...]) -> int:
        number = self._numbers.setdefault(path, len(self._numbers))
        if number == len(self.columns):
            name = path[-1] if path and path[-1] != _ANY else ""
            self.columns.append(Column(usefulness.tokens(name) + 1))
        return number


def count_values(document: Node) -> int:
    """Returns how many values a document has; an empty object or array counts as one."""
    count = 0
    stack: list[Node] = [document]
    while stack:
        node = stack.pop()
        if isinstance(node, Fields) and node:
            stack.extend(value for _, value in node)
        elif isinstance(node, list) and node:
            stack.extend(node)
        else:
            count += 1
    return count
