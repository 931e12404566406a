"""Vectors of claims: what is asked for at the same moment goes to the embedder in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import structlog

from ..ports.models import EMBEDDED_TEXTS_MAX, Embedder, EmbedderError
from ..ports.runtime import Clock

log = structlog.get_logger(__name__)

WAITING_MAX = 4_096
AHEAD_MAX = 256
"""Most texts that are embedded before anybody asks."""

REST_MS = 1_000
REST_MS_MAX = 60_000
"""After each failure in a row an embedder is left alone for twice as long, up to this: one that hangs must not hold up
every claim."""

_Asked = asyncio.Future[Sequence[float] | None]


class Vectors:
    """Asks an embedder, or none.

    Args:
        embedder: the embedder; with none every claim is found by its words alone.
        clock: the source of time.
    """

    def __init__(self, embedder: Embedder | None, clock: Clock) -> None:
        self._embedder = embedder
        self._clock = clock
        self._failures = 0
        self._rests_until_ms = 0
        self._waiting: deque[tuple[str, _Asked]] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._ahead: dict[str, _Asked] = {}

    @property
    def exist(self) -> bool:
        """Whether there is an embedder."""
        return self._embedder is not None

    def ahead(self, text: str) -> None:
        """Begins to embed a text that will be asked for, together with others; :meth:`drop` ends it."""
        if text not in self._ahead and len(self._ahead) < AHEAD_MAX and (asked := self._begin(text)) is not None:
            self._ahead[text] = asked

    def drop(self, text: str) -> None:
        """Forgets what was begun ahead and not asked for."""
        self._ahead.pop(text, None)

    async def of(self, text: str) -> Sequence[float] | None:
        """Returns a text's vector; None without an embedder, or if it fails or has failed just before."""
        asked = self._ahead.pop(text, None) or self._begin(text)
        return None if asked is None else await asked

    def _begin(self, text: str) -> _Asked | None:
        if self._embedder is None or len(self._waiting) >= WAITING_MAX or self._rests:
            return None
        asked: _Asked = asyncio.get_running_loop().create_future()
        self._waiting.append((text, asked))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(self._embedder))
        return asked

    @property
    def _rests(self) -> bool:
        return self._clock.monotonic_ms() < self._rests_until_ms

    def _failed(self) -> None:
        rest_ms = min(REST_MS_MAX, REST_MS * 2 ** min(self._failures, 10))
        self._failures += 1
        self._rests_until_ms = self._clock.monotonic_ms() + rest_ms

    async def _ask(self, embedder: Embedder) -> None:
        # Once more round the loop, so that all who are ready have asked.
        await asyncio.sleep(0)
        while self._waiting:
            asked = [self._waiting.popleft() for _ in range(min(len(self._waiting), EMBEDDED_TEXTS_MAX))]
            vectors: Sequence[Sequence[float] | None] = [None] * len(asked)
            try:
                if not self._rests:
                    vectors = await embedder.embed([text for text, _ in asked])
                    self._failures = 0
            except EmbedderError as error:
                self._failed()
                log.warning("claims are kept without vectors", reason=str(error), claims=len(asked))
            except BaseException:
                for _, future in (*asked, *self._waiting):
                    future.cancel()
                self._waiting.clear()
                raise
            for (_, future), vector in zip(asked, vectors, strict=True):
                if not future.done():
                    future.set_result(vector)
