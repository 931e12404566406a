"""Remembers what was made of items: from one context to the next hardly any of them changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..sessions.types import Item
from .candidates import of_item, section_of
from .recipe import Recipe
from .relevance import terms
from .types import Candidate, Form, SectionKind

SESSIONS_MAX = 128
"""Of so many sessions, the last ones asked for; a session has at most 256 items of, usually, 1 KiB."""
_EXTRA_MAX = 512
"""Most texts beside items of which a session's words are remembered."""


class ItemCache:
    """Candidates and words of items, by session, as long as their versions are the same."""

    def __init__(self) -> None:
        self._candidates: OrderedDict[str, dict[tuple[str, Form], Candidate]] = OrderedDict()
        self._terms: dict[str, dict[str, tuple[str, frozenset[str]]]] = {}

    def candidates(
        self, session_id: str, items: Iterable[Item], recipe: Recipe
    ) -> dict[SectionKind, tuple[Candidate, ...]]:
        """Returns the items as candidates, by section; those of sections that the recipe leaves out are left out."""
        known = self._candidates.pop(session_id, {})
        now: dict[tuple[str, Form], Candidate] = {}
        found: dict[SectionKind, list[Candidate]] = {}
        for item in items:
            kind = section_of(item.key)
            rule = recipe.rule(kind)
            if rule is None:
                continue
            key = (item.key, rule.written)
            candidate = known.get(key)
            if candidate is None or candidate.version != item.version:
                candidate = of_item(item, rule.written)
            now[key] = candidate
            found.setdefault(kind, []).append(candidate)
        self._candidates[session_id] = now
        while len(self._candidates) > SESSIONS_MAX:
            self._terms.pop(self._candidates.popitem(last=False)[0], None)
        return {kind: tuple(many) for kind, many in found.items()}

    def terms(self, session_id: str, candidate: Candidate) -> frozenset[str]:
        """Returns the words of a candidate."""
        words = self._terms.setdefault(session_id, {})
        known = words.get(candidate.id)
        if known is None or known[0] != candidate.text:
            if len(words) >= _EXTRA_MAX:
                words.clear()
            known = words[candidate.id] = (candidate.text, terms(candidate.text))
        return known[1]

    def forget(self, session_id: str) -> None:
        """Drops everything of a session that is gone."""
        self._candidates.pop(session_id, None)
        self._terms.pop(session_id, None)
