"""Which tokenizer counts for which vocabulary and model, and how others are added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from noosphere.consistency.errors import invalid

from ..config import ConfigError
from ..ports.models import ChosenTokenizer, Tokenizer
from .estimates import EstimatedTokenizer
from .vocabularies import Vocabulary

ENTRY_POINTS = "noosphere.tokenizers"
DEFAULT = "o200k_base"
ESTIMATE = "estimate"
NAME_CHARACTERS_MAX = 64

# The longest prefix decides. One that ends in a letter or digit only matches whole words: "o1" is not in "o1x".
MODELS: Mapping[str, str] = {
    "gpt-5": "o200k_base",
    "gpt-5.": "o200k_base",
    "gpt-4.5": "o200k_base",
    "gpt-4.1": "o200k_base",
    "gpt-4o": "o200k_base",
    "chatgpt-4o": "o200k_base",
    "o1": "o200k_base",
    "o3": "o200k_base",
    "o4": "o200k_base",
    # Their own vocabulary differs by special tokens only, and text has none.
    "gpt-oss": "o200k_base",
    "gpt-4": "cl100k_base",
    "gpt-3.5": "cl100k_base",
    "gpt-35": "cl100k_base",
    "text-embedding-3": "cl100k_base",
    "text-embedding-ada-002": "cl100k_base",
}


class TokenizerPlugin(NamedTuple):
    """What a package adds through the entry point group ``noosphere.tokenizers``.

    The entry point names a function without arguments that returns one of these. It is called once, before the
    server answers calls, and may take its time; afterwards ``count`` and ``cut`` run on the event loop.

    Attributes:
        tokenizer: counts tokens; its name must be new, at most 64 characters.
        models: prefixes of the models that it counts for; they come before the server's own.
    """

    tokenizer: Tokenizer
    models: tuple[str, ...] = ()


class TokenizerRegistry:
    """The tokenizers of a server: the bundled vocabularies, the estimate, and what plugins add."""

    def __init__(self, plugins: Iterable[TokenizerPlugin] = ()) -> None:
        """Loads the bundled vocabularies, which takes 0.3 s once in a process.

        Args:
            plugins: what is added.

        Raises:
            ConfigError: a plugin's tokenizer has a name that is taken or no name.
        """
        self._named: dict[str, Tokenizer] = {name: _bundled(name) for name in sorted(set(MODELS.values()))}
        self._named[ESTIMATE] = EstimatedTokenizer(ESTIMATE, self._named[DEFAULT])
        prefixes = dict(MODELS)
        for plugin in plugins:
            name = plugin.tokenizer.name
            if not 1 <= len(name) <= NAME_CHARACTERS_MAX or name in self._named:
                problem = "is taken" if name in self._named else f"has not 1 to {NAME_CHARACTERS_MAX} characters"
                raise ConfigError(f"tokenizer plugin: name {name[:80]!r} {problem}")
            self._named[name] = plugin.tokenizer
            prefixes |= {prefix.lower(): name for prefix in plugin.models if prefix}
        self._prefixes = tuple(sorted(prefixes.items(), key=lambda entry: (-len(entry[0]), entry[0])))

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._named))

    def named(self, name: str) -> Tokenizer:
        """Returns a vocabulary's tokenizer.

        Raises:
            Refusal: INVALID_FIELD, listing the known names.
        """
        found = self._named.get(name)
        if found is None:
            shown = name if len(name) <= NAME_CHARACTERS_MAX else name[:NAME_CHARACTERS_MAX] + "…"
            raise invalid("tokenizer", f"{shown!r} is unknown; known are {', '.join(self.names)}")
        return found

    def for_model(self, model: str) -> ChosenTokenizer:
        """Returns the tokenizer of a model, or the estimate, marked as a fallback, if its vocabulary is not known.

        Letter case, a provider's name before a slash, and ``ft:`` before a tuned model do not matter.
        """
        bare = model.lower().rpartition("/")[2].removeprefix("ft:")
        for prefix, name in self._prefixes:
            if _matches(bare, prefix):
                return ChosenTokenizer(self._named[name], False)
        return ChosenTokenizer(self._named[ESTIMATE], True)


def _matches(model: str, prefix: str) -> bool:
    whole = not prefix[-1].isalnum() or not model[len(prefix) : len(prefix) + 1].isalnum()
    return whole and model.startswith(prefix)


def installed_plugins(points: Iterable[EntryPoint] | None = None) -> tuple[TokenizerPlugin, ...]:
    """Loads what installed packages add.

    Args:
        points: the entry points; those of the group ``noosphere.tokenizers`` by default.

    Raises:
        ConfigError: one cannot be loaded, or is not what it should be.
    """
    plugins = []
    for point in sorted(entry_points(group=ENTRY_POINTS) if points is None else points, key=lambda point: point.name):
        try:
            make: Callable[[], object] = point.load()
            plugin = make()
        except Exception as error:
            raise ConfigError(
                f"tokenizer plugin {point.name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(plugin, TokenizerPlugin):
            raise ConfigError(
                f"tokenizer plugin {point.name} ({point.value}) returned {type(plugin).__name__}, not TokenizerPlugin"
            )
        plugins.append(plugin)
    return tuple(plugins)


_loaded: dict[str, Vocabulary] = {}


def _bundled(name: str) -> Vocabulary:
    # Shared: a process may open many servers, and a vocabulary never changes.
    if name not in _loaded:
        _loaded[name] = Vocabulary(name)
    return _loaded[name]
