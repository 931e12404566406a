"""Makes the drivers that a configuration asks for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..config import ConfigError, Settings
from ..ports.metrics import ModelMetrics
from ..ports.models import Embedder, Extractor, Summariser, Tokenizers, TransitionPolicy
from ..ports.runtime import Clock, SystemClock, system_random
from .embedding import bundled
from .extraction import RulesExtractor
from .extractive import ExtractiveSummariser
from .tokenizers import ESTIMATE, TokenizerPlugin, TokenizerRegistry, installed_plugins

if TYPE_CHECKING:
    from .endpoint import CallBudget, Connection


class Models(NamedTuple):
    """The drivers of the model ports.

    Attributes:
        tokenizers: finds tokenizers.
        summariser: makes summaries as configured.
        fallback: makes them when that fails; needs neither model nor network.
        embedder: makes vectors; None if facts are found by keywords alone.
        extractor: finds facts in texts.
        policy: decides about working memory; None if rules do.
        warm: begins to load what is loaded when it is first needed.
        aclose: closes connections and ends threads.
    """

    tokenizers: Tokenizers
    summariser: Summariser
    fallback: Summariser
    embedder: Embedder | None
    extractor: Extractor
    policy: TransitionPolicy | None
    warm: Callable[[], None]
    aclose: Callable[[], Awaitable[None]]


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    plugins: Iterable[TokenizerPlugin] | None = None,
    metrics: ModelMetrics | None = None,
) -> Models:
    """Makes the drivers. Loads vocabularies and packages, so nothing may be served yet; opens no connection.

    Args:
        settings: the configuration.
        clock: the source of time; the machine's by default.
        rng: spreads attempts; seeded from the system by default.
        plugins: tokenizers beside the server's own; those of installed packages by default.
        metrics: hears what calls of models cost.

    Raises:
        ConfigError: a plugin cannot be used, or a package that the configuration needs is not installed.
    """
    tokenizers = TokenizerRegistry(installed_plugins() if plugins is None else plugins)
    maker = _Maker(settings, tokenizers, clock or SystemClock(), rng or system_random(), metrics)
    fallback = ExtractiveSummariser()
    return Models(
        tokenizers=tokenizers,
        summariser=maker.summariser() if settings.summariser == "openai" else fallback,
        fallback=fallback,
        embedder=maker.embedder(),
        extractor=maker.extractor() if settings.extractor == "openai" else RulesExtractor(),
        policy=maker.policy() if settings.transition_policy == "openai" else None,
        warm=maker.warm,
        aclose=maker.aclose,
    )


class _Maker:
    """Makes drivers, and remembers what has to be closed."""

    def __init__(
        self,
        settings: Settings,
        tokenizers: Tokenizers,
        clock: Clock,
        rng: random.Random,
        metrics: ModelMetrics | None,
    ) -> None:
        self._settings = settings
        self._tokenizers = tokenizers
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._stack = contextlib.AsyncExitStack()
        self.warm: Callable[[], None] = _nothing

    async def aclose(self) -> None:
        await self._stack.aclose()

    def summariser(self) -> Summariser:
        from .endpoint import Completions, EndpointSummariser

        given = self._settings
        completions = Completions(
            self._connection("summariser"), given.summariser_model, with_schema=given.summariser_json_schema
        )
        return EndpointSummariser(
            completions, self._budget("summariser"), input_tokens_max=given.summariser_input_tokens_max
        )

    def extractor(self) -> Extractor:
        from .endpoint import Completions, EndpointExtractor

        given = self._settings
        completions = Completions(
            self._connection("extractor"), given.extractor_model, with_schema=given.extractor_json_schema
        )
        return EndpointExtractor(
            completions,
            self._budget("extractor"),
            tokenizer=self._tokenizers.named(ESTIMATE),
            input_tokens_max=given.extractor_input_tokens_max,
        )

    def policy(self) -> TransitionPolicy:
        from .endpoint import Completions, EndpointPolicy

        given = self._settings
        completions = Completions(
            self._connection("transition_policy"),
            given.transition_policy_model,
            with_schema=given.transition_policy_json_schema,
        )
        return EndpointPolicy(
            completions,
            self._budget("transition_policy"),
            tokenizer=self._tokenizers.named(ESTIMATE),
            input_tokens_max=given.transition_policy_input_tokens_max,
            clock=self._clock,
        )

    def embedder(self) -> Embedder | None:
        given = self._settings
        if given.embedder == "none":
            return None
        if given.embedder == "openai":
            return self._endpoint_embedder()
        made = bundled()
        if made is None:
            if given.embedder == "bundled":
                raise ConfigError("embedder: 'bundled' needs the extra `embeddings` of noosphere")
            return None
        self._stack.callback(made.close)
        self.warm = made.warm
        return made

    def _endpoint_embedder(self) -> Embedder:
        from .endpoint import Embeddings, EndpointEmbedder, answer_bytes_max

        given = self._settings
        connection = self._connection("embedder", answer_bytes_max=answer_bytes_max(given.embedder_dimension))
        embeddings = Embeddings(
            connection, given.embedder_model, given.embedder_dimension, shortened=given.embedder_shortened
        )
        return EndpointEmbedder(
            embeddings,
            self._budget("embedder"),
            tokenizer=self._tokenizers.named(ESTIMATE),
            text_tokens_max=given.embedder_text_tokens_max,
            clock=self._clock,
            rng=self._rng,
        )

    def _connection(self, purpose: str, **limits: int) -> Connection:
        from .endpoint import Connection

        given = self._settings
        try:
            connection = Connection(
                url=getattr(given, f"{purpose}_url"),
                key=getattr(given, f"{purpose}_key"),
                timeout_seconds=getattr(given, f"{purpose}_timeout_seconds"),
                **limits,
            )
        except ImportError as error:
            raise ConfigError(f"{purpose}: 'openai' needs the extra `models` of noosphere ({error})") from error
        self._stack.push_async_callback(connection.aclose)
        return connection

    def _budget(self, purpose: str) -> CallBudget:
        from .endpoint import CallBudget

        return CallBudget(
            self._clock,
            calls_max=getattr(self._settings, f"{purpose}_hourly_calls_max"),
            tokens_max=getattr(self._settings, f"{purpose}_hourly_tokens_max"),
            purpose=purpose,
            metrics=self._metrics,
        )


def _nothing() -> None:
    return
