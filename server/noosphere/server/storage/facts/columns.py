"""What filters look at, one column per field, so that a filter costs the same whatever it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactContent, FactFilter

Mask = NDArray[np.bool_]

_FIRST_ROWS = 1_024
_TEXTS = ("scope", "owner", "memory_type", "subject", "predicate")
_TIMES = ("valid_from_ms", "valid_to_ms", "expires_at_ms")


class Columns:
    """The filtered fields of every row, in memory. Rows are small integers that are used again.

    Attributes:
        lengths: how many terms each row has; of unused rows anything.
        used: which rows there are.
    """

    def __init__(self) -> None:
        self.used: Mask = np.zeros(_FIRST_ROWS, np.bool_)
        self.lengths: NDArray[np.float64] = np.zeros(_FIRST_ROWS, np.float64)
        self._trust: NDArray[np.float64] = np.zeros(_FIRST_ROWS, np.float64)
        self._texts: dict[str, NDArray[np.int32]] = {name: np.zeros(_FIRST_ROWS, np.int32) for name in _TEXTS}
        self._times: dict[str, NDArray[np.int64]] = {name: np.zeros(_FIRST_ROWS, np.int64) for name in _TIMES}
        # Texts by number, and how many rows have each: a text that nobody has is forgotten.
        self._codes: dict[str, int] = {}
        self._uses: dict[int, int] = {}
        self._next_code = 0

    def put(self, row: int, content: FactContent) -> None:
        """Fills a row."""
        if row >= len(self.used):
            self._grow()
        self.used[row] = True
        self.lengths[row] = len(content.terms)
        self._trust[row] = content.trust
        for name, texts in self._texts.items():
            texts[row] = self._coded(getattr(content, name))
        for name, times in self._times.items():
            times[row] = getattr(content, name)

    def drop(self, row: int, content: FactContent) -> None:
        """Empties a row that holds ``content``."""
        self.used[row] = False
        for name, texts in self._texts.items():
            code = int(texts[row])
            texts[row] = 0
            self._uses[code] -= 1
            if not self._uses[code]:
                del self._uses[code], self._codes[getattr(content, name)]

    def mask(self, where: FactFilter) -> Mask:
        """Returns which rows a filter leaves."""
        left = self.used & (self._times["expires_at_ms"] > where.alive_at_ms)
        self._among(left, "scope", where.scopes)
        self._among(left, "owner", where.owners)
        if where.memory_types:
            self._among(left, "memory_type", where.memory_types)
        if where.subject:
            self._among(left, "subject", (where.subject,))
        if where.predicate:
            self._among(left, "predicate", (where.predicate,))
        if where.trust_min > 0:
            left &= self._trust >= where.trust_min
        if where.valid_after_ms is not None:
            left &= self._times["valid_to_ms"] > where.valid_after_ms
        if where.valid_before_ms is not None:
            left &= self._times["valid_from_ms"] < where.valid_before_ms
        return left

    def _among(self, left: Mask, name: str, values: tuple[str, ...]) -> None:
        codes = [self._codes[value] for value in dict.fromkeys(values) if value in self._codes]
        if len(codes) == 1:
            left &= self._texts[name] == codes[0]
        else:
            left &= np.isin(self._texts[name], codes)

    def _coded(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            self._next_code += 1
            code = self._codes[text] = self._next_code
            self._uses[code] = 0
        self._uses[code] += 1
        return code

    def _grow(self) -> None:
        self.used = _doubled(self.used)
        self.lengths = _doubled(self.lengths)
        self._trust = _doubled(self._trust)
        self._texts = {name: _doubled(column) for name, column in self._texts.items()}
        self._times = {name: _doubled(column) for name, column in self._times.items()}


def _doubled(column: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([column, np.zeros_like(column)])
