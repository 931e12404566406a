"""Claims that begin with their verb, as agents note them of whom they work for: "Lives in Oslo"."""

from __future__ import annotations

import re

_BEGINS = re.compile(
    r"^(?:Lives (?:in|at|near) |Works (?:at|for|as|in) |Studies (?:at|in) |Was born "
    r"|Is (?:allergic to|called|divorced|from|married to|named|vegan|vegetarian|\d+ years)\b"
    # As nouns these come before "of".
    r"|(?:Dislikes|Enjoys|Hates|Likes|Loves|Owns|Prefers|Speaks) (?!of\b))"
)
# What has another verb may be about what the first words name: "Works in progress are late".
_HAS_SUBJECT = re.compile(r" (?:is|are|was|were|has|have|had|do|does|did|can|will) ")


def with_subject(text: str) -> str:
    """Returns a claim with the subject that it leaves out, which is the user; any other one as it is."""
    begins = _BEGINS.match(text)
    if begins is None or _HAS_SUBJECT.search(f"{text[begins.end() - 1 :]} "):
        return text
    return f"The user {text[0].lower()}{text[1:]}"
