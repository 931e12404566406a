"""Compares questions with texts by their vectors, all of which are made before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ports.models import EMBEDDED_TEXTS_MAX, Embedder


class Meanings:
    """Vectors of texts, and how near a question is to them."""

    def __init__(self) -> None:
        self._vectors: dict[str, tuple[float, ...]] = {}
        self._matrices: dict[tuple[str, ...], Any] = {}

    async def learn(self, embedder: Embedder, texts: Iterable[str]) -> None:
        """Makes the vectors of texts.

        Raises:
            EmbedderError: they cannot be made.
        """
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        for start in range(0, len(missing), EMBEDDED_TEXTS_MAX):
            some = missing[start : start + EMBEDDED_TEXTS_MAX]
            self._vectors.update(zip(some, await embedder.embed(some), strict=True))

    def __call__(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the cosine similarity of a question to each text, all of which have been learnt."""
        # Whoever has an embedder has numpy too.
        import numpy as np

        key = tuple(texts)
        if key not in self._matrices:
            self._matrices[key] = np.asarray([self._vectors[text] for text in texts], dtype=np.float32)
        found: list[float] = (self._matrices[key] @ np.asarray(self._vectors[question], dtype=np.float32)).tolist()
        return found
