"""Remembers what was made of items: from one context to the next hardly any of them changes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from ..sessions.types import Item
from ..text import distinct_terms
from .candidates import of_item, section_of
from .recipe import Recipe
from .types import Candidate, Form, SectionKind

SESSIONS_MAX = 128
"""Of so many sessions, the last ones asked for; a session has at most 256 items of, usually, 1 KiB."""
_WEIGHT_MAX = 4 * 1024 * 1024
"""About so many bytes of texts and words are remembered of a session; then it begins anew."""
_WORD_WEIGHT = 128
_STEP_CHARS = 4_096


class ItemCache:
    """Candidates and words of items, by session, as long as their versions are the same."""

    def __init__(self) -> None:
        self._candidates: OrderedDict[str, dict[tuple[str, Form], Candidate]] = OrderedDict()
        self._terms: dict[str, _Words] = {}

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

    async def terms(self, session_id: str, candidates: Iterable[Candidate]) -> list[frozenset[str]]:
        """Returns the words of each candidate; others run while those of many are found."""
        found = []
        read_chars = 0
        for candidate in candidates:
            # A session that is gone, perhaps while others ran, leaves nothing here.
            words = self._terms.setdefault(session_id, _Words()) if session_id in self._candidates else _Words()
            known = words.by_id.get(candidate.id)
            if known is None or known[0] != candidate.text:
                known = (candidate.text, distinct_terms(candidate.text))
                words.keep(candidate.id, known)
                read_chars += len(candidate.text)
            found.append(known[1])
            if read_chars >= _STEP_CHARS:
                read_chars = 0
                await asyncio.sleep(0)
        return found

    @property
    def weight(self) -> int:
        """About how many bytes of texts and their words are remembered."""
        return sum(words.weight for words in self._terms.values())

    def forget(self, session_id: str) -> None:
        """Drops everything of a session that is gone."""
        self._candidates.pop(session_id, None)
        self._terms.pop(session_id, None)

    def forget_all(self) -> None:
        """Drops everything."""
        self._candidates.clear()
        self._terms.clear()


class _Words:
    """The words of one session's texts, as much as there is room for."""

    def __init__(self) -> None:
        self.by_id: dict[str, tuple[str, frozenset[str]]] = {}
        self.weight = 0

    def keep(self, candidate_id: str, known: tuple[str, frozenset[str]]) -> None:
        weight = len(known[0]) + _WORD_WEIGHT * len(known[1])
        if self.weight + weight > _WEIGHT_MAX:
            self.by_id.clear()
            self.weight = 0
        if weight <= _WEIGHT_MAX:
            self.weight += weight
            self.by_id[candidate_id] = known
