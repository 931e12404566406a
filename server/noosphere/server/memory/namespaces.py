"""Namespaces as operators see them: making live, listing, rules, deleting."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from noosphere.consistency import (
    ConflictInfo,
    NamePattern,
    NamespacePolicy,
    Reason,
    Refusal,
    check_namespace,
)

from ..ports.coordinator import EpochRecord
from ..ports.grants import Verb
from ..ports.store import Commit, Committed, Dropped, FailureKind, NamespaceRef, NamespaceStats
from .admission import require_writer
from .core import Core, located
from .directory import SYSTEM_PREFIX
from .reads import PAGE_BYTES_MAX, check_page_size
from .types import Call

ATTEMPTS_MAX = 8
_ENTRY_BYTES = 64
"""More than rules, or the policy of a prefix, take on the wire beside their text."""


class NamespaceDescription(NamedTuple):
    """One namespace with what it holds and the rules in force."""

    ref: NamespaceRef
    stats: NamespaceStats
    policy: NamespacePolicy


class PolicyPage(NamedTuple):
    """Some of the patterns that have rules, in order; ``following`` is the last one if there are more."""

    entries: tuple[tuple[NamePattern, NamespacePolicy], ...]
    config_version: int
    following: NamePattern | None


class Ensured(NamedTuple):
    """What EnsureNamespace found or made."""

    generation: int
    policy: NamespacePolicy
    head: int
    created: bool


class Namespaces:
    """Administration of namespaces."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def ensure(self, call: Call, namespace: str, policy: NamespacePolicy | None) -> Ensured:
        """Makes a namespace live; a deleted one gets a new generation above its old head.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, CONTENTION, LIMIT_EXCEEDED.
        """
        check_namespace(namespace)
        require_writer(call)
        self._core.access.require(call, namespace, Verb.WRITE if policy is None else Verb.ADMIN)
        self._core.require_current(call)
        if policy is not None:
            policy.check()
            pattern = NamePattern(namespace, True)
            if self._core.coordinator.policies().entries.get(pattern) != policy:
                await self._core.coordinator.set_policy(pattern, policy)
        ref = await self._core.locate(namespace)
        for _ in range(ATTEMPTS_MAX):
            view = (await self._core.store.read(ref, (), accepted=True)).view
            if view.deleted:
                ref = await self._core.relocate(ref) or await self._core.directory.reopen(ref, view.head)
                continue
            rules = self._core.rules(namespace)
            if view.exists:
                await self._core.store.settle(ref)
                return Ensured(ref.generation, rules.policy, view.head, False)
            if self._core.makers is not None:
                await self._core.makers.check(call.principal, call.agent_id, ref)
            version = max(rules.config_version, view.config_version)
            result = await self._core.store.commit(ref, Commit(view.epoch, version))
            if isinstance(result, Committed):
                return Ensured(ref.generation, rules.policy, result.revision, True)
        raise Refusal(Reason.CONTENTION, f"{namespace!r} was created and deleted under each of {ATTEMPTS_MAX} attempts")

    async def list(
        self, prefix: str, *, page_size: int, after: str, show_deleted: bool
    ) -> tuple[tuple[NamespaceDescription, ...], str | None]:
        """Returns one page of namespaces by name, and the name after which the next page begins.

        Raises:
            Refusal: INVALID_FIELD.
        """
        size = check_page_size(page_size)
        found: list[NamespaceDescription] = []
        while True:
            page = await self._core.store.namespaces(prefix, after, size)
            for summary in page:
                after = summary.ref.name
                if after.startswith(SYSTEM_PREFIX) or (summary.deleted and not show_deleted):
                    continue
                found.append(await self._describe(summary.ref))
                if len(found) >= size:
                    return tuple(found), after
            if len(page) < size:
                return tuple(found), None

    async def get(self, namespace: str) -> NamespaceDescription:
        """Returns one namespace, deleted or not.

        Raises:
            Refusal: INVALID_FIELD, NAMESPACE_NOT_FOUND.
        """
        check_namespace(namespace)
        described = await self._describe(await self._core.directory.reload(namespace))
        if not described.stats.view.exists and not described.stats.view.deleted and described.ref.generation == 1:
            raise not_found(namespace)
        return described

    async def delete(self, namespace: str, expected_head: int | None) -> Dropped:
        """Deletes a namespace; its head stays.

        Raises:
            Refusal: INVALID_FIELD, NAMESPACE_NOT_FOUND, NAMESPACE_DELETED, VERSION_MISMATCH.
        """
        described = await self.get(namespace)
        result = await self._core.store.drop(described.ref, expected_head)
        if isinstance(result, Dropped):
            return result
        (failure,) = result.failures
        if failure.kind is FailureKind.DELETED:
            refusal = Refusal(Reason.NAMESPACE_DELETED, f"namespace {namespace!r} is already deleted")
        else:
            message = f"namespace {namespace!r} has head {failure.actual}, not {expected_head}"
            refusal = Refusal(Reason.VERSION_MISMATCH, message, ConflictInfo("", failure.actual))
        raise located(refusal, namespace, failure.actual)

    async def set_policy(self, pattern: NamePattern, policy: NamespacePolicy | None) -> int:
        """Sets or removes the rules of every namespace that matches; returns the configuration version.

        Raises:
            Refusal: INVALID_FIELD, LIMIT_EXCEEDED.
        """
        pattern.check()
        if policy is not None:
            policy.check()
        return await self._core.coordinator.set_policy(pattern, policy)

    def policies(self, *, page_size: int, after: NamePattern | None) -> PolicyPage:
        """Returns one page of the patterns that have rules, by their text.

        Raises:
            Refusal: INVALID_FIELD.
        """
        size = check_page_size(page_size)
        table = self._core.coordinator.policies()
        patterns = sorted(table.entries)
        begin = 0 if after is None else bisect.bisect_right(patterns, after)
        page: list[tuple[NamePattern, NamespacePolicy]] = []
        taken = 0
        for pattern in patterns[begin : begin + size]:
            if taken >= PAGE_BYTES_MAX:
                break
            policy = table.entries[pattern]
            page.append((pattern, policy))
            taken += _ENTRY_BYTES + len(pattern.text.encode())
            taken += sum(_ENTRY_BYTES + len(prefix.encode()) for prefix, _ in policy.prefix_policies)
        more = begin + len(page) < len(patterns)
        return PolicyPage(tuple(page), table.config_version, page[-1][0] if more else None)

    async def epochs(self, *, page_size: int, after: int) -> tuple[tuple[EpochRecord, ...], int | None]:
        """Returns one page of the epochs after one, oldest first, and the last of them if there are more.

        Raises:
            Refusal: INVALID_FIELD.
        """
        size = check_page_size(page_size)
        later = [record for record in await self._core.coordinator.epochs() if record.epoch > after]
        return tuple(later[:size]), later[size - 1].epoch if len(later) > size else None

    async def _describe(self, ref: NamespaceRef) -> NamespaceDescription:
        stats = await self._core.store.stats(ref)
        return NamespaceDescription(ref, stats, self._core.rules(ref.name).policy)


def not_found(namespace: str) -> Refusal:
    """Returns the refusal of an administrative call on a namespace that never existed."""
    return Refusal(Reason.NAMESPACE_NOT_FOUND, f"namespace {namespace!r} does not exist")
