"""Rules of namespaces: the longest pattern wins, and every bound is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Never

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    DEFAULT_POLICY,
    ConflictPolicy,
    NamePattern,
    NamespacePolicy,
    Reason,
    ancestors,
    resolve_policy,
)
from noosphere.consistency.limits import ITEM_BYTES_MAX, TOMBSTONE_RETENTION_MS_MIN
from noosphere.consistency.policy import PREFIX_POLICIES_MAX

conflict_policies = st.sampled_from(ConflictPolicy)
keys = st.lists(st.sampled_from(["a", "ab", "b", "%"]), min_size=1, max_size=4).map("/".join)
collections = keys.map(lambda key: key + "/")


@given(st.dictionaries(collections, conflict_policies, max_size=8), conflict_policies, keys)
def test_the_nearest_collection_decides(
    overrides: dict[str, ConflictPolicy], default: ConflictPolicy, key: str
) -> None:
    policy = NamespacePolicy(default, tuple(overrides.items()))
    policy.check()
    wanted = next((overrides[c] for c in reversed(ancestors(key)) if c in overrides), default)
    assert policy.for_key(key) is wanted


names = keys.map(lambda key: f"shared/{key}")
patterns = st.builds(NamePattern, names | names.map(lambda name: name + "/") | st.just("shared/"), st.booleans())


@given(st.dictionaries(patterns, st.integers(1, 100), max_size=8), names)
def test_the_exact_name_wins_then_the_longest_prefix_then_the_default(
    entries: dict[NamePattern, int], name: str
) -> None:
    table = {pattern: replace(DEFAULT_POLICY, records_max=records) for pattern, records in entries.items()}
    wanted = DEFAULT_POLICY
    if NamePattern(name, True) in table:
        wanted = table[NamePattern(name, True)]
    else:
        for end in range(len(name), 0, -1):
            if (found := table.get(NamePattern(name[:end], False))) is not None:
                wanted = found
                break
    assert resolve_policy(name, table) == wanted


def test_a_prefix_is_text_and_no_expression() -> None:
    other = replace(DEFAULT_POLICY, records_max=1)
    table = {NamePattern("shared/a%", False): other, NamePattern("shared/_", False): other}
    assert resolve_policy("shared/ab", table) is DEFAULT_POLICY
    assert resolve_policy("shared/a%b", table) is other


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("item_bytes_max", 1, ITEM_BYTES_MAX),
        ("records_max", 1, 10_000_000),
        ("tombstone_retention_ms", TOMBSTONE_RETENTION_MS_MIN, 10**12),
        ("log_age_ms_max", 1_000, 24 * 3600 * 1000),
        ("log_revisions_max", 1, 10_000_000),
        ("log_bytes_max", 1, 1 << 30),
    ],
)
def test_every_bound_is_checked(field: str, low: int, high: int) -> None:
    def with_value(value: int) -> NamespacePolicy:
        changes: dict[str, Any] = {field: value}
        return replace(DEFAULT_POLICY, **changes)

    DEFAULT_POLICY.check()
    for value in (low, high):
        with_value(value).check()
    for value in (low - 1, high + 1, -1):
        refusal = refused(Reason.INVALID_FIELD, with_value(value).check)
        for part in (field.removesuffix("_ms").replace("_ms_", "_"), str(value), str(low), str(high)):
            assert part in refusal.message


def test_prefix_policies_are_collections_few_and_unambiguous() -> None:
    reject = ConflictPolicy.REJECT
    most = tuple((f"c{n}/", reject) for n in range(PREFIX_POLICIES_MAX))
    NamespacePolicy(prefix_policies=most).check()
    refused(Reason.VALUE_TOO_LARGE, NamespacePolicy(prefix_policies=(*most, ("more/", reject))).check)
    for prefix in ("", "a", "/", "a//", "\0/"):
        refused(Reason.INVALID_FIELD, NamespacePolicy(prefix_policies=((prefix, reject),)).check)
    twice = (("a/", reject), ("a/", ConflictPolicy.SIBLINGS))
    assert "repeat" in refused(Reason.INVALID_FIELD, NamespacePolicy(prefix_policies=twice).check).message


@pytest.mark.parametrize("text", ["shared/", "shared/a", "shared/a/", "agents/x/y", "sessions/計畫"])
def test_patterns_begin_with_a_kind(text: str) -> None:
    NamePattern(text, False).check()


@pytest.mark.parametrize("text", ["", "shared", "a", "other/", "/", "shared//", "shared/a//", "shared//a", "shared/\0"])
def test_patterns_that_could_match_nothing_are_refused(text: str) -> None:
    refused(Reason.INVALID_FIELD, NamePattern(text, False).check)


def test_an_exact_pattern_is_a_name() -> None:
    NamePattern("shared/a", True).check()
    for text in ("shared/", "shared", "shared/a/", ""):
        refused(Reason.INVALID_FIELD, NamePattern(text, True).check)


def test_finding_the_rules_of_a_name_does_not_go_through_all_patterns() -> None:
    class Unlisted(dict[NamePattern, NamespacePolicy]):
        def items(self) -> Never:
            raise AssertionError("thousands of patterns, for each of thousands of namespaces")

        __iter__ = keys = values = items

    other = replace(DEFAULT_POLICY, records_max=1)
    assert resolve_policy("shared/a/b", Unlisted({NamePattern("shared/a", False): other})) is other
    assert resolve_policy("shared/b", Unlisted({NamePattern("shared/a", False): other})) is DEFAULT_POLICY
