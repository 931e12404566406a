"""Names: any text is a name, measured in bytes; nothing is a wildcard."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    LimitInfo,
    NamespaceKind,
    Reason,
    actor_name,
    ancestors,
    check_agent_id,
    check_collection,
    check_key,
    check_namespace,
    split_actor,
)
from noosphere.consistency.limits import AGENT_ID_BYTES_MAX, KEY_BYTES_MAX, KEY_DEPTH_MAX, NAMESPACE_BYTES_MAX

ODD = [
    "_",
    "%",
    "*",
    "-",
    "|",
    ":",
    "{",
    "}",
    "a:b{c}|d%e_f*g-h",
    "%2F",
    "%00",
    "..",
    ".",
    " ",
    "\u00a0",
    "\\",
    "'; DROP TABLE records; --",
    "مرحبا",
    "\u202eright to left",
    "计划",
    "プラン",
    "계획",
    "план",
    "😀",
    "👩\u200d🔬",
    "e\u0301",
    "\ufeff",
    "\u2028",
    "\U0010ffff",
]
CONTROL = ["\0", "a\0b", "\n", "\t", "\x1b[31m", "\x7f", "\x85", "\x9f", "\ud800", "a\udfff", "\ud83d\ude00"]

segments = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=6).filter(
    lambda text: not any(unicodedata.category(character) == "Cc" for character in text)
)
keys = st.lists(segments, min_size=1, max_size=KEY_DEPTH_MAX + 1).map("/".join)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(name: str) -> None:
    check_key(name)
    check_key(f"{name}/{name}")
    check_collection(f"{name}/")
    check_agent_id(name)
    for kind in NamespaceKind:
        assert check_namespace(f"{kind}/{name}") == (kind, name)


@pytest.mark.parametrize("name", CONTROL)
def test_control_characters_and_halves_of_characters_are_refused(name: str) -> None:
    for check, text in (
        (check_key, f"a/{name}"),
        (check_collection, f"{name}/"),
        (check_agent_id, name),
        (check_namespace, f"shared/{name}"),
    ):
        assert "U+" in refused(Reason.INVALID_FIELD, check, text).message


@given(keys)
def test_a_key_s_ancestors_are_the_collections_that_contain_it(key: str) -> None:
    check_key(key)
    found = ancestors(key)
    assert found[0] == ""
    assert len(found) == key.count("/") + 1
    for collection in found:
        check_collection(collection)
        assert key.startswith(collection)
    assert set(found) == {key[: n + 1] for n, character in enumerate(key) if character == "/"} | {""}


def test_a_character_in_a_name_matches_itself_only() -> None:
    assert ancestors("a%/b_/*") == ("", "a%/", "a%/b_/")


@pytest.mark.parametrize("key", ["/", "/a", "a/", "a//b", "//", "a/b/"])
def test_empty_segments_are_refused(key: str) -> None:
    assert repr(key) in refused(Reason.INVALID_FIELD, check_key, key).message
    refused(Reason.INVALID_FIELD, check_namespace, f"shared/{key}")


@pytest.mark.parametrize("collection", ["/", "//", "a//", "/a/", "a", "a/b"])
def test_a_collection_is_empty_or_ends_in_one_slash(collection: str) -> None:
    check_collection("")
    refused(Reason.INVALID_FIELD, check_collection, collection)


def test_empty_names_are_refused() -> None:
    for check in (check_key, check_agent_id, check_namespace):
        assert "must not be empty" in refused(Reason.INVALID_FIELD, check, "").message


@pytest.mark.parametrize(
    ("check", "prefix", "suffix", "field", "limit"),
    [
        (check_key, "", "", "key", KEY_BYTES_MAX),
        (check_collection, "", "/", "collection", KEY_BYTES_MAX),
        (check_agent_id, "", "", "agent_id", AGENT_ID_BYTES_MAX),
        (check_namespace, "shared/", "", "namespace", NAMESPACE_BYTES_MAX),
    ],
)
@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
def test_limits_are_in_bytes(
    check: Callable[[str], object], prefix: str, suffix: str, field: str, limit: int, character: str
) -> None:
    width = len(character.encode())
    room = limit - len(prefix + suffix)
    fits = prefix + character * (room // width) + "x" * (room % width) + suffix
    assert len(fits.encode()) == limit
    check(fits)
    refusal = refused(
        Reason.VALUE_TOO_LARGE, check, fits.replace(suffix, "", 1) + "x" + suffix if suffix else fits + "x"
    )
    assert refusal.detail == LimitInfo(field, limit + 1, limit)
    assert refusal.message == f"{field} has {limit + 1} bytes, the limit is {limit}"


def test_depth_is_limited() -> None:
    check_key("a/" * KEY_DEPTH_MAX + "a")
    check_collection("a/" * KEY_DEPTH_MAX)
    too_deep = "a/" * (KEY_DEPTH_MAX + 1)
    for check, text in ((check_key, too_deep + "a"), (check_collection, too_deep)):
        refusal = refused(Reason.VALUE_TOO_LARGE, check, text)
        assert isinstance(refusal.detail, LimitInfo)
        assert (refusal.detail.actual, refusal.detail.limit) == (KEY_DEPTH_MAX + 1, KEY_DEPTH_MAX)


def test_the_field_in_the_error_is_the_caller_s() -> None:
    assert refused(Reason.INVALID_FIELD, check_key, "", "operations[3].key").message.startswith("operations[3].key:")


@pytest.mark.parametrize(
    "namespace", ["shared", "shared/", "SHARED/a", "share/a", "sharedx/a", "/a", "other/a", "shared /a", " shared/a"]
)
def test_a_namespace_has_a_kind_and_a_name(namespace: str) -> None:
    refused(Reason.INVALID_FIELD, check_namespace, namespace)


@given(segments.filter(lambda text: "#" not in text), st.integers(0, 2**64))
def test_actors_name_agent_and_incarnation(agent_id: str, incarnation: int) -> None:
    check_agent_id(agent_id)
    assert split_actor(actor_name(agent_id, incarnation)) == (agent_id, incarnation)


def test_an_agent_s_id_cannot_look_like_an_incarnation() -> None:
    assert "'#'" in refused(Reason.INVALID_FIELD, check_agent_id, "a#1").message
