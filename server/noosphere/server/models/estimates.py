"""What counts for models whose vocabulary is not known: another one's count, with a safety factor."""

from __future__ import annotations

from ..ports.models import Tokenizer

# Of o200k_base. Measured against the vocabularies of Claude 2, Llama 3, DeepSeek, Qwen 3 and Mistral on English,
# code, JSON and Chinese: 0.78 to 1.41 times its counts (docs/models.md).
FACTOR_PERCENT = 140


class EstimatedTokenizer:
    """Counts with another vocabulary and adds a share, so that a budget holds for one that is not known.

    Attributes:
        name: its name.
    """

    name: str
    exact = False

    def __init__(self, name: str, base: Tokenizer, factor_percent: int = FACTOR_PERCENT) -> None:
        if factor_percent < 100:
            raise ValueError(f"factor_percent: {factor_percent} is under 100, which would be no upper estimate")
        self.name = name
        self._base = base
        self._percent = factor_percent

    def count(self, text: str) -> int:
        """Returns the base's count times the factor, rounded up."""
        return -(-self._base.count(text) * self._percent // 100)

    def cut(self, text: str, tokens_max: int) -> str:
        """Returns the longest beginning whose estimate is at most ``tokens_max``."""
        return self._base.cut(text, max(0, tokens_max) * 100 // self._percent)
