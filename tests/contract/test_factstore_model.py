"""Fact stores against the simplest thing that could be right: lists, written out loops, and no index."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.factlab import ODD, EmbeddedFactLab, WeaviateFactLab
from tests.support.effort import examples

from noosphere.consistency import NEVER_MS
from noosphere.server.ports.factstore import FactContent, FactFilter, FactKey, TermStatistics

TEXTS = st.sampled_from(ODD)
SCOPES = st.sampled_from(["shared/a", "shared/_", "user/%"])
OWNERS = st.sampled_from(["ada", "ada%", "乌班图"])
TYPES = st.sampled_from(["semantic", "episodic"])
TIMES = st.sampled_from([0, 99, 100, 101, NEVER_MS])
TRUST = st.sampled_from([0.0, 0.5, 1.0])
# Multiples of an eighth are the same in 32 bits; a handful of them makes for ties.
VECTORS = st.tuples(*[st.sampled_from([-1.0, -0.125, 0.0, 0.5])] * 4)
FACTS = st.builds(
    FactContent,
    fact_id=st.sampled_from(["f", "f%", "f_", "系统", "🦊"]),
    version=st.integers(1, 3),
    scope=SCOPES,
    owner=OWNERS,
    memory_type=TYPES,
    trust=TRUST,
    valid_from_ms=TIMES,
    valid_to_ms=TIMES,
    expires_at_ms=TIMES,
    recorded_ms=TIMES,
    subject=st.sampled_from(["", "ubuntu", "*"]),
    predicate=st.sampled_from(["", "likes", ":"]),
    terms=st.lists(TEXTS, max_size=6).map(tuple),
    body=st.binary(max_size=8),
    vector=st.none() | VECTORS,
)
FILTERS = st.builds(
    FactFilter,
    scopes=st.lists(SCOPES, min_size=1, max_size=4).map(tuple),
    owners=st.lists(OWNERS, min_size=1, max_size=4).map(tuple),
    memory_types=st.lists(TYPES, max_size=2).map(tuple),
    trust_min=TRUST,
    alive_at_ms=TIMES,
    valid_after_ms=st.none() | TIMES,
    valid_before_ms=st.none() | TIMES,
    subject=st.sampled_from(["", "ubuntu", "*"]),
    predicate=st.sampled_from(["", "likes", ":"]),
)
STEPS = st.lists(
    st.tuples(st.just("write"), st.lists(FACTS, min_size=1, max_size=12))
    | st.tuples(st.just("remove"), st.lists(st.integers(0, 50), max_size=6))
    | st.tuples(st.just("look"), st.tuples(FILTERS, st.lists(TEXTS, max_size=4), VECTORS, st.integers(1, 8)))
    | st.tuples(st.just("reopen"), st.none())
    | st.tuples(st.just("crash"), st.none()),
    min_size=4,
    max_size=16,
)


Lab = EmbeddedFactLab | WeaviateFactLab


class Naive:
    """A fact store that anybody can check by reading it."""

    def __init__(self) -> None:
        self.facts: dict[FactKey, FactContent] = {}

    def write(self, contents: Sequence[FactContent]) -> None:
        for content in contents:
            self.facts.setdefault(content.key, content)

    def remove(self, keys: Sequence[FactKey]) -> int:
        return sum(self.facts.pop(key, None) is not None for key in keys)

    def left(self, where: FactFilter) -> list[FactContent]:
        return [
            fact
            for key, fact in sorted(self.facts.items())
            if fact.scope in where.scopes
            and fact.owner in where.owners
            and (not where.memory_types or fact.memory_type in where.memory_types)
            and fact.trust >= where.trust_min
            and fact.expires_at_ms > where.alive_at_ms
            and (where.valid_after_ms is None or fact.valid_to_ms > where.valid_after_ms)
            and (where.valid_before_ms is None or fact.valid_from_ms < where.valid_before_ms)
            and where.subject in ("", fact.subject)
            and where.predicate in ("", fact.predicate)
        ]

    def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        left = self.left(where)
        mean = sum(len(fact.terms) for fact in left) / len(left) if left else 0.0
        return TermStatistics(len(left), mean, tuple(sum(term in fact.terms for fact in left) for term in terms))

    def bm25(self, terms: Sequence[str], where: FactFilter) -> dict[FactKey, float]:
        words = sorted(set(terms))
        known = self.statistics(words, where)
        scores: dict[FactKey, float] = {}
        for fact in self.left(where):
            for word, frequency in zip(words, known.frequencies, strict=True):
                if count := fact.terms.count(word):
                    rarity = math.log(1 + (known.versions - frequency + 0.5) / (frequency + 0.5))
                    fixed = 1.2 * (0.25 + 0.75 * len(fact.terms) / known.length_mean)
                    scores[fact.key] = scores.get(fact.key, 0.0) + rarity * 2.2 * count / (count + fixed)
        return scores

    def cosine(self, vector: Sequence[float], where: FactFilter) -> dict[FactKey, float]:
        length = math.hypot(*vector)
        return {
            fact.key: math.fsum(a * b for a, b in zip(vector, fact.vector, strict=True))
            / (length * math.hypot(*fact.vector))
            for fact in self.left(where)
            if length and fact.vector is not None and any(fact.vector)
        }


def check_hits(hits: Sequence[Any], expected: dict[FactKey, float], limit: int) -> None:
    """Checks scores, that nothing better was left out, and the order of equals."""
    assert len(hits) == min(limit, len(expected))
    assert {hit.key: hit.score for hit in hits} == pytest.approx({hit.key: expected[hit.key] for hit in hits}, abs=2e-6)
    assert list(hits) == sorted(hits, key=lambda hit: (-hit.score, hit.key))
    if hits:
        chosen = {hit.key for hit in hits}
        assert all(score <= hits[-1].score + 2e-6 for key, score in expected.items() if key not in chosen)


async def look(lab: Lab, naive: Naive, question: tuple[FactFilter, list[str], Any, int]) -> None:
    where, terms, vector, limit = question
    assert await lab.store.matching(where, None, limit) == tuple(fact.key for fact in naive.left(where))[:limit]
    assert await lab.store.statistics(terms, where) == naive.statistics(terms, where)
    check_hits(await lab.store.by_keywords(terms, where, limit), naive.bm25(terms, where), limit)
    nearest = await lab.store.by_vector(vector, where, limit)
    check_hits(nearest, naive.cosine(vector, where), limit)
    near = await lab.store.near(vector, [hit.key for hit in reversed(nearest)])
    assert near == tuple(hit.score for hit in reversed(nearest))


async def play(lab: Lab, steps: list[tuple[str, Any]]) -> None:
    naive = Naive()
    await lab.open()
    try:
        for name, what in steps:
            if name == "write":
                await lab.store.write(what)
                naive.write(what)
            elif name == "remove":
                held = sorted(naive.facts)
                keys = [held[at % len(held)] for at in what if held]
                assert await lab.store.remove(keys) == naive.remove(keys)
            elif name == "look":
                await look(lab, naive, what)
            elif name == "reopen":
                await lab.reopen()
            else:
                await lab.crash()
        keys = sorted(naive.facts)
        assert await lab.store.read(keys) == tuple(naive.facts[key] for key in keys)
        listed = [key for scope in sorted({key.scope for key in keys}) async for key in lab.store.versions(scope)]
        assert listed == keys
        vectors = sum(fact.vector is not None for fact in naive.facts.values())
        assert (await lab.store.stats())[:2] == (len(keys), vectors)
        assert not lab.fatal
    finally:
        await lab.close()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_any_history_answers_as_the_naive_store_does(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(EmbeddedFactLab(Path(folder)), steps))
