"""Names, numbers and ids that later steps may need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...ports.models import SourceMessage
from .speech import MESSAGE_CHARS_MAX

ENTITY_CHARS_MAX = 80
_CONSIDERED_MAX = 2_000
_TOOL_WEIGHT = 0.25

# Every run is bounded, so that the time grows with the text and not with its square.
_PATTERNS = re.compile(
    r"""
    https?://[^\s"'<>）】」]{1,80}
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}
    | `[^`\n]{2,60}`
    | \d{4}-\d\d-\d\d(?:[T\s]\d\d:\d\d(?::\d\d)?)?
    | \d{4}年\d{1,2}月(?:\d{1,2}[日号])? | \d{1,2}月\d{1,2}[日号]
    | \b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s\d{1,2}(?:st|nd|rd|th)?(?:,?\s\d{4})?\b
    | [$€£¥]\s?\d[\d,]*(?:\.\d+)?(?:\s?[kKmM]\b)?
    | \b\d[\d,]*(?:\.\d+)?\s?(?:%|(?:USD|EUR|GBP|CNY|dollars|euros|ms|[KMGT]i?B|kg|km|hours?|days?|minutes?)\b
        |元|美元|万元|亿元|公里|小时|分钟|天)
    | (?<![\w./-])(?:\.{0,2}/)?(?:[\w.-]{1,64}/){1,16}[\w.-]{1,64}
    | (?<![\w-])[\w-]{1,64}\.(?:py|js|ts|go|rs|java|md|json|toml|ya?ml|sql|csv|txt|sh|proto|html)\b
    | \b(?=[A-Za-z0-9_-]{0,64}\d)(?=[A-Za-z0-9_-]{0,64}[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?\b
    | \b[A-Za-z]+(?:_[A-Za-z]+)+\b | \b[a-z]+(?:[A-Z][a-z]+)+\b | \b(?:[A-Z][a-z]+){2,}\b
    | \b[A-Z]{2,6}\b | \b\d{1,2}:\d\d\b | \b\d{4,}\b
    | 《[^》\n]{1,40}》 | 「[^」\n]{1,40}」 | “[^”\n]{2,16}”
    | \b[A-Z][a-z]+(?:\s(?:[A-Z][a-z]+|[A-Z]\.))+
    | (?<=[a-z,]\s)[A-Z][a-z]{2,}\b
    """,
    re.VERBOSE,
)
_COMMON = re.compile(
    r"am|ai|https?|id|json|llm|ok|okay|pm|tbd|todo"
    r"|actually|also|and|but|dear|hello|hey|hi|no|oh|please|so|sure|thanks?|the|well|wow|yeah|yes"
)


def find_entities(messages: Sequence[SourceMessage], earlier: Sequence[str]) -> list[str]:
    """Returns what may be needed by name, best first: what was said often and lately, and not by tools alone.

    Args:
        messages: in order.
        earlier: the entities of an earlier summary, best first.
    """
    scores: dict[str, float] = {}
    shown: dict[str, str] = {}

    def note(entity: str, score: float) -> None:
        name = entity.casefold()
        if name in scores:
            scores[name] += score
        elif len(scores) < _CONSIDERED_MAX:
            scores[name], shown[name] = score, entity

    for rank, entity in enumerate(earlier):
        note(entity, 1.0 - rank / (2 * len(earlier)))
    # Newest first, so that the limit leaves out what is oldest.
    for age, message in enumerate(reversed(messages)):
        weight = (_TOOL_WEIGHT if message.role == "tool" else 1.0) * (0.5 + 0.5 / (1 + age / 8))
        for entity in dict.fromkeys(_entities(message.text[:MESSAGE_CHARS_MAX])):
            note(entity, weight)
    return [shown[name] for name in sorted(scores, key=lambda name: (-scores[name], name))]


def _entities(text: str) -> Iterator[str]:
    for match in _PATTERNS.finditer(text):
        after = text[match.end() : match.end() + 2]
        # What stands before a colon is a label or a field's name; its value is what may be needed.
        if after == '":' or (after[:1] in (":", "：") and match.group()[:1].isupper() and " " in match.group()):
            continue
        entity = match.group().strip("`“”「」,.;:")
        first, _, rest = entity.partition(" ")
        if _COMMON.fullmatch(first.casefold()):
            entity = rest
        if 1 < len(entity) <= ENTITY_CHARS_MAX and not _COMMON.fullmatch(entity.casefold()):
            yield entity
