"""Fact stores: what is written is found at once, by words and by meaning, and nothing that a filter hides is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.factlab import DIMENSION, ODD, FactStoreLab, fact, ids, refused, where

from noosphere.consistency import NEVER_MS, Reason
from noosphere.server.ports.factstore import BATCH_MAX, BODY_BYTES_MAX, HITS_MAX, FactKey, FactStore


async def found(store: FactStore, **fields: Any) -> dict[str, list[str]]:
    """What each way of looking finds of facts with the term ``tea`` and a vector."""
    left = where(**fields)
    return {
        "keywords": sorted(ids(await store.by_keywords(["tea"], left, 100))),
        "vector": sorted(ids(await store.by_vector([1.0, 0.0, 0.0, 0.0], left, 100))),
        "matching": sorted(ids(await store.matching(left, None, 100))),
    }


def everywhere(*expected: str) -> dict[str, list[str]]:
    return {way: list(expected) for way in ("keywords", "vector", "matching")}


async def test_what_is_written_is_read_and_found_at_once(fact_lab: FactStoreLab) -> None:
    store = fact_lab.store
    one = fact("one", "tea", "green", "tea", vector=(0.5, 0.25, 0.0, -1.0), subject="ada", predicate="likes")
    await store.write([one, fact("two", "coffee")])
    assert await store.read([FactKey("shared/launch", "two", 1), one.key, FactKey("shared/launch", "one", 2)]) == (
        fact("two", "coffee"),
        one,
        None,
    )
    assert ids(await store.by_keywords(["tea"], where(), 10)) == ["one"]
    assert ids(await store.by_vector([0.5, 0.25, 0.0, -1.0], where(), 10)) == ["one"]


async def test_a_store_that_finds_at_once_whatever_is_written_says_so(fact_lab: FactStoreLab) -> None:
    await fact_lab.store.write([fact("one", "tea")])
    assert await fact_lab.store.watermark() == NEVER_MS


async def test_writing_a_version_again_changes_nothing(fact_lab: FactStoreLab) -> None:
    store = fact_lab.store
    first = fact("one", "tea")
    await store.write([first, fact("one", "coffee")])
    await store.write([fact("one", "juice")])
    assert await store.read([first.key]) == (first,)
    assert await store.by_keywords(["coffee", "juice"], where(), 10) == ()
    assert (await store.stats()).versions == 1


FILTERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("scope", {"scope": "shared/other"}, {"scopes": ("shared/other",)}),
    ("owner", {"owner": "bob"}, {"owners": ("bob",)}),
    ("type", {"memory_type": "episodic"}, {"memory_types": ("episodic", "working")}),
    ("trust", {"trust": 0.75}, {"trust_min": 0.75}),
    ("subject", {"subject": "ubuntu"}, {"subject": "ubuntu"}),
    ("predicate", {"predicate": "likes"}, {"predicate": "likes"}),
    ("valid later", {"valid_from_ms": 200}, {"valid_after_ms": 150}),
    ("valid before", {"valid_to_ms": 50}, {"valid_before_ms": 60}),
]


@pytest.mark.parametrize(("changed", "asked"), [case[1:] for case in FILTERS], ids=[case[0] for case in FILTERS])
async def test_a_filter_leaves_what_it_says_to_every_search(
    fact_lab: FactStoreLab, changed: dict[str, Any], asked: dict[str, Any]
) -> None:
    vector = (1.0, 0.0, 0.0, 0.0)
    plain = fact("plain", "tea", vector=vector, valid_from_ms=100, valid_to_ms=150)
    await fact_lab.store.write([plain, plain._replace(fact_id="special", **changed, **_open_ended(changed))])
    assert await found(fact_lab.store, **asked) == everywhere("special")


def _open_ended(changed: dict[str, Any]) -> dict[str, Any]:
    if "valid_from_ms" in changed:
        return {"valid_to_ms": NEVER_MS}
    return {"valid_from_ms": 0} if "valid_to_ms" in changed else {}


async def test_a_fact_has_ended_from_the_very_millisecond_at_which_it_ends(fact_lab: FactStoreLab) -> None:
    await fact_lab.store.write([fact("one", "tea", vector=(1.0, 0.0, 0.0, 0.0), expires_at_ms=5_000)])
    assert await found(fact_lab.store, alive_at_ms=4_999) == everywhere("one")
    assert await found(fact_lab.store, alive_at_ms=5_000) == everywhere()


async def test_as_of_a_moment_exactly_one_of_two_values_was_so(fact_lab: FactStoreLab) -> None:
    vector = (1.0, 0.0, 0.0, 0.0)
    await fact_lab.store.write(
        [
            fact("old", "tea", vector=vector, valid_from_ms=100, valid_to_ms=200),
            fact("new", "tea", vector=vector, valid_from_ms=200),
        ]
    )
    for moment_ms, expected in ((99, ()), (100, ("old",)), (199, ("old",)), (200, ("new",)), (NEVER_MS - 1, ("new",))):
        as_of = {"valid_after_ms": moment_ms, "valid_before_ms": moment_ms + 1}
        assert await found(fact_lab.store, **as_of) == everywhere(*expected), moment_ms


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
async def test_whatever_a_text_looks_like_it_is_found_by_itself_alone(fact_lab: FactStoreLab, text: str) -> None:
    vector = (1.0, 0.0, 0.0, 0.0)
    named = {"owner": text, "subject": text, "predicate": text, "memory_type": text, "scope": text}
    facts = [fact(f"f{at}", other, vector=vector) for at, other in enumerate(ODD)]
    await fact_lab.store.write([*facts, fact(text, "tea", vector=vector, **named)])
    assert ids(await fact_lab.store.by_keywords([text], where(), 100)) == [f"f{ODD.index(text)}"]
    asked = {"owners": (text,), "scopes": (text,), "memory_types": (text,), "subject": text, "predicate": text}
    assert await found(fact_lab.store, **asked) == everywhere(text)
    assert [key async for key in fact_lab.store.versions(text)] == [FactKey(text, text, 1)]
    assert await fact_lab.store.remove([FactKey(text, text, 1)]) == 1
    assert await found(fact_lab.store, **asked) == everywhere()


async def test_rarer_words_oftener_said_in_shorter_texts_come_first(fact_lab: FactStoreLab) -> None:
    await fact_lab.store.write(
        [
            fact("long", "tea", "a", "b", "c", "d", "e", "f"),
            fact("short", "tea", "a"),
            fact("twice", "tea", "tea"),
            fact("rare", "saffron", "a"),
            fact("both", "saffron", "tea"),
        ]
    )
    hits = await fact_lab.store.by_keywords(["tea", "saffron", "tea"], where(), 10)
    assert ids(hits) == ["both", "rare", "twice", "short", "long"]
    assert await fact_lab.store.by_keywords(["tea", "saffron"], where(), 10) == hits
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_what_a_filter_hides_has_no_part_in_any_score(fact_lab: FactStoreLab) -> None:
    seen = [fact("one", "tea", "a"), fact("two", "saffron", "b", "c")]
    await fact_lab.store.write(seen)
    before = await fact_lab.store.by_keywords(["tea", "saffron"], where(), 10)
    counted = await fact_lab.store.statistics(["tea", "saffron", "none"], where())
    await fact_lab.store.write([fact(f"hidden{at}", "tea", "d", "e", owner="bob") for at in range(20)])
    assert await fact_lab.store.by_keywords(["tea", "saffron"], where(), 10) == before
    assert await fact_lab.store.statistics(["tea", "saffron", "none"], where()) == counted == (2, 2.5, (1, 1, 0))


async def test_equals_are_ordered_by_key_even_where_the_limit_cuts(fact_lab: FactStoreLab) -> None:
    vector = (0.1, 0.2, 0.3, 0.4)
    names = [f"f{at:02}" for at in range(40)]
    await fact_lab.store.write([fact(name, "tea", vector=vector) for name in reversed(names)])
    for limit in (1, 7, 40, 100):
        assert ids(await fact_lab.store.by_keywords(["tea"], where(), limit)) == names[:limit]
        assert ids(await fact_lab.store.by_vector([0.4, 0.3, 0.2, 0.1], where(), limit)) == names[:limit]


async def test_a_vector_of_zeros_is_near_nothing(fact_lab: FactStoreLab) -> None:
    nothing = (0.0,) * DIMENSION
    await fact_lab.store.write([fact("blank", "tea", vector=nothing), fact("none", "tea")])
    assert await fact_lab.store.by_vector([1.0, 0.0, 0.0, 0.0], where(), 10) == ()
    assert await fact_lab.store.by_vector(nothing, where(), 10) == ()
    assert (await fact_lab.store.read([fact("blank").key]))[0] == fact("blank", "tea", vector=nothing)


async def test_how_near_versions_are_is_told_in_the_order_asked_for(fact_lab: FactStoreLab) -> None:
    vectors = {"one": (1.0, 0.0, 0.0, 0.0), "two": (3.0, 4.0, 0.0, 0.0), "back": (-1.0, 0.0, 0.0, 0.0)}
    blank, plain = fact("blank", vector=(0.0,) * DIMENSION), fact("plain", "tea")
    await fact_lab.store.write([*(fact(name, vector=vector) for name, vector in vectors.items()), blank, plain])
    asked = ["back", "nobody", "two", "blank", "one", "plain", "two"]
    near = await fact_lab.store.near((2.0, 0.0, 0.0, 0.0), [fact(name).key for name in asked])
    assert near == (-1.0, None, 0.6, None, 1.0, None, 0.6)
    assert await fact_lab.store.near((2.0, 0.0, 0.0, 0.0), []) == ()
    assert await fact_lab.store.near((0.0,) * DIMENSION, [fact("one").key]) == (None,)


async def test_a_listing_by_pages_has_everything_once_and_in_order(fact_lab: FactStoreLab) -> None:
    made = [
        fact(f"f{at}", scope=scope, version=2) for at in range(12) for scope in ("shared/b", "shared/a", "shared/c")
    ]
    await fact_lab.store.write(made)
    listed: list[FactKey] = []
    left = where(scopes=("shared/b", "shared/a", "shared/b"))
    while page := await fact_lab.store.matching(left, listed[-1] if listed else None, 5):
        listed += page
    assert listed == sorted(content.key for content in made if content.scope != "shared/c")
    assert [key async for key in fact_lab.store.versions("shared/c")] == sorted(
        content.key for content in made if content.scope == "shared/c"
    )


REFUSED_FACTS: list[tuple[dict[str, Any], str]] = [
    ({"fact_id": ""}, "contents[1].fact_id"),
    ({"scope": "x" * 1_025}, "1024"),
    ({"version": 0}, "contents[1].version"),
    ({"owner": ""}, "contents[1].owner"),
    ({"trust": 1.5}, "contents[1].trust"),
    ({"trust": float("nan")}, "contents[1].trust"),
    ({"expires_at_ms": -1}, "contents[1].expires_at_ms"),
    ({"terms": ("tea",) * 4_097}, "4096"),
    ({"terms": ("half \ud83e",)}, "contents[1].terms"),
    ({"body": b"x" * (BODY_BYTES_MAX + 1)}, str(BODY_BYTES_MAX)),
    ({"vector": (1.0,)}, "contents[1].vector"),
    ({"vector": (float("nan"), 0.0, 0.0, 0.0)}, "contents[1].vector"),
    ({"vector": (float("inf"), 0.0, 0.0, 0.0)}, "contents[1].vector"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED_FACTS, ids=range(len(REFUSED_FACTS)))
async def test_a_bad_version_is_refused_by_name_and_nothing_of_its_call_is_written(
    fact_lab: FactStoreLab, fields: dict[str, Any], named: str
) -> None:
    reason = Reason.VALUE_TOO_LARGE if named.isdecimal() else Reason.INVALID_FIELD
    with refused(reason, named):
        await fact_lab.store.write([fact("good", "tea"), fact("bad", "tea")._replace(**fields)])
    assert (await fact_lab.store.stats()).versions == 0
    assert await fact_lab.store.by_keywords(["tea"], where(), 10) == ()


REFUSED_FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"scopes": ()}, "where.scopes"),
    ({"owners": ()}, "where.owners"),
    ({"owners": tuple(f"o{at}" for at in range(BATCH_MAX + 1))}, "where.owners"),
    ({"trust_min": -0.1}, "where.trust_min"),
    ({"alive_at_ms": -1}, "where.alive_at_ms"),
    ({"subject": "\ud83e"}, "where.subject"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED_FILTERS, ids=range(len(REFUSED_FILTERS)))
async def test_a_bad_filter_is_refused_rather_than_taken_for_a_wider_one(
    fact_lab: FactStoreLab, fields: dict[str, Any], named: str
) -> None:
    reason = Reason.VALUE_TOO_LARGE if len(fields.get("owners", ())) > BATCH_MAX else Reason.INVALID_FIELD
    left = where(**fields)
    with refused(reason, named):
        await fact_lab.store.by_keywords(["tea"], left, 10)
    with refused(reason, named):
        await fact_lab.store.by_vector([1.0, 0.0, 0.0, 0.0], left, 10)
    with refused(reason, named):
        await fact_lab.store.matching(left, None, 10)
    with refused(reason, named):
        await fact_lab.store.statistics(["tea"], left)


async def test_calls_beyond_their_limits_are_refused(fact_lab: FactStoreLab) -> None:
    store = fact_lab.store
    many = [fact(f"f{at}") for at in range(BATCH_MAX + 1)]
    with refused(Reason.VALUE_TOO_LARGE, "contents", "257", "256"):
        await store.write(many)
    with refused(Reason.VALUE_TOO_LARGE, "keys", "257", "256"):
        await store.read([content.key for content in many])
    with refused(Reason.VALUE_TOO_LARGE, "keys", "257", "256"):
        await store.remove([content.key for content in many])
    for limit in (0, HITS_MAX + 1):
        with refused(Reason.INVALID_FIELD, "limit", str(limit)):
            await store.by_keywords(["tea"], where(), limit)
    with refused(Reason.INVALID_FIELD, "vector", "3", "4"):
        await store.by_vector([1.0, 0.0, 0.0], where(), 10)
    with refused(Reason.INVALID_FIELD, "vector", "3", "4"):
        await store.near([1.0, 0.0, 0.0], [])
    with refused(Reason.VALUE_TOO_LARGE, "keys", "257", "256"):
        await store.near([1.0, 0.0, 0.0, 0.0], [content.key for content in many])
    with refused(Reason.VALUE_TOO_LARGE, "terms", "4096"):
        await store.by_keywords(["tea"] * 4_097, where(), 10)
