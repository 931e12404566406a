"""Which candidates are worth their tokens at a price per token, and the document that they make.

At one price each field and each element can be judged by itself, which takes time in proportion to the document;
the price at which the budget is just used up is found from outside.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .candidates import Candidates
from .document import Fields, Node
from .parts import Leaf, Part, Record, Several

GAP = "…"
"""Stands in a long string for what was left out."""

_ROW_KEY_WORTH = 1.2
_ROW_TOKENS = 1


class Nothing:
    """The type of :data:`NOTHING`."""


NOTHING: Final = Nothing()
"""A document of which nothing is kept; null is a value."""


def decide(candidates: Candidates, price: float, rows: int) -> list[bool]:
    """Keeps what is worth more than its tokens; elements remember it themselves.

    Args:
        candidates: what to decide on.
        price: of a token, in worth.
        rows: how many elements of an array of objects are considered, the most promising ones.

    Returns:
        Which fields are kept.
    """
    _keep_all(candidates.root, rows)
    # A field is judged in all elements that are considered, and then an element by its fields that are kept.
    gains = [-price * column.tokens for column in candidates.columns]
    _add_gains(candidates.root, price, gains)
    kept = [gain > 0 for gain in gains]
    _keep_elements(candidates.root, price, kept, rows)
    return kept


class Built(NamedTuple):
    """What is left of a document.

    Attributes:
        node: the document; ``NOTHING`` if nothing is left.
        values: how many of its values.
        characters: how many characters of them are pieces of long strings.
    """

    node: Node | Nothing
    values: int
    characters: int


def build(candidates: Candidates, kept: list[bool]) -> Built:
    """Makes the document that is left."""
    builder = _Builder(kept)
    node = builder.build(candidates.root)
    return Built(node, builder.values, builder.characters)


def _keep_all(part: Part, rows: int) -> None:
    if isinstance(part, Record):
        for _, inner in part.entries:
            _keep_all(inner, rows)
    elif isinstance(part, Several):
        part.kept = [part.is_plain or rank < rows for rank in part.ranks]
        for inner in part.parts:
            _keep_all(inner, rows)


def _add_gains(part: Part, price: float, gains: list[float]) -> None:
    if isinstance(part, Leaf):
        gains[part.field] += part.worth - price * part.tokens
    elif isinstance(part, Record):
        for _, inner in part.entries:
            _add_gains(inner, price, gains)
    else:
        for inner, kept in zip(part.parts, part.kept, strict=True):
            if isinstance(inner, Leaf):
                # It need not be kept because others are.
                gains[inner.field] += max(0.0, inner.worth - price * inner.tokens)
            elif kept:
                _add_gains(inner, price, gains)


def _keep_elements(part: Part, price: float, kept: list[bool], rows: int) -> float:
    """Decides on elements, the innermost first; returns the gain of what is kept."""
    if isinstance(part, Leaf):
        return part.worth - price * part.tokens if kept[part.field] else 0.0
    if isinstance(part, Record):
        return sum(_keep_elements(inner, price, kept, rows) for _, inner in part.entries)
    total = 0.0
    for place, inner in enumerate(part.parts):
        gain = _keep_elements(inner, price, kept, rows)
        if part.keys:
            gain += _ROW_KEY_WORTH - price * part.key_tokens[place]
        elif not part.is_plain:
            gain -= price * _ROW_TOKENS
        considered = part.is_plain or part.ranks[place] < rows
        part.kept[place] = considered and (gain > 0 or not part.divisible)
        total += gain if part.kept[place] else 0.0
    return total


class _Builder:
    def __init__(self, kept: list[bool]) -> None:
        self._kept = kept
        self.values = 0
        self.characters = 0

    def build(self, part: Part) -> Node | Nothing:
        if isinstance(part, Leaf):
            if not self._kept[part.field]:
                return NOTHING
            self.values += 1
            return part.node
        if isinstance(part, Record):
            pairs = [(key, self.build(inner)) for key, inner in part.entries]
            return Fields((key, value) for key, value in pairs if not isinstance(value, Nothing)) or NOTHING
        if part.is_text:
            return self._joined(part)
        found = [self.build(inner) for inner, yes in zip(part.parts, part.kept, strict=True) if yes]
        if part.keys:
            keys = [key for key, yes in zip(part.keys, part.kept, strict=True) if yes]
            rows = [Fields() if isinstance(row, Nothing) else row for row in found]
            return Fields(zip(keys, rows, strict=True)) or NOTHING
        return [value for value in found if not isinstance(value, Nothing)] or NOTHING

    def _joined(self, text: Several) -> str | Nothing:
        """Returns a long string with a mark wherever pieces of it are left out."""
        parts: list[str] = []
        gap = some = False
        for piece, yes in zip(text.parts, text.kept, strict=True):
            assert isinstance(piece, Leaf)
            assert isinstance(piece.node, str)
            if yes and self._kept[piece.field]:
                parts.append(piece.node)
                self.characters += len(piece.node)
                gap, some = False, True
            elif not gap and piece.node.strip():
                parts.append(f"{GAP}\n" if piece.node.endswith("\n") else f"{GAP} ")
                gap = True
        if not some:
            return NOTHING
        self.values += 1
        return "".join(parts)
