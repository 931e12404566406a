"""Manifests: whatever changes between checkpoints, each is put together as it was, from at most 16 records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import NEVER_MS
from noosphere.server.ports.store import CollectionStamps, NamespaceView, ScanResult, StoredEntry
from noosphere.server.sessions.keys import MESSAGES, slot
from noosphere.server.sessions.manifests import (
    FULL_EVERY,
    Delta,
    SavedVersion,
    base_of,
    chain_of,
    decode_delta,
    difference,
    encode_delta,
    manifest_key,
    resolve,
    stored_delta,
)
from noosphere.server.sessions.saving import Moved, newest_at

VERSIONS = st.builds(SavedVersion, st.integers(1, 1 << 62), st.sampled_from([NEVER_MS, 5, 1 << 41]))
MANIFESTS = st.dictionaries(st.sampled_from([f"k{number}" for number in range(8)]), VERSIONS)


@given(st.lists(MANIFESTS, min_size=1, max_size=40))
def test_every_manifest_is_put_together_as_it_was(manifests: list[dict[str, SavedVersion]]) -> None:
    stored: dict[str, bytes] = {}
    before: dict[str, SavedVersion] = {}
    for number, manifest in enumerate(manifests, start=1):
        delta = stored_delta(number, difference(before, manifest), manifest)
        stored[manifest_key(number)] = encode_delta(delta)
        before = manifest
    for number, manifest in enumerate(manifests, start=1):
        chain = chain_of(number)
        assert len(chain) <= FULL_EVERY
        assert resolve(decode_delta(stored[key]) for key in chain) == manifest


@given(MANIFESTS, MANIFESTS)
def test_a_difference_names_just_what_differs(before: dict[str, SavedVersion], after: dict[str, SavedVersion]) -> None:
    delta = difference(before, after)
    assert set(delta.touched) == {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert delta.empty == (before == after)


def test_the_first_and_every_sixteenth_is_a_full_one() -> None:
    assert [number for number in range(1, 40) if base_of(number) == number] == [1, 17, 33]
    assert stored_delta(17, Delta(False), {"k": SavedVersion(1)}) == Delta(True, {"k": 1})


def _found(revisions: list[int], *, more: bool = False) -> ScanResult:
    view = NamespaceView(True, False, 100, 1, 0, 0, 0, 0, ())
    entries = tuple(StoredEntry(MESSAGES + slot(revision, 0), revision, b"", NEVER_MS) for revision in revisions)
    return ScanResult(view, entries, more, CollectionStamps(0, 0))


def test_the_newest_message_is_that_of_the_head_and_not_a_later_one() -> None:
    assert newest_at(_found([9, 7, 5]), 8, "") == MESSAGES + slot(7, 0)
    assert newest_at(_found([9, 7, 5]), 8, MESSAGES + slot(7, 0)) == "", "what lies before the branch is not its own"
    assert newest_at(_found([9]), 8, "") == ""
    with pytest.raises(Moved):
        newest_at(_found([9], more=True), 8, "")
