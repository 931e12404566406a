"""Which tokenizer counts for which name and model, and what plugins may do."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from noosphere.consistency.errors import Reason, Refusal
from noosphere.server.config import ConfigError
from noosphere.server.models.tokenizers import TokenizerPlugin, TokenizerRegistry, installed_plugins


class Words:
    """A user's tokenizer: a word is a token."""

    exact = True

    def __init__(self, name: str = "words") -> None:
        self.name = name

    def count(self, text: str) -> int:
        return len(text.split())

    def cut(self, text: str, tokens_max: int) -> str:
        return " ".join(text.split()[:tokens_max])


def plugin() -> TokenizerPlugin:
    return TokenizerPlugin(Words(), ("claude-", "GPT-4o-mini"))


def broken() -> TokenizerPlugin:
    raise OSError("no vocabulary file")


def other() -> object:
    return Words()


@pytest.fixture(scope="module")
def registry() -> TokenizerRegistry:
    return TokenizerRegistry()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("O1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-32k-0613", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("text-embedding-3-large", "cl100k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("ft:gpt-3.5-turbo:acme::abc", "cl100k_base"),
        ("gpt-oss-120b", "o200k_base"),
    ],
)
def test_the_longest_prefix_decides(registry: TokenizerRegistry, model: str, name: str) -> None:
    chosen = registry.for_model(model)
    assert (chosen.tokenizer.name, chosen.tokenizer.exact, chosen.fallback) == (name, True, False)


@pytest.mark.parametrize("model", ["", "claude-sonnet-4", "llama-3-70b", "o1x", "gpt-4q", "gpt-6", "my-gpt-4o"])
def test_an_unknown_model_gets_the_marked_estimate(registry: TokenizerRegistry, model: str) -> None:
    chosen = registry.for_model(model)
    assert (chosen.tokenizer.name, chosen.tokenizer.exact, chosen.fallback) == ("estimate", False, True)


def test_every_name_is_found_by_its_name(registry: TokenizerRegistry) -> None:
    assert registry.names == ("cl100k_base", "estimate", "o200k_base")
    assert [registry.named(name).name for name in registry.names] == list(registry.names)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("p50k_base", "'p50k_base'"), ("", "''"), ("x" * 1000, "'" + "x" * 64 + "…'")],
    ids=["other", "empty", "long"],
)
def test_an_unknown_name_is_refused_with_the_known_ones(registry: TokenizerRegistry, name: str, shown: str) -> None:
    with pytest.raises(Refusal) as caught:
        registry.named(name)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.message == f"tokenizer: {shown} is unknown; known are cl100k_base, estimate, o200k_base"


def test_a_plugin_adds_a_name_and_comes_before_our_models() -> None:
    registry = TokenizerRegistry([plugin()])
    assert registry.named("words").count("one two") == 2
    assert registry.for_model("claude-sonnet-4").tokenizer.name == "words"
    assert registry.for_model("gpt-4o-mini").tokenizer.name == "words"
    assert registry.for_model("gpt-4o").tokenizer.name == "o200k_base"


@pytest.mark.parametrize(
    ("name", "problem"), [("o200k_base", "is taken"), ("", "has not 1 to 64"), ("x" * 65, "has not")]
)
def test_a_plugin_may_not_take_a_name(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TokenizerRegistry([TokenizerPlugin(Words(name))])


def test_installed_plugins_are_loaded_by_their_entry_points() -> None:
    loaded = installed_plugins([_point("plugin")])
    assert [p.tokenizer.name for p in loaded] == ["words"]
    assert installed_plugins() == ()


@pytest.mark.parametrize(
    ("function", "problem"),
    [("broken", "OSError: no vocabulary file"), ("other", "returned Words, not TokenizerPlugin"), ("none", "none")],
)
def test_a_bad_plugin_is_one_line_that_names_it(function: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        installed_plugins([_point(function)])
    assert f"tokenizer plugin mine ({__name__}:{function})" in str(caught.value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def _point(function: str) -> EntryPoint:
    return EntryPoint("mine", f"{__name__}:{function}", "noosphere.tokenizers")
