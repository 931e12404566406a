"""Read sets: what was seen first counts, guards select, tokens survive, and nothing damaged is ever read."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    EVERYTHING,
    NEVER_MS,
    NOTHING_READ,
    NOTHING_SEEN,
    REVISION_MAX,
    CollectionSeen,
    Guard,
    KeySeen,
    NamespaceSeen,
    ReadSet,
    Reason,
    Refusal,
    StampMode,
    TokenKind,
    check_guards,
    decode_read_set,
    encode_causal,
    encode_read_set,
    seal,
)
from noosphere.consistency.limits import GUARDS_MAX, READ_SET_ENTRIES_MAX, READ_SET_NAMESPACES_MAX
from noosphere.consistency.tokens import TOKEN_BYTES_MAX

SPACE, OTHER = "shared/a", "shared/b"
CHANGED, MEMBERS = StampMode.CHANGED, StampMode.MEMBERS

names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/"), min_size=1, max_size=20
)
keys = st.lists(names, min_size=1, max_size=3).map("/".join)
collections = st.just("") | st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/")
numbers = st.integers(0, REVISION_MAX)
parts = st.builds(
    NamespaceSeen,
    numbers,
    st.dictionaries(keys, st.builds(KeySeen, numbers, numbers), max_size=4),
    st.dictionaries(
        st.tuples(collections, st.sampled_from(StampMode)), st.builds(CollectionSeen, numbers, numbers), max_size=4
    ),
)
read_sets = st.builds(ReadSet, st.dictionaries(names.map("shared/".__add__), parts, max_size=4))


def with_keys(count: int, name: str = "k{}") -> ReadSet:
    return NOTHING_READ.with_keys(SPACE, 9, {name.format(n): KeySeen(n) for n in range(count)})


# -- what is recorded --------------------------------------------------------------------------------


def test_of_a_key_read_twice_the_earlier_version_counts() -> None:
    seen = NOTHING_READ.with_key(SPACE, 5, "k", KeySeen(4, 100)).with_key(SPACE, 9, "k", KeySeen(8))
    assert seen.namespaces[SPACE] == NamespaceSeen(5, {"k": KeySeen(4, 100)})
    seen = seen.with_keys(SPACE, 12, {"k": KeySeen(11), "other": KeySeen(0)})
    assert seen.namespaces[SPACE] == NamespaceSeen(5, {"k": KeySeen(4, 100), "other": KeySeen(0)})


def test_of_a_list_in_pages_the_earlier_stamp_and_the_earliest_end_count() -> None:
    seen = NOTHING_READ.with_collection(SPACE, 5, "c/", CHANGED, CollectionSeen(4, 100))
    seen = seen.with_collection(SPACE, 9, "c/", CHANGED, CollectionSeen(8, 50))
    seen = seen.with_collection(SPACE, 9, "c/", MEMBERS, CollectionSeen(3))
    assert seen.namespaces[SPACE].collections == {
        ("c/", CHANGED): CollectionSeen(4, 50),
        ("c/", MEMBERS): CollectionSeen(3),
    }
    assert sorted(seen.revisions_of(SPACE)) == [3, 4, 5]
    assert list(seen.revisions_of(OTHER)) == []


def test_the_oldest_head_is_kept_whatever_comes_first() -> None:
    seen = NOTHING_READ.with_key(SPACE, 9, "k", KeySeen(4)).with_key(SPACE, 5, "l", KeySeen(4))
    assert seen.namespaces[SPACE].revision == 5


def test_a_read_set_is_never_changed_in_place() -> None:
    first = NOTHING_READ.with_key(SPACE, 5, "k", KeySeen(4))
    first.with_key(SPACE, 1, "l", KeySeen(2)).with_collection(SPACE, 5, "", CHANGED, CollectionSeen(4))
    first.advanced(SPACE, {"k": KeySeen(9)}, {})
    assert first == ReadSet({SPACE: NamespaceSeen(5, {"k": KeySeen(4)})})


def test_only_so_many_namespaces_and_entries() -> None:
    seen = NOTHING_READ
    for number in range(READ_SET_NAMESPACES_MAX):
        seen = seen.with_key(f"shared/{number}", 1, "k", KeySeen(1))
    found = refused(Reason.VALUE_TOO_LARGE, seen.with_key, "shared/more", 1, "k", KeySeen(1))
    assert found.message == "read_set_token has 9 namespaces, the limit is 8"
    full = with_keys(READ_SET_ENTRIES_MAX)
    assert full.with_key(SPACE, 9, "k0", KeySeen(99)) == full, "one that is there needs no room"
    for call in (
        lambda: full.with_key(SPACE, 9, "more", KeySeen(1)),
        lambda: full.with_keys(OTHER, 9, {"more": KeySeen(1)}),
        lambda: full.with_collection(SPACE, 9, "", CHANGED, CollectionSeen(1)),
    ):
        found = refused(Reason.VALUE_TOO_LARGE, call)
        assert found.message == "read_set_token has 1025 entries, the limit is 1024"


# -- guards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "covered"),
    [
        (Guard(""), {"plan", "plan/a", "plan/b/c", "other", "", "plan/", "plan/b/", "planned/"}),
        (Guard("plan/"), {"plan/a", "plan/b/c", "", "plan/", "plan/b/"}),
        (Guard("plan/b/"), {"plan/b/c", "", "plan/", "plan/b/"}),
        (Guard("plan"), {"plan", ""}),
        (Guard("plan/a"), {"plan/a", "", "plan/"}),
        (Guard("plan/b/c"), {"plan/b/c", "", "plan/", "plan/b/"}),
        (Guard("none"), {""}),
        (Guard("none/"), {""}),
    ],
)
def test_a_guard_covers_what_it_names_and_every_list_that_contains_it(guard: Guard, covered: set[str]) -> None:
    names = {"plan", "plan/a", "plan/b/c", "other", "", "plan/", "plan/b/", "planned/"}
    assert {name for name in names if guard.covers(SPACE, name)} == covered
    elsewhere = guard._replace(namespace=OTHER)
    assert not any(elsewhere.covers(SPACE, name) for name in names)
    assert {name for name in names if elsewhere.covers(OTHER, name)} == covered


def test_the_guarded_part_leaves_out_namespaces_of_which_nothing_is_guarded() -> None:
    seen = NOTHING_READ.with_key(SPACE, 5, "k", KeySeen(4)).with_key(SPACE, 5, "l", KeySeen(3))
    seen = seen.with_key(OTHER, 7, "l", KeySeen(6)).with_collection(OTHER, 7, "c/", CHANGED, CollectionSeen(2))
    assert seen.guarded((Guard("k"),)) == ReadSet({SPACE: NamespaceSeen(5, {"k": KeySeen(4)})})
    assert seen.guarded(EVERYTHING) == seen
    assert seen.guarded(()) == NOTHING_READ
    assert seen.guarded((Guard("c/x", OTHER), Guard("l", OTHER))).namespaces.keys() == {OTHER}


@pytest.mark.parametrize("prefix", ["/", "a//", "/a", "a//b", "a\0", "\0conflicts/", "é" * 300, "1/2/3/4/5/6/7/8/9/"])
def test_a_guard_that_names_nothing_possible_is_refused(prefix: str) -> None:
    refused_by = Reason.VALUE_TOO_LARGE if len(prefix) > 100 or prefix.startswith("1/") else Reason.INVALID_FIELD
    assert refused(refused_by, Guard(prefix).check).message.startswith("guards.prefix")


def test_a_guards_namespace_is_checked() -> None:
    assert refused(Reason.INVALID_FIELD, Guard("k", "nowhere").check).message.startswith("guards.namespace")
    Guard("k", SPACE).check()


def test_only_so_many_guards() -> None:
    check_guards((Guard("k"),) * GUARDS_MAX)
    found = refused(Reason.VALUE_TOO_LARGE, check_guards, (Guard("k"),) * (GUARDS_MAX + 1))
    assert found.message == "guards has 33 entries, the limit is 32"
    refused(Reason.INVALID_FIELD, check_guards, (Guard("k"), Guard("/")))


# -- advancing ---------------------------------------------------------------------------------------


def test_advancing_moves_only_what_it_is_told_to() -> None:
    seen = NOTHING_READ.with_keys(SPACE, 5, {"mine": KeySeen(4), "theirs": KeySeen(3)})
    seen = seen.with_collection(SPACE, 5, "c/", CHANGED, CollectionSeen(4, 77))
    seen = seen.with_collection(SPACE, 5, "c/", MEMBERS, CollectionSeen(2)).with_key(OTHER, 6, "mine", KeySeen(1))
    moved = seen.advanced(
        SPACE, {"mine": KeySeen(9, 88), "unread": KeySeen(9)}, {("c/", CHANGED): 9, ("d/", CHANGED): 9}
    )
    assert moved.namespaces[SPACE] == NamespaceSeen(
        5,
        {"mine": KeySeen(9, 88), "theirs": KeySeen(3)},
        {("c/", CHANGED): CollectionSeen(9, 77), ("c/", MEMBERS): CollectionSeen(2)},
    )
    assert moved.namespaces[OTHER] == seen.namespaces[OTHER]
    assert seen.advanced("shared/unread", {"mine": KeySeen(9)}, {}) == seen


@given(read_sets, numbers)
def test_advancing_never_makes_a_token_larger(read_set: ReadSet, revision: int) -> None:
    before = len(encode_read_set(read_set))
    for space, part in read_set.namespaces.items():
        keys = {key: KeySeen(revision) for key in part.keys}
        read_set = read_set.advanced(space, keys, dict.fromkeys(part.collections, revision))
    assert len(encode_read_set(read_set)) == before


# -- tokens ------------------------------------------------------------------------------------------


@given(read_sets)
def test_a_token_survives(read_set: ReadSet) -> None:
    assert decode_read_set(encode_read_set(read_set)) == read_set


@pytest.mark.parametrize("key", ["_", "%", "*", "a-b|c:d", "{x}/y", "鍵/é", "🔑" * 128, "k" * 512, "1/2/3/4/5/6/7/8/9"])
def test_every_key_that_a_user_may_have_survives(key: str) -> None:
    seen = NOTHING_READ.with_key("shared/" + "n" * 249, 1, key, KeySeen(REVISION_MAX, NEVER_MS))
    assert decode_read_set(encode_read_set(seen)) == seen


def test_as_many_short_keys_as_are_allowed_fit_and_long_ones_are_refused_by_size() -> None:
    full = with_keys(READ_SET_ENTRIES_MAX, "collection/of/some/depth/key-{:04}")
    assert decode_read_set(encode_read_set(full)) == full
    found = refused(Reason.VALUE_TOO_LARGE, encode_read_set, with_keys(200, "k" * 400 + "{}"))
    assert found.message.startswith("read_set_token has 8")
    assert found.message.endswith(f"bytes, the limit is {TOKEN_BYTES_MAX}")


TOKEN = encode_read_set(
    NOTHING_READ.with_key(SPACE, 5 << 40, "k/é", KeySeen(4, 100)).with_collection(
        SPACE, 5 << 40, "k/", MEMBERS, CollectionSeen(4)
    )
)


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(len(TOKEN) * 8):
        damaged = bytearray(TOKEN)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refused(Reason.INVALID_FIELD, decode_read_set, bytes(damaged), "call.x").message.startswith("call.x:")


def test_every_truncation_and_extension_is_noticed() -> None:
    for end in range(len(TOKEN)):
        refused(Reason.INVALID_FIELD, decode_read_set, TOKEN[:end])
        refused(Reason.INVALID_FIELD, decode_read_set, TOKEN[end + 1 :])
    refused(Reason.INVALID_FIELD, decode_read_set, TOKEN + b"\0")


def test_other_tokens_are_refused_by_name() -> None:
    assert "of another kind" in refused(Reason.INVALID_FIELD, decode_read_set, encode_causal(NOTHING_SEEN)).message
    newer = bytearray(TOKEN[:-4])
    newer[1] += 1
    newer += zlib.crc32(newer).to_bytes(4, "big")
    assert "has format 2" in refused(Reason.INVALID_FIELD, decode_read_set, bytes(newer)).message
    assert "the limit is 65536" in refused(Reason.INVALID_FIELD, decode_read_set, bytes(TOKEN_BYTES_MAX + 1)).message


def space(name: bytes, *entries: bytes, revision: int = 1, keys: int | None = None, lists: int = 0) -> bytes:
    count = len(entries) - lists if keys is None else keys
    return struct.pack(">HQHH", len(name), revision, count, lists) + name + b"".join(entries)


def key(name: bytes, version: int = 1, ends_ms: int = NEVER_MS) -> bytes:
    return struct.pack(">HQQ", len(name), version, ends_ms) + name


def listed(name: bytes, mode: int = 0, stamp: int = 1, ends_ms: int = NEVER_MS) -> bytes:
    return struct.pack(">HBQQ", len(name), mode, stamp, ends_ms) + name


@pytest.mark.parametrize(
    ("seen", "now", "same"),
    [
        (5, 5, True),
        (5, 7, True),
        (5, 9, True),
        (5, 10, False),
        (5, 4, False),
        (0, 0, True),
        (12, 12, True),
        (12, 13, False),
    ],
)
def test_a_stamp_that_has_risen_below_the_oldest_reading_tells_of_no_change(seen: int, now: int, same: bool) -> None:
    part = NamespaceSeen(9, collections={("goals/", CHANGED): CollectionSeen(seen)})
    assert part.is_as_seen("goals/", CHANGED, now) is same


FORGED = {
    "a record of the services": space(b"shared/a", key(b"\0conflicts/0000")),
    "a collection of the services": space(b"shared/a", listed(b"\0conflicts/"), lists=1),
    "no key": space(b"shared/a", key(b"")),
    "an empty segment": space(b"shared/a", key(b"a//b")),
    "a key that is a collection": space(b"shared/a", key(b"a/")),
    "a collection that is a key": space(b"shared/a", listed(b"a"), lists=1),
    "a long key": space(b"shared/a", key(b"k" * 513)),
    "no UTF-8": space(b"shared/a", key(b"\xff")),
    "no namespace": space(b"", key(b"k")),
    "another kind of namespace": space(b"system/namespaces", key(b"k")),
    "a namespace twice": space(b"shared/a", key(b"k")) + space(b"shared/a", key(b"l")),
    "a key twice": space(b"shared/a", key(b"k"), key(b"k", 2)),
    "a collection twice": space(b"shared/a", listed(b"", 1), listed(b"", 1), lists=2),
    "a mode of a later format": space(b"shared/a", listed(b"", 2), lists=1),
    "a revision out of range": space(b"shared/a", revision=REVISION_MAX + 1),
    "a version out of range": space(b"shared/a", key(b"k", REVISION_MAX + 1)),
    "a stamp out of range": space(b"shared/a", listed(b"", 0, REVISION_MAX + 1), lists=1),
    "an end out of range": space(b"shared/a", key(b"k", 1, NEVER_MS + 1)),
    "fewer keys than it says": space(b"shared/a", key(b"k"), keys=2),
    "more keys than it says": space(b"shared/a", key(b"k"), key(b"l"), keys=1),
    "half a key": space(b"shared/a", key(b"key")[:-1], keys=1),
    "half a namespace": space(b"shared/a")[:-1],
}


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_what_no_server_makes_is_refused(payload: bytes) -> None:
    found = refused(Reason.INVALID_FIELD, decode_read_set, seal(TokenKind.READ_SET, payload))
    assert found.message == "read_set_token: is damaged or not a token"


def test_too_much_is_refused_by_number() -> None:
    spaces = b"".join(space(b"shared/%d" % n) for n in range(READ_SET_NAMESPACES_MAX + 1))
    found = refused(Reason.VALUE_TOO_LARGE, decode_read_set, seal(TokenKind.READ_SET, spaces))
    assert found.message == "read_set_token has 9 namespaces, the limit is 8"
    entries = space(b"shared/a", *(key(b"%d" % n) for n in range(READ_SET_ENTRIES_MAX + 1)))
    found = refused(Reason.VALUE_TOO_LARGE, decode_read_set, seal(TokenKind.READ_SET, entries))
    assert found.message == "read_set_token has 1025 entries, the limit is 1024"


@given(st.binary(max_size=200))
def test_no_payload_breaks_the_decoder(payload: bytes) -> None:
    data = seal(TokenKind.READ_SET, payload)
    found: Reason | None = None
    try:
        read_set = decode_read_set(data)
    except Refusal as refusal:
        found = refusal.reason
    else:
        assert encode_read_set(read_set) == data, "one read set, one form"
    assert found in {None, Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE}
