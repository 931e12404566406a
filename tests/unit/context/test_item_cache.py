"""What is remembered of texts has a limit, and goes with its session; finding words lets others run."""

from __future__ import annotations

import asyncio

from noosphere.server.context.candidates import Evidence, of_evidence
from noosphere.server.context.item_cache import ItemCache
from noosphere.server.context.recipe import DEFAULT_RECIPE
from noosphere.server.context.types import Candidate, SectionKind
from noosphere.server.text import distinct_terms as terms

MIB = 1024 * 1024


def texts(count: int, words: int, start: int = 0) -> list[Candidate]:
    """Returns evidence, each with words of its own."""
    return [
        of_evidence(
            Evidence(f"e{number}", " ".join(f"w{number}x{word}" for word in range(words))), SectionKind.EVIDENCE
        )
        for number in range(start, start + count)
    ]


def cache_of(*sessions: str) -> ItemCache:
    """Returns a cache that knows sessions."""
    cache = ItemCache()
    for session_id in sessions:
        cache.candidates(session_id, (), DEFAULT_RECIPE)
    return cache


async def test_words_are_those_of_the_present_text() -> None:
    cache = cache_of("s")
    (one,) = texts(1, 3)
    assert await cache.terms("s", [one]) == [terms(one.text)]
    changed = one._replace(text="something else")
    assert await cache.terms("s", [changed, one]) == [terms("something else"), terms(one.text)]


async def test_large_texts_do_not_pile_up() -> None:
    cache = cache_of("s")
    for start in range(0, 400, 100):
        await cache.terms("s", texts(100, 500, start))
        assert 0 < cache.weight <= 4 * MIB
    await cache.terms("s", [of_evidence(Evidence("huge", "x " * 4 * MIB), SectionKind.EVIDENCE)])
    assert cache.weight <= 4 * MIB


async def test_a_session_that_is_forgotten_meanwhile_leaves_nothing() -> None:
    cache = cache_of("s", "other")
    many = texts(50, 500)
    finding = asyncio.create_task(cache.terms("s", many))
    await asyncio.sleep(0)
    assert cache.weight > 0
    cache.forget("s")
    assert await finding == [terms(one.text) for one in many]
    assert cache.weight == 0


async def test_others_run_while_the_words_of_many_texts_are_found() -> None:
    cache = cache_of("s")
    finding = asyncio.create_task(cache.terms("s", texts(64, 1_000)))
    turns = 0
    while not finding.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 64


def test_the_words_of_a_text_without_end_are_found_in_its_beginning() -> None:
    assert terms("new " * 10_000 + "finally") == {"new"}
    assert terms("firstly " + "new " * 10_000) == {"first", "new"}
