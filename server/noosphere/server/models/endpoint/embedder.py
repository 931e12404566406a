"""Vectors by a model behind an endpoint with OpenAI's interface."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ports.models import EMBEDDED_TEXTS_MAX, EmbedderError, ModelError, Tokenizer
from ...ports.runtime import Clock
from .budget import CallBudget
from .connection import Connection
from .retrying import retried

if TYPE_CHECKING:
    from openai.types import CreateEmbeddingResponse

Vector = tuple[float, ...]

# Reading the numbers of more would hold up the event loop for too long.
_PIECE = 32
NUMBER_BYTES_MAX = 32
"""So much of an answer is read for each number that was asked for."""


class Vectors(NamedTuple):
    """Vectors in the order of the texts, and the tokens that their endpoint says were used; 0 if it does not say."""

    vectors: tuple[Vector, ...]
    tokens: int


class Embeddings:
    """Embeddings of one model at one endpoint.

    Args:
        connection: to the endpoint.
        model: the model's name.
        dimension: how many numbers a vector has to have.
        shortened: whether the endpoint is asked for that many; otherwise it is the model's own dimension.
    """

    def __init__(self, connection: Connection, model: str, dimension: int, *, shortened: bool = False) -> None:
        self.model = model
        self.dimension = dimension
        self._connection = connection
        self._extra: dict[str, Any] = {"dimensions": dimension} if shortened else {}
        # The package imports this part of itself at first use, which would hold up the event loop.
        self._create = connection.client.embeddings.create

    async def ask(self, texts: Sequence[str]) -> Vectors:
        """Returns a vector for each text, of length 1; one of zeros stays so.

        Raises:
            ModelError: the endpoint is away, slow, refuses, or answers what cannot be used.
        """
        answer = await self._connection.call(
            lambda: self._create(model=self.model, input=list(texts), encoding_format="float", **self._extra)
        )
        return self._read(answer, len(texts))

    def _read(self, answer: CreateEmbeddingResponse, count: int) -> Vectors:
        """Reads an answer with suspicion: the package takes an endpoint's word for what its fields are."""
        found: dict[int, Vector] = {}
        try:
            for entry in answer.data:
                found[int(entry.index)] = tuple(float(number) for number in entry.embedding)
            vectors = [found[at] for at in range(count)]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise ModelError(f"{self._connection.host}: the answer is no list of {count} embeddings") from None
        for vector in vectors:
            if len(vector) != self.dimension:
                reason = f"the answer's vectors have {len(vector)} numbers, embedder_dimension is {self.dimension}"
                raise ModelError(f"{self._connection.host}: {reason}")
            if not all(map(math.isfinite, vector)):
                raise ModelError(f"{self._connection.host}: the answer's vectors hold what is no number")
        used = getattr(answer.usage, "total_tokens", None)
        return Vectors(tuple(map(_direction, vectors)), used if isinstance(used, int) else 0)


class EndpointEmbedder:
    """The embedder that asks a model: within its budget, and again if the endpoint was busy or away for a moment.

    Args:
        embeddings: asks the model.
        budget: allows each attempt.
        tokenizer: counts tokens.
        text_tokens_max: of longer texts the beginning is sent.
        clock: pauses between attempts.
        rng: decides how long exactly.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        budget: CallBudget,
        *,
        tokenizer: Tokenizer,
        text_tokens_max: int,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._embeddings = embeddings
        self._budget = budget
        self._tokenizer = tokenizer
        self._text_tokens_max = text_tokens_max
        self._clock = clock
        self._rng = rng

    @property
    def name(self) -> str:
        """The model's name."""
        return self._embeddings.model

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._embeddings.dimension

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Returns a vector for each text, at most 256 at a time; zeros for a blank one, which is not sent.

        Raises:
            EmbedderError: there are too many texts, the budget is spent, or the model was slow, away or wrong.
        """
        if len(texts) > EMBEDDED_TEXTS_MAX:
            raise EmbedderError(f"texts: {len(texts)} are more than {EMBEDDED_TEXTS_MAX}")
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        meant = {at: self._tokenizer.cut(text, self._text_tokens_max) for at, text in enumerate(clean) if text.strip()}
        found = [(0.0,) * self.dimension] * len(texts)
        places = tuple(meant)
        for start in range(0, len(places), _PIECE):
            piece = places[start : start + _PIECE]
            for at, vector in zip(piece, await self._piece([meant[at] for at in piece]), strict=True):
                found[at] = vector
        return tuple(found)

    async def _piece(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        try:
            return await retried(lambda: self._attempt(texts), self._clock, self._rng)
        except ModelError as error:
            raise EmbedderError(str(error), passing=error.passing) from None

    async def _attempt(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        with self._budget.call(sum(map(self._tokenizer.count, texts))) as entry:
            answer = await self._embeddings.ask(texts)
            self._budget.settle(entry, answer.tokens)
            return answer.vectors


def answer_bytes_max(dimension: int) -> int:
    """Returns how much of an answer is read: enough for the most vectors of one request."""
    return _PIECE * (dimension * NUMBER_BYTES_MAX + 1024)


def _direction(vector: Vector) -> Vector:
    length = math.hypot(*vector)
    if not length or math.isclose(length, 1.0, abs_tol=1e-6):
        return vector
    return tuple(number / length for number in vector)
