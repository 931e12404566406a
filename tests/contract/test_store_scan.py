"""Scans: order, bounds, direction, pages, and any text as a name."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.build import NS, bury, commit, get, keys, logged, put, reap, remember, uuid, write
from tests.contract.lab import StoreLab
from tests.support.effort import examples

from noosphere.consistency import NEVER_MS
from noosphere.server.ports.store import Committed, Fence, KeyCheck, NamespaceRef, StoredEntry

AWKWARD = [
    *"_%*-|:{}'\"\\?#~0", "a_b", "a%b", "a*", "a-b", "a|b", "a:b", "{a}", "a{b}c", "a b", "[a]", "d/e/e/p/_/p/a/t/h",
    "\u00e4", "a\u0308", "Ж", "日本", "日本語", "한국", "🦊", "\ufffd", "\U0010ffff",
]  # fmt: skip
"""Wildcards, separators and escapes of SQL, Redis and shells; composed and decomposed; beyond the first plane."""


async def test_keys_order_by_code_point_in_both_directions(lab: StoreLab) -> None:
    await write(lab.store, *(put(k) for k in AWKWARD))
    assert await keys(lab.store) == sorted(AWKWARD)
    assert await keys(lab.store, reverse=True) == sorted(AWKWARD, reverse=True)
    await lab.reopen()
    assert await keys(lab.store) == sorted(AWKWARD)


@pytest.mark.parametrize("name", AWKWARD)
async def test_every_verb_takes_a_name_literally(lab: StoreLab, name: str) -> None:
    """Around each awkward name lie keys that it would match if any part of it were a pattern."""
    collection = name.replace("/", "") + "/"
    inside = collection + name.replace("/", ".")
    neighbours = ["axb/k", "aXb", "zz", collection[:-1] + "0", collection[:-1] + ".", "x" + collection + "y"]
    neighbours = [n for n in dict.fromkeys(neighbours) if n not in (inside, name) and not n.startswith(collection)]
    namespace = NamespaceRef(f"shared/{collection[:-1]}")
    near = NamespaceRef("shared/axb")
    await write(lab.store, *(put(n, b"near") for n in neighbours), namespace=namespace)
    await write(lab.store, put("k"), namespace=near)
    request = remember(uuid(name))
    first = await write(lab.store, put(inside, b"here"), namespace=namespace, request=request, fences=(Fence(name, 3),))
    assert await keys(lab.store, collection, namespace) == [inside]
    assert await keys(lab.store, collection, namespace, reverse=True) == [inside]
    read = await lab.store.read(namespace, (inside,), request=request.ref, locks=(name, "axb"))
    assert read.entries == (StoredEntry(inside, first, b"here", NEVER_MS),)
    assert read.remembered is not None
    assert read.fences == ((name, 3), ("axb", 0))
    assert (await lab.store.read(namespace, (), request=uuid("axb"))).remembered is None
    assert (await lab.store.scan(namespace, collection, limit=1)).stamps == (first, first)
    assert [n.ref for n in await lab.store.namespaces(namespace.name, "", 1)] == [namespace]
    assert [c.key for b in await logged(lab.store, first - 1, namespace) for c in b.changes] == [inside]
    await write(lab.store, bury(inside, due_ms=5), namespace=namespace, checks=[KeyCheck(inside, first, True)])
    assert await lab.store.due(namespace, 5, 10) == (inside,)
    await lab.reopen()
    await write(lab.store, reap(inside), namespace=namespace, checks=[KeyCheck(inside, first + 1, False)])
    assert await keys(lab.store, "", namespace) == sorted(neighbours)
    await lab.store.drop(namespace, None)
    assert await keys(lab.store, "", near) == ["k"]


async def test_a_collection_holds_what_is_below_it_and_nothing_beside_it(lab: StoreLab) -> None:
    names = ["a", "a-", "a.", "a/b", "a/b/c", "a/b/c/d", "a/c", "a0", "aa/b", "b/a/b"]
    await write(lab.store, *(put(n) for n in names))
    assert await keys(lab.store, "a/") == ["a/b", "a/b/c", "a/b/c/d", "a/c"]
    assert await keys(lab.store, "a/b/") == ["a/b/c", "a/b/c/d"]
    assert await keys(lab.store, "b/") == ["b/a/b"]
    assert await keys(lab.store, "c/") == []
    assert await keys(lab.store, "") == sorted(names)


async def test_after_and_before_are_exclusive_and_may_be_absent_keys(lab: StoreLab) -> None:
    await write(lab.store, *(put(f"c/{i}") for i in range(9)), put("b/0"), put("d/0"))
    assert await keys(lab.store, "c/", after="c/3", before="c/7") == ["c/4", "c/5", "c/6"]
    assert await keys(lab.store, "c/", after="c/3", before="c/7", reverse=True) == ["c/6", "c/5", "c/4"]
    assert await keys(lab.store, "c/", after="c/3x", before="c/6x") == ["c/4", "c/5", "c/6"]
    assert await keys(lab.store, "c/", after="a", before="z") == [f"c/{i}" for i in range(9)]
    assert await keys(lab.store, "c/", after="d") == []
    assert await keys(lab.store, "c/", before="b") == []
    assert await keys(lab.store, "c/", after="c/5", before="c/4") == []
    assert await keys(lab.store, "", after="c/7") == ["c/8", "d/0"]
    assert await keys(lab.store, "", before="c/1", reverse=True) == ["c/0", "b/0"]


async def test_a_page_says_whether_there_is_more_and_includes_tombstones(lab: StoreLab) -> None:
    await write(lab.store, *(put(f"k{i}") for i in range(5)))
    await write(lab.store, bury("k1"))
    page = await lab.store.scan(NS, "", limit=3)
    assert ([e.key for e in page.entries], page.more) == (["k0", "k1", "k2"], True)
    assert page.entries[1].live_until_ms == 0
    page = await lab.store.scan(NS, "", limit=2, after="k2")
    assert ([e.key for e in page.entries], page.more) == (["k3", "k4"], False)


async def test_a_page_is_one_state_with_its_head(lab: StoreLab) -> None:
    revision = await write(lab.store, put("a/x"), put("b/y"))
    page = await lab.store.scan(NS, "a/", limit=10)
    assert page.view.head == revision
    assert page.stamps == (revision, revision)
    revision2 = await write(lab.store, put("b/z"))
    page = await lab.store.scan(NS, "a/", limit=10)
    assert page.view.head == revision2
    assert page.stamps == (revision, revision)


async def test_a_paged_scan_with_more_keys_than_any_page_holds(lab: StoreLab) -> None:
    expected = [f"k{i:05}" for i in range(5_000)]
    for start in range(0, 5_000, 500):
        await write(lab.store, *(put(k, b"") for k in expected[start : start + 500]))
    for reverse in (False, True):
        found: list[str] = []
        after: str | None = None
        before: str | None = None
        while True:
            page = await lab.store.scan(NS, "", after=after, before=before, limit=1_000_000, reverse=reverse)
            found += [e.key for e in page.entries]
            if not page.more:
                break
            assert page.entries, "a page that says there is more must move on"
            after, before = (None, found[-1]) if reverse else (found[-1], None)
        assert found == sorted(expected, reverse=reverse)


_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=3)
_KEYS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_KEYS, max_size=12),
    st.lists(_NAMES, max_size=2),
    st.none() | _KEYS,
    st.none() | _KEYS,
    st.booleans(),
    st.integers(1, 4),
)
async def test_any_scan_is_what_a_sorted_list_gives(
    lab: StoreLab,
    stored: list[str],
    path: list[str],
    after: str | None,
    before: str | None,
    reverse: bool,
    limit: int,
) -> None:
    namespace = NamespaceRef("shared/scan", generation=_Fresh.next())
    if stored:
        await write(lab.store, *(put(k) for k in dict.fromkeys(stored)), namespace=namespace)
    collection = "".join(name + "/" for name in path)
    page = await lab.store.scan(namespace, collection, after=after, before=before, limit=limit, reverse=reverse)
    expected = sorted(
        (
            k
            for k in set(stored)
            if k.startswith(collection) and (after is None or k > after) and (before is None or k < before)
        ),
        reverse=reverse,
    )
    assert [e.key for e in page.entries] == expected[:limit]
    assert page.more == (len(expected) > limit)


class _Fresh:
    """Numbers for namespaces of their own."""

    number = 0

    @classmethod
    def next(cls) -> int:
        cls.number += 1
        return cls.number


async def test_a_key_and_a_collection_of_the_same_name_do_not_touch_each_other(lab: StoreLab) -> None:
    await write(lab.store, put("a"), put("a/b"))
    await write(lab.store, reap("a"))
    assert await get(lab.store, "a/b") is not None
    assert isinstance(await commit(lab.store, put("a")), Committed)
