"""Exact search by cosine similarity over an unindexed matrix: every row can be found as soon as it is there.

Numbers are 32-bit floats: with 8-bit integers the order of near ties would be another than the contract's, and numpy
is no faster with them. 512 of them are 2 KiB a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .columns import Mask

_BLOCK_ROWS = 4_096
_PRODUCT_ROWS = 512
"""So few that a product with them is not worth several threads to BLAS: on a machine whose cores are busy, waiting for
all of them takes ten times as long as the product."""

_GATHERED_SHARE = 8
DIGITS = 6
"""Similarities are told to so many: the last bits of a product depend on where it is made."""


class Vectors:
    """The vectors of every row, of length 1.

    Attributes:
        dimension: how many numbers each has; 0 if there is no embedder.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        # Blocks, so that growing copies nothing.
        self._blocks: list[NDArray[np.float32]] = []
        self._meaning: list[NDArray[np.bool_]] = []

    def put(self, row: int, vector: NDArray[np.float32] | None) -> None:
        """Sets a row's vector; one of zeros, or none, is near nothing."""
        if not self.dimension:
            return
        block, at = divmod(row, _BLOCK_ROWS)
        while block >= len(self._blocks):
            self._blocks.append(np.zeros((_BLOCK_ROWS, self.dimension), np.float32))
            self._meaning.append(np.zeros(_BLOCK_ROWS, np.bool_))
        direction = None if vector is None else direction_of(vector)
        self._meaning[block][at] = direction is not None
        self._blocks[block][at] = 0.0 if direction is None else direction

    def drop(self, row: int) -> None:
        """Forgets a row's vector."""
        self.put(row, None)

    def similarities(self, vector: Sequence[float], left: Mask) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Returns the rows of ``left`` that have a vector, and how near each is, -1 to 1 to six digits.

        Rounded, because a product's last bits depend on where in a block a row is, and equal vectors must be equally
        near.
        """
        rows: list[NDArray[np.intp]] = []
        scores: list[NDArray[np.float64]] = []
        direction = direction_of(np.asarray(vector, np.float32))
        for number, block in enumerate(self._blocks):
            if direction is None:
                break
            first = number * _BLOCK_ROWS
            searched = left[first : first + _BLOCK_ROWS]
            found = np.flatnonzero(searched & self._meaning[number][: len(searched)])
            if not len(found):
                continue
            gathered = len(found) * _GATHERED_SHARE < _BLOCK_ROWS
            near = block[found] @ direction if gathered else _product(block, direction)[found]
            rows.append(found + first)
            scores.append(near.astype(np.float64).round(DIGITS))
        if not rows:
            return np.zeros(0, np.intp), np.zeros(0, np.float64)
        # Without the minus of a zero that was rounded.
        return np.concatenate(rows), np.concatenate(scores) + 0.0

    def near(self, vector: Sequence[float], rows: Sequence[int]) -> list[float | None]:
        """Returns how near rows are, in the order asked for; None where a vector is missing or means nothing."""
        direction = direction_of(np.asarray(vector, np.float32))
        if direction is None or not rows:
            return [None] * len(rows)
        places = [divmod(row, _BLOCK_ROWS) for row in rows]
        scores = (np.stack([self._blocks[block][at] for block, at in places]) @ direction).astype(np.float64)
        rounded = (scores.round(DIGITS) + 0.0).tolist()
        return [score if self._meaning[block][at] else None for (block, at), score in zip(places, rounded, strict=True)]


def _product(block: NDArray[np.float32], direction: NDArray[np.float32]) -> NDArray[np.float32]:
    parts = range(0, len(block), _PRODUCT_ROWS)
    return np.concatenate([block[first : first + _PRODUCT_ROWS] @ direction for first in parts])


def direction_of(vector: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Returns a vector at length 1; None if it is of zeros, which means nothing."""
    wide = vector.astype(np.float64)
    length = float(np.sqrt(wide @ wide))
    if not length:
        return None
    return (wide / length).astype(np.float32)
