"""Makes the drivers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from ..config import ConfigError, Settings
from ..ports.models import Summariser, Tokenizers
from ..ports.runtime import Clock, SystemClock
from .extractive import ExtractiveSummariser
from .tokenizers import TokenizerPlugin, TokenizerRegistry, installed_plugins


class Models(NamedTuple):
    """The drivers of the model ports.

    Attributes:
        tokenizers: finds tokenizers.
        summariser: makes summaries as configured.
        fallback: makes them when that fails; needs neither model nor network.
        aclose: closes connections.
    """

    tokenizers: Tokenizers
    summariser: Summariser
    fallback: Summariser
    aclose: Callable[[], Awaitable[None]]


def build(
    settings: Settings, *, clock: Clock | None = None, plugins: Iterable[TokenizerPlugin] | None = None
) -> Models:
    """Makes the drivers. Loads vocabularies and packages, so nothing may be served yet; opens no connection.

    Args:
        settings: the configuration.
        clock: the source of time; the machine's by default.
        plugins: tokenizers beside the server's own; those of installed packages by default.

    Raises:
        ConfigError: a plugin cannot be used, or a package that the configuration needs is not installed.
    """
    tokenizers = TokenizerRegistry(installed_plugins() if plugins is None else plugins)
    fallback = ExtractiveSummariser()
    if settings.summariser == "extractive":
        return Models(tokenizers, fallback, fallback, _nothing)
    from .endpoint import CallBudget, Completions, EndpointSummariser

    try:
        completions = Completions(
            url=settings.summariser_url,
            model=settings.summariser_model,
            key=settings.summariser_key,
            timeout_seconds=settings.summariser_timeout_seconds,
            with_schema=settings.summariser_json_schema,
        )
    except ImportError as error:
        raise ConfigError(f"summariser: 'openai' needs the extra `models` of noosphere ({error})") from error
    budget = CallBudget(
        clock or SystemClock(),
        calls_max=settings.summariser_hourly_calls_max,
        tokens_max=settings.summariser_hourly_tokens_max,
    )
    summariser = EndpointSummariser(completions, budget, input_tokens_max=settings.summariser_input_tokens_max)
    return Models(tokenizers, summariser, fallback, completions.aclose)


async def _nothing() -> None:
    return
