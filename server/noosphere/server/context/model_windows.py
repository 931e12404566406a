"""How much the models of the common providers can read, in tokens; for requests that name a model and no window."""

from __future__ import annotations

from collections.abc import Mapping

# The longest prefix decides. From the providers' model pages; a request's window_tokens overrides them.
MODEL_WINDOWS: Mapping[str, int] = {
    "gpt-5": 400_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "chatgpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-3.5": 16_385,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "gpt-oss": 131_072,
    "claude-": 200_000,
}


def window_of(model: str) -> int:
    """Returns a model's window in tokens, 0 if it is not known."""
    known = [prefix for prefix in MODEL_WINDOWS if model.lower().startswith(prefix)]
    return MODEL_WINDOWS[max(known, key=len)] if known else 0
