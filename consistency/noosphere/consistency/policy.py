"""The rules of a namespace, and the patterns by which namespaces get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .errors import invalid, too_large
from .limits import (
    ITEM_BYTES_DEFAULT,
    ITEM_BYTES_MAX,
    LOG_AGE_MS_DEFAULT,
    LOG_BYTES_DEFAULT,
    LOG_REVISIONS_DEFAULT,
    RECORDS_DEFAULT,
    TOMBSTONE_RETENTION_MS_MIN,
)
from .names import check_collection, check_namespace, check_namespace_prefix

PREFIX_POLICIES_MAX = 16


class ConflictPolicy(IntEnum):
    """What happens to a write that did not see everything it would replace."""

    REJECT = 1
    SIBLINGS = 2
    LAST_WRITER_WINS = 3


_POLICIES = frozenset(ConflictPolicy)


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The rules of a namespace. Sizes in bytes, times in milliseconds."""

    conflict_policy: ConflictPolicy = ConflictPolicy.REJECT
    prefix_policies: tuple[tuple[str, ConflictPolicy], ...] = ()
    item_bytes_max: int = ITEM_BYTES_DEFAULT
    records_max: int = RECORDS_DEFAULT
    tombstone_retention_ms: int = TOMBSTONE_RETENTION_MS_MIN
    log_age_ms_max: int = LOG_AGE_MS_DEFAULT
    log_revisions_max: int = LOG_REVISIONS_DEFAULT
    log_bytes_max: int = LOG_BYTES_DEFAULT

    def for_key(self, key: str) -> ConflictPolicy:
        """Returns the policy for ``key``: that of the longest collection that contains it."""
        best, policy = -1, self.conflict_policy
        for prefix, override in self.prefix_policies:
            if len(prefix) > best and key.startswith(prefix):
                best, policy = len(prefix), override
        return policy

    def check(self) -> None:
        """Checks every bound.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming the field.
        """
        if len(self.prefix_policies) > PREFIX_POLICIES_MAX:
            raise too_large("policy.prefix_policies", len(self.prefix_policies), PREFIX_POLICIES_MAX, "entries")
        _check_policy("policy.conflict_policy", self.conflict_policy)
        for prefix, policy in self.prefix_policies:
            _check_policy("policy.prefix_policies.conflict_policy", policy)
            if not prefix:
                raise invalid("policy.prefix_policies.prefix", "must not be empty; use conflict_policy")
            check_collection(prefix, "policy.prefix_policies.prefix")
        if len({prefix for prefix, _ in self.prefix_policies}) < len(self.prefix_policies):
            raise invalid("policy.prefix_policies.prefix", "must not repeat")
        _between("policy.item_bytes_max", self.item_bytes_max, 1, ITEM_BYTES_MAX)
        _between("policy.records_max", self.records_max, 1, 10_000_000)
        _between("policy.tombstone_retention", self.tombstone_retention_ms, TOMBSTONE_RETENTION_MS_MIN, 10**12, "ms")
        _between("policy.log_age_max", self.log_age_ms_max, 1_000, 24 * 3600 * 1000, "ms")
        _between("policy.log_revisions_max", self.log_revisions_max, 1, 10_000_000)
        _between("policy.log_bytes_max", self.log_bytes_max, 1, 1 << 30)


def _check_policy(field: str, policy: ConflictPolicy) -> None:
    if policy not in _POLICIES:
        raise invalid(field, f"{policy!r} is not a conflict policy")


def _between(field: str, value: int, low: int, high: int, unit: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(field, f"{value!r} is not a whole number")
    if not low <= value <= high:
        raise invalid(field, f"{value} is not between {low} and {high} {unit}".rstrip())


DEFAULT_POLICY = NamespacePolicy()


class NamePattern(NamedTuple):
    """Names to which rules apply: one exact name, or every name with a prefix."""

    text: str
    exact: bool

    def check(self) -> None:
        """Checks the pattern.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming the field.
        """
        if self.exact:
            check_namespace(self.text)
        else:
            check_namespace_prefix(self.text, "pattern.prefix")


def resolve_policy(namespace: str, entries: Mapping[NamePattern, NamespacePolicy]) -> NamespacePolicy:
    """Returns the rules of ``namespace``: its exact entry, else the longest prefix's, else the default."""
    if (found := entries.get(NamePattern(namespace, True))) is not None:
        return found
    # Its prefixes are few; the entries may be thousands, and every namespace is looked up after each change of them.
    for length in range(len(namespace), -1, -1):
        if (found := entries.get(NamePattern(namespace[:length], False))) is not None:
            return found
    return DEFAULT_POLICY
