"""The embedded fact store and Weaviate: the same histories give the same answers, in the same order."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.factlab import EmbeddedFactLab, WeaviateFactLab
from tests.contract.test_factstore_model import FACTS, FILTERS, STEPS, TEXTS, VECTORS, play
from tests.support.effort import examples
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.server.facts.ranking import Statistics, indexed, question, rank
from noosphere.server.ports.factstore import FactContent, FactFilter, FactStore, RawHit

pytestmark = needs_weaviate

CONTENTS = st.lists(FACTS, min_size=1, max_size=40)
QUESTIONS = st.tuples(FILTERS, st.lists(TEXTS, min_size=1, max_size=4), VECTORS, st.integers(1, 8))
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=SLOW)
@given(STEPS)
def test_any_history_answers_as_the_naive_store_does(
    weaviate_server: WeaviateProcess, steps: list[tuple[str, Any]]
) -> None:
    lab = WeaviateFactLab(weaviate_server)
    try:
        # A crash takes 10 s; test_factstore_lasting has one.
        asyncio.run(play(lab, [step for step in steps if step[0] != "crash"]))
    finally:
        lab.drop()


@settings(max_examples=examples(20), deadline=None, suppress_health_check=SLOW)
@given(CONTENTS, st.lists(QUESTIONS, min_size=1, max_size=6))
def test_both_rank_a_small_corpus_alike(
    weaviate_server: WeaviateProcess,
    contents: list[FactContent],
    questions: list[tuple[FactFilter, list[str], tuple[float, ...], int]],
) -> None:
    async def compare() -> None:
        with tempfile.TemporaryDirectory() as folder:
            embedded = EmbeddedFactLab(Path(folder))
            for one in (embedded, lab):
                await one.open()
                await one.store.write(contents)
            for where, terms, vector, limit in questions:
                expected = await answers(embedded.store, where, terms, vector, limit)
                assert await answers(lab.store, where, terms, vector, limit) == expected
            for one in (embedded, lab):
                await one.close()

    lab = WeaviateFactLab(weaviate_server)
    try:
        asyncio.run(compare())
    finally:
        lab.drop()


async def answers(
    store: FactStore, where: FactFilter, terms: Sequence[str], vector: Sequence[float], limit: int
) -> dict[str, Any]:
    """What a store answers to a question, with scores to six digits, and how our ranking orders that."""
    by_words = await store.by_keywords(terms, where, limit)
    by_meaning = await store.by_vector(vector, where, limit)
    known = await store.statistics(terms, where)
    keys = sorted({hit.key for hit in (*by_words, *by_meaning)})
    found = [content for content in await store.read(keys) if content is not None]
    near = dict(zip(keys, await store.near(vector, keys), strict=True))
    asked = question(" ".join(terms))
    ranked = rank(
        asked,
        [indexed(str(content.key), " ".join(content.terms), content.terms) for content in found],
        similarities=[near[content.key] for content in found],
        known=Statistics(known.versions, known.length_mean, dict(zip(terms, known.frequencies, strict=True))),
    )
    return {
        "by_words": _rounded(by_words),
        "by_meaning": _rounded(by_meaning),
        "known": known,
        "read": found,
        "near": near,
        "ranked": [(one.at, round(one.score, 6)) for one in ranked],
        "matching": await store.matching(where, None, limit),
    }


def _rounded(hits: Sequence[RawHit]) -> list[tuple[Any, float]]:
    return [(hit.key, round(hit.score, 6)) for hit in hits]
