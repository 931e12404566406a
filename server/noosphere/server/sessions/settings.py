"""What a session may be like: bounds of its settings, title and labels."""

from __future__ import annotations

from collections.abc import Mapping

from noosphere.consistency import Refusal, invalid, too_large

from ..ports.models import Tokenizers
from .types import DAY_MS, SessionSettings

TITLE_BYTES_MAX = 256
LABELS_MAX = 16
LABEL_NAME_BYTES_MAX = 64
LABEL_VALUE_BYTES_MAX = 256
AGE_MS_MAX = 3650 * DAY_MS

_BOUNDS = {
    "window_turns": (1, 100),
    "window_steps": (1, 1_000),
    "tool_result_tokens_max": (16, 16_384),
    "checkpoints_max": (1, 1_000),
    "checkpoint_bytes_max": (1024, 1024 * 1024 * 1024),
    "grace_turns": (1, 100),
}
_AGES = {
    "checkpoint_age_max": "checkpoint_age_ms_max",
    "idle_timeout": "idle_timeout_ms",
    "purge_after": "purge_after_ms",
}


def check_settings(settings: SessionSettings, tokenizers: Tokenizers) -> None:
    """Checks every bound.

    Raises:
        Refusal: INVALID_FIELD, naming field, value and limit, or listing the known vocabularies.
    """
    for name, (low, high) in _BOUNDS.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise invalid(f"settings.{name}", f"{value} is not between {low} and {high}")
    for name, attribute in _AGES.items():
        value = getattr(settings, attribute)
        if not 1_000 <= value <= AGE_MS_MAX:
            raise invalid(f"settings.{name}", f"{value} ms is not between 1000 and {AGE_MS_MAX} ms")
    try:
        tokenizers.named(settings.tokenizer)
    except Refusal as refusal:
        # It says which are known, but not which field of which call asked for it.
        raise invalid("settings.tokenizer", refusal.message.removeprefix("tokenizer: ")) from None


def check_title(title: str) -> None:
    """Checks a title.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    if (size := len(title.encode())) > TITLE_BYTES_MAX:
        raise too_large("title", size, TITLE_BYTES_MAX)


def check_labels(labels: Mapping[str, str], field: str = "labels") -> None:
    """Checks labels.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if len(labels) > LABELS_MAX:
        raise too_large(field, len(labels), LABELS_MAX, "entries")
    for name, value in labels.items():
        if not name:
            raise invalid(f"{field} name", "must not be empty")
        if (size := len(name.encode())) > LABEL_NAME_BYTES_MAX:
            raise too_large(f"{field} name", size, LABEL_NAME_BYTES_MAX)
        if (size := len(value.encode())) > LABEL_VALUE_BYTES_MAX:
            raise too_large(f"{field}[{name!r}]", size, LABEL_VALUE_BYTES_MAX)
